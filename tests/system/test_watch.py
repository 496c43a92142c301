"""Watched files with real processes: one relaunch for what belongs together, never two groups, never a lost change."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import procfs
from tests.support.launcher import Launched, Supervise
from tests.support.waiting import wait_until

# Keeps what it began with, per attempt; tells if another group still is there, whose processes hold the lock.
_KEEPING = """
exec 9>"$TELL.lock"; flock -n 9 || echo two >> "$TELL.two"
cp "$1" "$TELL.$SUPERVISE_ATTEMPT"; shift; exec "$@"
"""
# The same, and is patched while it stops, for longer than it takes to see that.
_PATCHED_AS_IT_STOPS = """
cp "$1" "$TELL.$SUPERVISE_ATTEMPT"
trap 'echo "x = $SUPERVISE_ATTEMPT + 100" > "$1"; sleep 0.7; exit 0' TERM
echo up; while :; do sleep 0.05; done
"""


class Work:
    """A directory that is worked on, with a server that is launched anew for it."""

    def __init__(self, supervise: Supervise, port: int) -> None:
        self.supervise, self.port = supervise, port
        self.path = supervise.base / "work"
        self.model = self.path / "model.py"
        self.path.mkdir()
        self.model.write_text("x = 1\n")

    def start(self, *options: object, script: str = _KEEPING, load_s: float = 0.05) -> Launched:
        server = self.supervise.standin("--load-s", load_s, port=self.port)
        words = ("--name", "X", "--grace", 2, "--watch", self.path, *options, "sh", "-c", script, "sh", self.model)
        self.launched = self.supervise.start(*words, *server, env={"TELL": str(self.supervise.tmp / "tell")})
        return self.launched

    @property
    def attempts(self) -> int:
        """How many have begun."""
        return len(list((self.supervise.run_directory() / "attempts").glob("[0-9]*")))

    def began_with(self, attempt: int) -> str:
        """The model's content at the launch of an attempt; empty if that is yet to come."""
        kept = self.supervise.tmp / f"tell.{attempt}"
        return kept.read_text() if kept.exists() else ""

    def wait_ready(self, attempt: int) -> None:
        """Wait until this attempt serves."""

        def ready() -> bool:
            told = self.supervise.status() if self.supervise.runs() else {}
            return (told.get("state"), told.get("attempt")) == ("ready", attempt)

        wait_until(ready, 30, failure=self.supervise.said)

    def wait_newest(self, content: str) -> None:
        """Wait until the newest attempt has begun with this."""
        wait_until(lambda: self.began_with(self.attempts) == content, 30, failure=self.supervise.said)

    def end(self) -> None:
        """Stop it: there never were two groups."""
        self.launched.send(signal.SIGTERM)
        assert self.launched.wait() == -signal.SIGTERM
        assert not (self.supervise.tmp / "tell.two").exists(), self.launched.stderr


@pytest.fixture
def work(supervise: Supervise, port: int) -> Work:
    return Work(supervise, port)


def said(launched: Launched) -> list[str]:
    return re.findall(r"^watch +(.*)$", launched.stderr, re.MULTILINE)


def test_a_thousand_saves_in_a_row(work: Work) -> None:
    launched = work.start()
    work.wait_ready(1)
    began, before = time.monotonic(), effort(launched)
    for number in range(2, 1001):
        work.model.write_text(f"x = {number}\n")
        if number % 2:
            (work.path / f"new{number}.py").write_text("")
            os.replace(work.path / f"new{number}.py", work.path / "other.py")
        time.sleep(0.002)
    work.wait_newest("x = 1000\n")
    wall_s, cpu_s = time.monotonic() - began, effort(launched) - before
    work.wait_ready(work.attempts)
    assert work.attempts <= 4, launched.stderr
    assert cpu_s < 0.3 * wall_s, (cpu_s, wall_s)
    work.end()


def effort(launched: Launched) -> float:
    fields = Path(f"/proc/{launched.id.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_checkout_of_thousands_of_files_and_a_tree_made_anew(work: Work) -> None:
    git(work.path, "init", "-q", "-b", "main")
    git(work.path, "fast-import", "--quiet", said="\n".join(history(5000)))
    git(work.path, "reset", "-q", "--hard")
    launched = work.start()
    work.wait_ready(1)
    git(work.path, "checkout", "-q", "HEAD~1")
    work.wait_newest("x = 1\n")
    work.wait_ready(2)
    assert said(launched) == ["work/0/0.py, work/0/1.py, work/0/10.py +4998 more changed: relaunch"]
    shutil.rmtree(work.path)
    work.path.mkdir()
    work.model.write_text("x = 3\n")
    work.wait_newest("x = 3\n")
    work.wait_ready(3)
    # Notices come from the new tree now, not from the one that is gone; what has not changed is no reason.
    os.utime(work.model)
    work.model.write_text("x = 4\n")
    work.wait_newest("x = 4\n")
    work.wait_ready(4)
    assert said(launched)[2:] == ["work/model.py changed: relaunch"]
    work.end()


def history(files: int) -> Iterator[str]:
    """Two commits in which all files differ, as git-fast-import(1) reads them."""
    for commit in (1, 2):
        yield f"blob\nmark :{2 * commit}\ndata 6\nx = {commit}\n"
        yield f"commit refs/heads/main\nmark :{2 * commit + 1}\ncommitter x <x@y> {commit} +0000\ndata 0\n"
        yield f"M 644 :{2 * commit} model.py"
        yield from (f"M 644 :{2 * commit} {number // 100}/{number}.py" for number in range(files))


def git(directory: Path, *words: str, said: str = "") -> None:
    subprocess.run(["git", "-C", str(directory), *words], input=said.encode(), check=True)


def test_what_changes_as_it_stops_goes_along(work: Work) -> None:
    launched = work.start(script=_PATCHED_AS_IT_STOPS)
    wait_until(lambda: work.began_with(1), failure=work.supervise.said)
    launched.wait_said("attempt  1")
    work.model.write_text("x = 2\n")
    launched.wait_said("changed: relaunch")
    work.wait_newest("x = 1 + 100\n")
    # Had it not gone along, this would not be the next change but the one after that.
    (work.path / "other.py").write_text("")
    wait_until(lambda: work.began_with(3), 30, failure=work.supervise.said)
    relaunches = [line for line in said(launched) if line.endswith(": relaunch")]
    assert relaunches == ["work/model.py changed: relaunch", "work/other.py changed: relaunch"]
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    assert work.attempts == 3


def test_what_does_not_compile_is_told_and_not_launched(work: Work) -> None:
    launched = work.start()
    work.wait_ready(1)
    work.model.write_text("def f(:\n")
    launched.wait_said("work/model.py, line 1: SyntaxError: invalid syntax; no relaunch until it is mended")
    (work.path / "other.py").write_text("x = 1\n")
    work.model.write_text("def f(): (\n")
    launched.wait_said("'(' was never closed")
    work.model.write_text("x = 2\n")
    work.wait_newest("x = 2\n")
    work.wait_ready(2)
    assert said(launched)[-1] == "work/model.py, work/other.py changed: relaunch"
    assert work.attempts == 2
    work.end()


def test_a_change_while_it_loads_may_wait(work: Work) -> None:
    launched = work.start("--on-change", "after-ready", load_s=1.5)
    wait_until(lambda: work.began_with(1), failure=work.supervise.said)
    work.model.write_text("x = 2\n")
    launched.wait_said("work/model.py changed: relaunch after it is ready")
    work.wait_newest("x = 2\n")
    told = launched.stderr
    assert told.index("after it is ready") < told.index("ready    in") < told.index("work/model.py changed: relaunch\n")
    work.end()


def test_whoever_wants_to_be_asked_is_only_told(work: Work) -> None:
    launched = work.start("--on-change", "ask")
    work.wait_ready(1)
    work.model.write_text("x = 2\n")
    launched.wait_said("work/model.py changed: supervise restart X")
    assert (work.attempts, work.supervise.status()["state"]) == (1, "ready")
    assert work.supervise.run("restart", "X").popen.returncode == 0
    work.wait_newest("x = 2\n")
    work.end()


def test_what_failed_waits_for_a_change(work: Work) -> None:
    work.model.write_text("raise KeyError('x')\n")
    launched = work.start(
        script=f'cp "$1" "$TELL.$SUPERVISE_ATTEMPT"; {work.supervise.python} "$1" && shift && exec "$@"'
    )
    work.supervise.wait_state("waiting")
    assert procfs.identify(launched.id.pid) is not None
    work.model.write_text("x = 2\n")
    work.wait_ready(2)
    assert work.began_with(2) == "x = 2\n"
    work.end()
