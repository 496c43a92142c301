"""What goes wrong with supervise itself: the server goes on answering, people are told once, and the end is clean."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from supervise.host import kernel, procfs
from tests.support.faults import Afflicted, limit
from tests.support.launcher import NOBODY, Supervise
from tests.support.nvml import library
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

Afflict = Callable[..., Afflicted]
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)
CLOCK = Path(__file__).parents[1] / "support/clock/realtime.c"
AS_NOBODY = (f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
_CLONE_NEWUTS = 0x04000000


@pytest.fixture
def afflict(supervise: Supervise) -> Iterator[Afflict]:
    made: list[Afflicted] = []

    def start(*options: object, **more: Any) -> Afflicted:
        made.append(Afflicted(supervise, *options, **more))
        return made[-1]

    yield start
    for each in made:
        each.close()


# --- what is done to it; each proves that the fault is there ----------------------------------------------------------


def fill_the_disk(server: Afflicted) -> None:
    piece = b"x" * 4096
    with (server.root / "ballast").open("wb", buffering=0) as file:
        while os.fstatvfs(file.fileno()).f_bfree:
            file.write(piece)
        with pytest.raises(OSError, match="No space left"):
            file.write(piece)


def make_it_read_only(server: Afflicted) -> None:
    server.inside("mount", "--bind", server.state, server.state)
    server.inside("mount", "-o", "remount,bind,ro", server.state)
    with pytest.raises(subprocess.CalledProcessError):
        server.inside("touch", f"{server.state}/x")


def remove(*names: str) -> Callable[[Afflicted], None]:
    def act(server: Afflicted) -> None:
        for name in names:
            path = server.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return act


def use_up_descriptors(server: Afflicted) -> None:
    """Not one more can be opened: any that is free has a number from here on."""
    used = set(map(int, os.listdir(f"/proc/{server.pid}/fd")))
    limit(server.pid, resource.RLIMIT_NOFILE, next(number for number in range(len(used) + 1) if number not in used))


def stop_the_keeper(server: Afflicted) -> None:
    keeper = json.loads((server.run / "run.json").read_text())["keeper"]["pid"]
    os.kill(keeper, signal.SIGSTOP)
    wait_until(lambda: state_of(keeper) == "T")


def put_in_place(name: str, make: Callable[[Path], None]) -> Callable[[Afflicted], None]:
    """Something else in the place of a file of ours."""

    def act(server: Afflicted) -> None:
        path = server.run / name
        path.unlink(missing_ok=True)
        make(path)

    return act


def remove_tmpdir(server: Afflicted) -> None:
    shutil.rmtree(server.supervise.tmp)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Row(NamedTuple):
    """A fault, what is told of it (a text, in exactly one line; None for nothing), whether outcome.json is there."""

    harm: Callable[[Afflicted], None]
    told: str | None
    outcome: bool = True
    at_once: bool = True


ROWS = {
    "disk full": Row(fill_the_disk, "No space left", outcome=False),
    "state read-only": Row(make_it_read_only, "Read-only", outcome=False, at_once=False),
    "attempt removed": Row(remove("r/attempts/0001"), "were removed"),
    "descriptors used up": Row(use_up_descriptors, "Too many open files"),
    "keeper stopped": Row(stop_the_keeper, "the keeper is stopped"),
    "TMPDIR removed": Row(remove_tmpdir, None),
}


@pytest.mark.parametrize("name", ROWS)
def test_the_server_goes_on(afflict: Afflict, name: str) -> None:
    row = ROWS[name]
    server = afflict(tmpfs="2m" if row.harm is fill_the_disk else None)
    row.harm(server)
    if row.told is not None and row.at_once:
        server.wait_said(row.told)
    server.chatter()
    server.serves()
    server.stop()
    assert server.times_said("warning") == (row.told is not None) + (row.harm is fill_the_disk), server.said
    assert row.told is None or server.times_said(row.told) == 1, server.said
    assert (server.attempt / "outcome.json").is_file() == row.outcome
    if row.outcome:
        assert json.loads((server.attempt / "outcome.json").read_text())["verified"] is True


def test_what_was_logged_is_not_lost_with_the_log(afflict: Afflict) -> None:
    server = afflict(behaviour=("--say", "written before"))
    shutil.rmtree(server.root)
    server.wait_said("were removed")
    wait_until((server.run / "run.json").exists)
    assert json.loads((server.run / "run.json").read_text())["state"] == "ready"
    assert server.verb("status", "r").returncode == 0
    server.chatter()
    server.stop()
    log = (server.attempt / "server.log").read_text()
    assert "written before" in log
    assert log.count("GET /health") >= 20


def test_files_in_whose_place_something_else_stands(afflict: Afflict) -> None:
    server = afflict()
    for name, make in {
        "run.json": Path.mkdir,
        "events.jsonl": os.mkfifo,
        "slate.json": Path.mkdir,
        "supervise.log": os.mkfifo,
        "attempts/0001/outcome.json": Path.mkdir,
        "attempts/0001/server.log.map": os.mkfifo,
    }.items():
        (server.run / name).unlink(missing_ok=True)
        make(server.run / name)
    server.chatter()
    server.serves()
    server.stop()
    for text in ("run.json is damaged", "outcome.json is damaged", "is no regular file"):
        assert server.times_said(text) == 1, server.said
    assert json.loads((server.attempt / "outcome.json").read_text())["verified"] is True
    assert (server.attempt / "outcome.json.damaged-1").is_dir()


HALVES = (b"", b'{"version": 1, "attempt":', b"\xff\x00", b'{"attempt": 1e999, "id": [1]}')


@pytest.mark.parametrize("damage", ["halves", "pipes", "directories"])
def test_records_that_are_damaged_before_the_start(afflict: Afflict, supervise: Supervise, damage: str) -> None:
    run = supervise.state / "supervise/r"
    (run / "attempts/0001").mkdir(parents=True)
    names = ["run.json", "sequence", "attempts/0001/attempt.json", "attempts/0001/outcome.json"]
    if damage == "halves":
        for name, half in zip(names, HALVES, strict=True):
            (run / name).write_bytes(half)
    else:
        names += ["events.jsonl", "keeper.log", "latest"]
        for name in names:
            os.mkfifo(run / name) if damage == "pipes" else (run / name).mkdir()
    server = afflict()
    server.serves()
    server.stop()
    assert server.times_said("is damaged") == len(names), server.said
    aside = sorted(f"{Path(name).name}.damaged-1" for name in names)
    assert sorted(path.name for path in run.rglob("*.damaged-*")) == aside
    assert json.loads((run / "attempts/0002/outcome.json").read_text())["verified"] is True


def test_two_of_one_run_cannot_start_although_the_lock_was_removed(afflict: Afflict) -> None:
    server = afflict()
    (server.run / "lock").unlink()
    second = server.verb("--name", "r", "--", "sleep", "600")
    assert second.returncode == 94, second.stderr
    assert f"{server.pid}" in second.stderr
    server.serves()
    stopped = server.verb("stop", "r")
    assert stopped.returncode == 0, stopped.stderr
    server.expect_end()


def test_a_deadline_that_passed_while_nobody_could_look_is_none(afflict: Afflict, supervise: Supervise) -> None:
    server = afflict("--ready-timeout", "3", behaviour=("--load-s", "1"), wait=False)
    wait_until(lambda: supervise.runs() and supervise.status()["leader"], failure=lambda: server.said)
    os.kill(server.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(server.pid) == "T")
    wait_until(server.answers)
    over = time.monotonic() + 4.5
    wait_until(lambda: time.monotonic() > over)
    os.kill(server.pid, signal.SIGCONT)
    server.wait_ready()
    server.serves()
    server.stop()
    assert server.times_said("stood still") == 1, server.said


def test_a_record_of_another_boot_is_nobody_here(afflict: Afflict, supervise: Supervise) -> None:
    run = supervise.state / "supervise/r"
    (run / "attempts/0001").mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as decoy:
        identity = procfs.identify(decoy.pid)
        assert identity is not None
        host = procfs.host_id()._asdict() | {"boot_id": "00000000-0000-0000-0000-000000000000"}
        roles = dict.fromkeys(("supervisor", "keeper", "guard", "leader"), identity._asdict())
        said = {"version": 1, "host": host, "attempt": 1, "state": "ready", **roles}
        (run / "run.json").write_text(json.dumps(said))
        record = said | {"id": "1" * 32, "members": [[*identity]], "segments": [], "runtime_dir": None}
        (run / "attempts/0001/attempt.json").write_text(json.dumps(record))
        server = afflict()
        server.serves()
        server.stop()
        assert decoy.poll() is None
        decoy.kill()


def test_no_thread_can_be_started(supervise_as_nobody: Supervise) -> None:
    """Root has no such limit."""
    server = Afflicted(supervise_as_nobody, namespace=False)
    try:
        lower = ["prlimit", f"--pid={server.pid}", "--nproc=0:"]
        subprocess.run(lower, check=True, user=NOBODY, group=NOBODY, extra_groups=[])
        server.chatter()
        server.serves()
        server.stop()
        assert server.times_said("no thread can be started") == 1, server.said
    finally:
        server.close()


def test_nobody_reads_what_it_says(afflict: Afflict) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4096)
    server = afflict(preexec_fn=lambda: os.dup2(writer, 2), wait=False)
    os.close(writer)
    wait_until(server.answers)
    server.chatter()
    server.serves()
    server.launched.send(signal.SIGTERM)
    assert server.launched.wait(40.0) in STOPPED
    os.close(reader)


def test_its_terminal_goes_away_and_it_was_told_to_stay(afflict: Afflict) -> None:
    """As under nohup(1)."""
    reader, writer = os.pipe()

    def detach() -> None:
        os.dup2(writer, 2)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    server = afflict(wait=False, preexec_fn=detach)
    os.close(writer)
    wait_until(server.answers)
    os.close(reader)
    server.launched.send(signal.SIGHUP)
    server.chatter()
    server.serves()
    server.launched.send(signal.SIGTERM)
    assert server.launched.wait(40.0) in STOPPED


def test_the_kernel_has_no_inotify_left(afflict: Afflict) -> None:
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while len(held) < 4096:
                held.append(kernel.watch_modifications("/"))
        with pytest.raises(OSError, match="Too many open files"):
            kernel.watch_modifications("/")
        server = afflict()
        server.serves()
    finally:
        for fd in held:
            os.close(fd)
    server.stop()


def test_the_wall_clock_steps(afflict: Afflict, supervise: Supervise, short_dir: Path) -> None:
    """It starts in 1970, and twenty years pass while it serves: nothing is decided by that clock."""
    shim, offset = build_clock(short_dir), short_dir / "offset"
    offset.write_text(f"-{int(time.time()) - 1000}")
    supervise.extra_env |= {"LD_PRELOAD": str(shim), "REALTIME_OFFSET": str(offset)}
    server = afflict("--restart", "on-failure", "--max-restarts", "3/1h")
    begun = json.loads((server.attempt / "attempt.json").read_text())["began"]
    assert begun < 10_000
    offset.write_text("630720000")
    server.chatter()
    server.serves()
    server.stop()
    assert server.times_said("warning") == 0, server.said
    outcome = json.loads((server.attempt / "outcome.json").read_text())
    assert outcome["verified"] is True
    assert 0 < outcome["ready_s"] < 60
    assert 0 <= outcome["stop_s"] < 60
    assert json.loads((server.run / "events.jsonl").read_text().splitlines()[-1])["time"] > time.time() + 6e8


def test_the_driver_of_the_gpus_hangs(afflict: Afflict, supervise: Supervise, short_dir: Path) -> None:
    built, state = library.build(short_dir), short_dir / "nvml"
    state.write_text("gpu GPU-a 1000 10\n")
    supervise.extra_env |= {"LD_LIBRARY_PATH": str(built), "NVML_STANDIN": str(state)}
    server = afflict()
    state.write_text("gpu GPU-a 1000 10\nhangs init\nhangs count\nhangs memory\n")
    server.chatter()
    server.serves()
    server.launched.send(signal.SIGTERM)
    assert server.launched.wait(60.0) in (*STOPPED, 95), server.said
    assert server.times_said("NVML did not answer") == 1, server.said
    assert "0 processes left" in server.said


def test_processes_of_others_are_hidden_and_the_host_is_renamed(supervise_as_nobody: Supervise) -> None:
    def enter() -> None:
        kernel.unshare(kernel.CLONE_NEWNS | _CLONE_NEWUTS)
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        subprocess.run(["mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
        os.setgid(NOBODY)
        os.setgroups([])
        os.setuid(NOBODY)

    server = Afflicted(supervise_as_nobody, namespace=False, preexec_fn=enter, user=None, group=None, extra_groups=None)
    try:
        hidden = ["nsenter", "-t", str(server.pid), "-m", "setpriv", *AS_NOBODY, "ls", "/proc/1/stat"]
        assert subprocess.run(hidden, capture_output=True, check=False).returncode
        subprocess.run(["nsenter", "-t", str(server.pid), "-u", "hostname", "elsewhere"], check=True)
        server.chatter()
        server.serves()
        server.stop()
    finally:
        server.close()


def build_clock(directory: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    target = directory / "realtime.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(CLOCK)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
