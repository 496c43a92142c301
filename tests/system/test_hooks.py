"""Hooks that do their worst, with the real porter: nothing of theirs stays, nothing of them changes anything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervise.group.errand import TERM_S
from supervise.host import procfs
from supervise.model.news import BecameReady, Ending, Launched, Relaunching, Stalled
from supervise.model.telling import Hook, Occasion
from supervise.runner.hooks import Hooks
from tests.support.waiting import alive, wait_until

READY = BecameReady(1, 3.0, {})
STOP = Ending("SIGTERM", True, False, 40.0)
DEAF = 'trap : TERM; echo $$ > "$HERE/pid"; while :; do sleep 0.1; done'


class Told:
    """A console that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []

    def line(self, label: str, text: str) -> None:
        self.lines.append(f"{label} {text}")

    def error(self, text: str) -> None:
        self.errors.append(text)


class Scene:
    def __init__(self, path: Path, hooks: list[tuple[str, str]], timeout_s: float) -> None:
        self.path, self.console = path, Told()
        env = {
            **os.environ,
            "SUPERVISE_RUN": "outer",
            "SUPERVISE_ATTEMPT": "3",
            "NOTIFY_SOCKET": "/n",
            "HERE": str(path),
        }
        asked = tuple(Hook(Occasion(on), command) for on, command in hooks)
        self.hooks = Hooks(asked, timeout_s, "vllm-8000", "vllm", str(path), self.console, env=env)
        self.porter = self.hooks._porter.pid

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    @property
    def log(self) -> str:
        return self.read("hooks.log")

    def below(self) -> list[int]:
        return [process.pid for process in procfs.descendants(procfs.scan(), self.porter) if not process.gone]

    async def until(self, seen) -> None:
        deadline = time.monotonic() + 20
        while not seen():
            assert time.monotonic() < deadline, self.log
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def scene(
    path: Path, *hooks: tuple[str, str], timeout_s: float = 20.0, most_s: float | None = None
) -> AsyncIterator[Scene]:
    """Hooks that are closed and waited for in the end; their porter is gone then."""
    made = Scene(path, list(hooks), timeout_s)
    try:
        yield made
        await made.hooks.finished(most_s)
        made.hooks.close()
        made.hooks.close()
    finally:
        for porter in made.hooks._porters:
            porter._channel.close()
            os.waitpid(porter.pid, 0)


def run(story) -> None:
    asyncio.run(story)


def test_a_hook_is_told_what_happened_and_is_no_member_of_the_group(tmp_path):
    async def story() -> None:
        command = 'cat > "$HERE/told.json"; env > "$HERE/env"; echo seen; echo wrong >&2'
        async with scene(tmp_path, ("ready", command), ("crash", "touch never")) as made:
            made.hooks.hear(Launched(1, "/l", 7))
            made.hooks.hear(READY)
        told = json.loads(made.read("told.json"))
        assert (told["event"], told["run"], told["attempt"], told["ready_s"], told["log"]) == (
            "ready",
            "vllm-8000",
            1,
            3,
            "/l",
        )
        env = dict(line.split("=", 1) for line in made.read("env").splitlines() if "=" in line)
        assert (env["SUPERVISE_EVENT"], env["SUPERVISE_RUN_NAME"], env["SUPERVISE_ATTEMPT_NUMBER"]) == (
            "ready",
            "vllm-8000",
            "1",
        )
        assert not {"SUPERVISE_RUN", "SUPERVISE_ATTEMPT", "SUPERVISE_ID", "NOTIFY_SOCKET"} & env.keys()
        assert env["PATH"] == os.environ["PATH"]
        assert "seen\nwrong\n=== exit status 0" in made.log
        assert made.console.errors == []
        assert not (tmp_path / "never").exists()

    run(story())


def test_hooks_run_one_after_the_other_in_the_order_of_events(tmp_path):
    async def story() -> None:
        first = 'sleep 0.2; echo "any $SUPERVISE_EVENT" >> "$HERE/order"'
        async with scene(tmp_path, ("any", first), ("stall", 'echo stall >> "$HERE/order"')) as made:
            made.hooks.hear(Launched(1, "/l", 7))
            made.hooks.hear(Stalled("load", "x"))
            made.hooks.hear(READY)
        assert made.read("order").splitlines() == ["any launch", "any stall", "stall", "any ready"]

    run(story())


def test_what_a_hook_detaches_is_gone_with_it(tmp_path):
    deaf = "trap : TERM HUP; (sleep 300 & echo \\$! > $HERE/grandchild); while :; do sleep 0.1; done"
    daemon = f'setsid sh -c "{deaf}" & echo $! > $HERE/child'

    async def story() -> None:
        wait = 'while [ ! -s "$HERE/grandchild" ]; do sleep 0.02; done'
        async with scene(tmp_path, ("ready", f"{daemon}; {wait}"), ("stall", 'touch "$HERE/next"')) as made:
            made.hooks.hear(READY)
            made.hooks.hear(Stalled("load", "x"))
            await made.until((tmp_path / "grandchild").exists)
            assert made.below()
            await made.until((tmp_path / "next").exists)
            assert not alive(int(made.read("grandchild")))
            assert not alive(int(made.read("child")))
        assert made.console.errors == []

    run(story())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sleep 300 & trap : TERM; while :; do sleep 0.1; done", "not over after 0.3 s, and ended"),
        ("exit 7", "exit status 7"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("no-such-program-of-ours", "exit status 127"),
    ],
    ids=["hangs", "fails", "killed", "missing"],
)
def test_a_failure_is_said_once_and_changes_nothing(tmp_path, command, said):
    async def story() -> None:
        async with scene(tmp_path, ("ready", command), ("ready", 'echo x >> "$HERE/after"'), timeout_s=0.3) as made:
            for count in (1, 2):
                made.hooks.hear(READY)
                await made.until(lambda count=count: not made.hooks._asked)
                assert made.below() == []
        assert len(made.console.errors) == 1
        assert said in made.console.errors[0]
        assert command[:10] in made.console.errors[0]
        assert made.read("after").split() == ["x", "x"]

    run(story())


def test_hundred_megabytes_are_taken_and_not_kept(tmp_path):
    async def story() -> None:
        async with scene(
            tmp_path, ("ready", "head -c 100000000 /dev/zero; echo done > $HERE/done"), timeout_s=60
        ) as made:
            made.hooks.hear(READY)
        assert made.read("done") == "done\n"
        assert (tmp_path / "hooks.log").stat().st_size < 128 * 1024
        assert f"{100000000 - 65536} bytes were not kept here" in made.log
        assert made.console.errors == []

    run(story())


def test_the_log_of_many_is_bounded(tmp_path):
    (tmp_path / "hooks.log").write_bytes(b"x" * 2**21)

    async def story() -> None:
        async with scene(tmp_path, ("ready", "echo new")) as made:
            made.hooks.hear(READY)
        assert "x" not in made.log.replace("exit", "")
        assert (tmp_path / "hooks.log.1").stat().st_size == 2**21

    run(story())


def test_whoever_does_not_read_holds_up_nobody_and_a_full_queue_is_said_once(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("stall", '[ -e "$HERE/go" ] || sleep 300'), timeout_s=300) as made:
            began = time.monotonic()
            for _ in range(100):
                made.hooks.hear(Stalled("load", "x" * 100_000))
            assert time.monotonic() - began < 10
            assert [error for error in made.console.errors if "64 wait" in error] == made.console.errors
            assert len(made.console.errors) == 1
            made.hooks.hurry()

    run(story())


def test_at_the_end_those_that_run_have_their_time_and_no_more(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("ready", 'sleep 0.3; touch "$HERE/over"'), timeout_s=20) as made:
            made.hooks.hear(READY)
        assert (tmp_path / "over").exists()
        async with scene(tmp_path, ("ready", "sleep 300"), ("ready", 'touch "$HERE/never"'), timeout_s=0.3) as made:
            made.hooks.hear(READY)
        assert not (tmp_path / "never").exists()
        assert sorted("not run any more" in error for error in made.console.errors) == [False, True]
        assert any("not over " in error for error in made.console.errors)

    run(story())


def test_the_wait_at_the_end_can_be_cut_short(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("ready", 'echo $$ > "$HERE/pid"; sleep 300'), timeout_s=300) as made:
            made.hooks.hear(READY)
            await made.until(lambda: (tmp_path / "pid").exists() and made.read("pid"))
            asyncio.get_running_loop().call_later(0.2, made.hooks.hurry)
        assert not alive(int(made.read("pid")))
        assert "not over when supervise left, and ended" in made.console.errors[0]

    run(story())


def test_nothing_outlives_a_supervise_that_is_gone(tmp_path):
    async def story() -> None:
        made = Scene(tmp_path, [("ready", 'setsid sleep 300 & echo $! > "$HERE/pid"; sleep 300')], 300)
        made.hooks.hear(READY)
        await made.until(lambda: (tmp_path / "pid").exists() and made.read("pid"))
        asyncio.get_running_loop().remove_reader(made.hooks._porter._channel)
        made.hooks._porter._channel.close()  # as the kernel does for whoever is killed
        os.waitpid(made.porter, 0)
        assert not alive(int(made.read("pid")))

    run(story())


def test_a_porter_that_is_killed_leaves_no_hook_and_is_said(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("ready", 'echo $$ > "$HERE/pid"; sleep 300')) as made:
            made.hooks.hear(READY)
            await made.until(lambda: (tmp_path / "pid").exists() and made.read("pid") and made.hooks._porter._running)
            os.kill(made.porter, signal.SIGKILL)
            await made.until(lambda: made.console.errors)
            assert "was killed" in made.console.errors[0]
            made.hooks.hear(READY)
        pid = int(made.read("pid"))
        wait_until(lambda: not alive(pid))
        os.waitpid(pid, 0)

    run(story())


def test_a_directory_that_cannot_be_written_stops_no_hook(tmp_path):
    async def story() -> None:
        made = Scene(tmp_path / "gone", [("ready", f"touch {tmp_path}/done")], 20.0)
        made.hooks.hear(READY)
        await made.hooks.finished()
        os.waitpid(made.porter, 0)
        assert (tmp_path / "done").exists()

    run(story())


def test_one_that_ignores_sigterm_is_killed_within_the_time_that_is_left(tmp_path):
    async def story() -> None:
        began = 0.0
        async with scene(tmp_path, ("stop", DEAF), most_s=0.6) as made:
            made.hooks.hear(STOP)
            await made.until(lambda: (tmp_path / "pid").exists() and made.read("pid"))
            began = time.monotonic()
        # After its time-out a hook would have so much from SIGTERM to SIGKILL alone.
        assert time.monotonic() - began < TERM_S
        assert not alive(int(made.read("pid")))
        assert "not over when supervise left, and ended" in made.console.errors[0]
        assert "waiting for 1 hook, at most" in made.console.lines[0]
        assert "stop: trap : TERM" in made.console.lines[0]

    run(story())


def test_one_that_is_ended_already_gets_no_more_than_that_either(tmp_path):
    async def story() -> None:
        began = 0.0
        async with scene(tmp_path, ("stop", DEAF), timeout_s=0.3, most_s=0.6) as made:
            made.hooks.hear(STOP)
            await made.until(lambda: "pid" in os.listdir(tmp_path) and made.read("pid"))
            await asyncio.sleep(0.3)
            began = time.monotonic()
        assert time.monotonic() - began < TERM_S - 0.3
        assert not alive(int(made.read("pid")))

    run(story())


def test_who_is_born_while_it_is_ended_is_asked_to_end_too(tmp_path):
    newcomer = 'trap \'sleep 300; : > "$HERE/asked"; exit\' TERM; touch "$HERE/up"; while :; do sleep 0.02; done'

    async def story() -> None:
        async with scene(tmp_path, ("ready", newcomer)) as made:
            made.hooks.hear(READY)
            await made.until((tmp_path / "up").exists)
            made.hooks.hurry()
        assert (tmp_path / "asked").exists()

    run(story())


def test_a_stop_waits_no_longer_than_a_moment_for_what_hangs(tmp_path):
    hang = 'touch "$HERE/up"; while [ ! -e "$HERE/go" ]; do sleep 0.02; done; touch "$HERE/over"'
    tell = 'echo $SUPERVISE_EVENT >> "$HERE/told"'

    async def story() -> None:
        hooks = [("launch", hang), *((on, tell) for on in ("ready", "stop", "relaunch"))]
        async with scene(tmp_path, *hooks) as made:
            made.hooks.hear(Launched(1, "/l", 7))
            await made.until((tmp_path / "up").exists)
            made.hooks.hear(READY)
            made.hooks.hear(STOP)
            made.hooks.hear(Relaunching(1, 4.0, "why", "boom", "transient"))
            await made.until(lambda: (tmp_path / "told").exists())
            assert not (tmp_path / "over").exists()
            # Ends wait for one another still.
            made.hooks.hear(STOP)
            await made.until(lambda: len(made.hooks._asked) == 2)
            assert len(made.hooks._porters) == 2
            (tmp_path / "go").touch()
        assert (tmp_path / "over").exists()
        # What had not begun before the end is left out; what came after it is not.
        assert made.read("told").split() == ["stop", "stop", "relaunch"]
        assert [error for error in made.console.errors if "1 hook left out" in error and "ready" in error]
        assert len(made.console.errors) == 1

    run(story())


def test_an_end_waits_for_those_before_it_that_end(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("any", 'sleep 0.1; echo $SUPERVISE_EVENT >> "$HERE/told"')) as made:
            for news in (Launched(1, "/l", 7), READY, STOP):
                made.hooks.hear(news)
        assert made.read("told").split() == ["launch", "ready", "stop"]
        assert len(made.hooks._porters) == 1

    run(story())


def test_what_is_left_of_a_time_counts_for_one_that_begins_at_the_end(tmp_path):
    """The second process is started while they are waited for: it knows when that is over."""

    async def story() -> None:
        async with scene(tmp_path, ("launch", "sleep 300"), ("stop", DEAF), most_s=2.5) as made:
            made.hooks.hear(Launched(1, "/l", 7))
            await made.until(lambda: any(asked.begun for asked in made.hooks._asked.values()))
            made.hooks.hear(STOP)
        assert not alive(int(made.read("pid")))
        assert sum("not over when supervise left" in error for error in made.console.errors) == 2
        assert not any("cannot be ended" in error for error in made.console.errors)

    run(story())


def test_a_porter_that_is_stopped_does_not_hold_up_the_end_and_is_not_left(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("ready", "true")) as made:
            made.hooks.hear(READY)
            await made.until(lambda: not made.hooks._asked)
            os.kill(made.porter, signal.SIGSTOP)
            made.hooks.close()
            try:
                await asyncio.wait_for(made.hooks.finished(), 5)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(made.porter, signal.SIGCONT)

    run(story())


def test_of_a_porter_that_was_killed_nothing_more_is_waited_for(tmp_path):
    async def story() -> None:
        async with scene(tmp_path, ("ready", "true")) as made:
            made.hooks.hear(READY)
            await made.until(lambda: not made.hooks._asked)
            os.kill(made.porter, signal.SIGKILL)
            await made.until(lambda: made.console.errors)
            made.hooks.hear(READY)
            assert not made.hooks._asked

    run(story())
