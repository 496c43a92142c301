"""Evidence of real processes: busy in a known function, stopped, ended, listening; with py-spy and without."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise import evidence
from supervise.evidence import Budget, Captured
from supervise.host import condition, files, procfs, pyspy
from supervise.model.process import Process, ProcessId
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus
from tests.support.family import Family
from tests.support.waiting import DEADLINE_S, wait_until

PYTHON = sys.executable
SECRET = "hidden-from-the-stacks"
NO_GPUS = Gpus(GpuStatus.ABSENT)
CHILD = """
import os, resource, signal, socket, sys

def tell(role, pid):
    with open(sys.argv[1], "a") as file:
        file.write(f"{role} {pid}\\n")

def the_known_function(role, depth):
    if depth:
        the_known_function(role, depth - 1)
    tell(role, os.getpid())
    while True:
        signal.pause()

role, traits = sys.argv[2], sys.argv[3].split(",")
if "core" in traits:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
if "listen" in traits:
    server = socket.create_server(("127.0.0.1", 0))
    tell("port", server.getsockname()[1])
if "device" in traits:
    device = open(sys.argv[4], "w")
if "zombie" in traits:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    tell("zombie", pid)
the_known_function(role, 200 if "deep" in traits else 0)
"""
Start = Callable[..., Process]


@pytest.fixture
def start(family: Family, short_dir: Path) -> Iterator[Start]:
    """Starts a Python that tells its role once it is in `the_known_function`; its stderr is the file of that name."""
    started = []

    def begin(role: str, *traits: str, faulthandler: bool = False, device: object = "") -> Process:
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1" if faulthandler else ""}
        command = [PYTHON, "-c", CHILD, str(family.path), role, ",".join(traits), str(device), "--api-key", SECRET]
        with open(short_dir / role, "wb") as stderr:
            started.append(subprocess.Popen(command, cwd=short_dir, env=environment, stderr=stderr))
        return now(family.wait_for(role))

    yield begin
    for popen in started:
        popen.kill()
        popen.wait(DEADLINE_S)


@pytest.fixture
def no_spy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A host without py-spy."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def spy() -> str:
    """The real py-spy, where it may look at a process that is not below it (Yama, ptrace(2))."""
    program = pyspy.find()
    if program is None:
        pytest.skip("py-spy is not installed")
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    if os.geteuid() != 0 and yama.exists() and yama.read_text().strip() != "0":
        pytest.skip("Yama allows py-spy for root only")
    return program


def now(target: ProcessId) -> Process:
    process = procfs.read(target.pid)
    assert process is not None
    assert process.id == target
    return process


def gone() -> Process:
    """A process that has ended and was reaped since it was read."""
    popen = subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE)
    process = procfs.read(popen.pid)
    popen.communicate(b"\n", timeout=DEADLINE_S)
    assert process is not None
    return process


def take(
    directory: Path, *members: Process, budget: Budget | None = None, **options: Any
) -> tuple[Captured, dict[str, Any]]:
    captured = evidence.capture(
        members, str(directory), "hang", gpus=options.pop("gpus", lambda: NO_GPUS), budget=budget or Budget(), **options
    )
    return captured, json.loads((directory / "hang.json").read_text())


def stop(process: Process) -> None:
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: now(process.id).state == "T")


def ended(pid: int) -> int:
    """How a child of ours ended (waitid(2)): CLD_KILLED, or CLD_DUMPED with a core. It stays a zombie."""
    result = wait_until(lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG))
    assert result.si_status == signal.SIGABRT
    return result.si_code


def test_the_stacks_name_the_function(start: Start, spy: str, tmp_path: Path) -> None:
    process = start("server", faulthandler=True)
    directory = tmp_path / "evidence"
    captured, report = take(directory, process)
    stacks = directory / f"hang-stacks-{process.pid}.txt"
    assert captured == ((str(directory / "hang.json"), str(stacks)), {process.pid}, ())
    assert "the_known_function" in stacks.read_text()
    assert SECRET not in stacks.read_text()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert sorted(os.listdir(directory)) == sorted(map(os.path.basename, captured.files))
    assert report["members"][0]["stacks"] == stacks.name
    assert report["truncated"] == []
    assert now(process.id).state in "SR"


def test_the_facts(start: Start, no_spy: None, family: Family, tmp_path: Path) -> None:
    process = start("server", "listen")
    wait_until(lambda: condition.wchan(process.pid))
    began = time.time()
    reading = Gpus(GpuStatus.READ, (GpuReading(0, "GPU-aa", "H", 10, 5, ((process.pid, 5),)),))
    captured, report = take(tmp_path, process, gpus=lambda: reading, title=lambda member: f"member {member.pid}")
    (member,) = report["members"]
    assert captured.files == (str(tmp_path / "hang.json"),)
    assert began - 1 <= report["time"] <= time.time()
    assert member["title"] == f"member {process.pid}"
    assert (member["pid"], member["ppid"], member["uid"]) == (process.pid, os.getpid(), os.geteuid())
    assert member["ports"] == [family.members["port"].pid]
    assert member["devices"] == []
    assert member["rss"] > 1 << 20
    assert member["wchan"]
    assert [thread["tid"] for thread in member["threads"]] == [process.pid]
    assert member["threads"][0] == {
        "tid": process.pid,
        "comm": process.comm,
        "state": "S",
        "wchan": member["wchan"],
    }
    assert member["stacks"] == "py-spy is not installed"
    assert report["gpus"]["devices"][0]["holders"] == [[process.pid, 5]]
    assert SECRET not in (tmp_path / "hang.json").read_text()


def test_without_py_spy_those_that_catch_sigabrt_can_yet_be_asked(start: Start, no_spy: None, tmp_path: Path) -> None:
    catching, other = start("server", faulthandler=True), start("other")
    captured, _ = take(tmp_path, catching, other, gone())
    assert captured.with_stacks == frozenset()
    assert captured.without == (catching.id,)


def test_asked_processes_print_their_stacks_and_leave_no_core(start: Start, short_dir: Path) -> None:
    process, control = (start(role, "core", faulthandler=True) for role in ("server", "control"))
    assert evidence.ask_for_stacks([process.id]) == (process.id,)
    assert ended(process.pid) == os.CLD_KILLED
    assert "in the_known_function" in (short_dir / "server").read_text()
    assert [name for name in os.listdir(short_dir) if "core" in name] == []
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pytest.skip("no process may leave a core here, the control has to")
    os.kill(control.pid, signal.SIGABRT)
    assert ended(control.pid) == os.CLD_DUMPED


def test_a_stopped_process_is_read_and_stays_stopped(start: Start, spy: str, tmp_path: Path) -> None:
    process = start("server")
    stop(process)
    captured, report = take(tmp_path, process)
    assert captured.with_stacks == {process.pid}
    assert "the_known_function" in Path(captured.files[1]).read_text()
    assert report["members"][0]["state"] == "T"
    assert now(process.id).state == "T"


def test_a_stopped_process_hears_that_it_is_asked(start: Start, short_dir: Path) -> None:
    process = start("server", faulthandler=True)
    stop(process)
    assert evidence.ask_for_stacks([process.id]) == (process.id,)
    assert ended(process.pid) == os.CLD_KILLED
    assert "in the_known_function" in (short_dir / "server").read_text()


def test_who_does_not_catch_sigabrt_is_not_asked(start: Start, family: Family) -> None:
    process = start("server", "zombie")
    reused = ProcessId(process.pid, process.id.ticks + 1)
    assert evidence.ask_for_stacks([process.id, reused, family.wait_for("zombie"), gone().id]) == ()
    assert now(process.id).state in "SR"


@pytest.mark.parametrize("state", ["zombie", "gone", "reused"])
def test_the_ended_have_no_stacks(start: Start, family: Family, tmp_path: Path, state: str) -> None:
    if state == "zombie":
        start("server", "zombie")
        process = now(family.wait_for("zombie"))
    elif state == "gone":
        process = gone()
    else:
        process = start("server", faulthandler=True)
        process = Process(ProcessId(process.pid, process.id.ticks + 1), 1, 1, 1, "S", "x", 0)
    captured, report = take(tmp_path, process)
    assert captured == ((str(tmp_path / "hang.json"),), frozenset(), ())
    assert report["members"][0]["state"] == ("Z" if state == "zombie" else "gone")
    assert report["members"][0]["stacks"] == "it has ended"
    assert report["truncated"] == []


def test_no_time_at_all(start: Start, tmp_path: Path) -> None:
    process = start("server", faulthandler=True)
    asked: list[int] = []
    captured, report = take(tmp_path, process, budget=Budget(seconds=0), gpus=lambda: asked.append(1) or NO_GPUS)
    assert captured == ((str(tmp_path / "hang.json"),), frozenset(), (process.id,))
    assert report["truncated"] == ["not reached in time: 1 process"]
    assert (report["members"], report["gpus"], asked) == ([], None, [])


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(members=1), "over the limit: 1 process"),
        (Budget(size=0), "did not fit into the size: 2 processes"),
        (Budget(size=6000), "the stacks of pid {pid} did not fit into the size"),
        (Budget(stack=64), "the stacks of pid {pid} were cut at 64 bytes"),
    ],
    ids=["members", "size", "size-of-stacks", "stack"],
)
def test_a_spent_budget_is_told(start: Start, tmp_path: Path, spy: str, budget: Budget, said: str) -> None:
    members = [start("one", "deep"), start("two", "deep")]
    captured, report = take(tmp_path, *members, budget=budget)
    assert any(said.format(pid=member.pid) in report["truncated"] for member in members), report["truncated"]
    if budget.size:
        assert sum(map(os.path.getsize, captured.files)) <= budget.size
    if budget.stack == 64:
        assert {os.path.getsize(path) for path in captured.files[1:]} == {64}


def test_a_driver_that_does_not_answer_is_left_behind(tmp_path: Path) -> None:
    release = threading.Event()
    began = time.monotonic()
    try:
        _, report = take(tmp_path, budget=Budget(seconds=0.3), gpus=lambda: release.wait(DEADLINE_S) and NO_GPUS)
    finally:
        release.set()
    assert time.monotonic() - began < DEADLINE_S / 2
    assert report["gpus"] == {"status": "failed", "devices": [], "error": "no answer in time"}


def test_a_driver_that_breaks_is_told(tmp_path: Path) -> None:
    _, report = take(tmp_path, gpus=lambda: 1 // 0)
    assert report["gpus"]["error"].startswith("ZeroDivisionError: ")


def test_nowhere_to_write(start: Start, tmp_path: Path) -> None:
    process = start("server", faulthandler=True)
    (tmp_path / "file").touch()
    captured = evidence.capture([process], str(tmp_path / "file" / "below"), "hang", gpus=lambda: NO_GPUS)
    assert captured == ((), frozenset(), (process.id,))


def test_a_disk_that_fills_up(start: Start, spy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("server", faulthandler=True)
    write = files.write_atomic

    def fill(path: str, text: str) -> None:
        if path.endswith(".txt"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(path, text)

    monkeypatch.setattr(files, "write_atomic", fill)
    captured, report = take(tmp_path, process)
    assert captured == ((str(tmp_path / "hang.json"),), frozenset(), (process.id,))
    assert report["members"][0]["stacks"] == "not written: No space left on device"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_py_spy_says_in_one_line_why_not(spy: str) -> None:
    popen = subprocess.Popen(["sleep", "60"])
    try:
        with pytest.raises(pyspy.PySpyError, match=r"^[^\n]*python[^\n]*$"):
            pyspy.dump(spy, popen.pid, DEADLINE_S)
    finally:
        popen.kill()
        popen.wait(DEADLINE_S)


def test_a_py_spy_that_hangs_is_killed(tmp_path: Path) -> None:
    """That nothing is left of it is what the check for leaks sees to."""
    program = script(tmp_path / "py-spy", f"echo $$ > {tmp_path / 'pid'}; exec sleep 60")
    with pytest.raises(pyspy.PySpyError, match=r"^py-spy did not answer in 1.0 s$"):
        pyspy.dump(program, os.getpid(), 1.0)
    assert procfs.identify(int((tmp_path / "pid").read_text())) is None


def test_a_py_spy_that_must_pause_the_process_may(tmp_path: Path) -> None:
    printed = r"Process 1: vllm --api-key\nThread \nPython v3.12 (x)\n\nThread 1 (idle)\n    f (a.py:1)\n"
    refuse = 'case "$*" in *--nonblocking*) printf "Process 1: x\\nThread 2\\n"; echo "Error: no" >&2; exit 1;; esac'
    program = script(tmp_path / "py-spy", f'{refuse}\nprintf "{printed}"')
    assert pyspy.dump(program, 1, DEADLINE_S) == "Python v3.12 (x)\n\nThread 1 (idle)\n    f (a.py:1)\n"


def test_a_py_spy_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "py-spy").touch(0o644)
    with pytest.raises(pyspy.PySpyError, match="Permission denied"):
        pyspy.dump(str(tmp_path / "py-spy"), os.getpid(), DEADLINE_S)


def test_py_spy_is_found_beside_python_and_in_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside, elsewhere = tmp_path / "beside", tmp_path / "elsewhere"
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(elsewhere))
    assert pyspy.find() is None
    elsewhere.mkdir()
    assert pyspy.find() is None
    in_path = script(elsewhere / "py-spy", "")
    assert pyspy.find() == in_path
    beside.mkdir()
    assert pyspy.find() == in_path
    assert pyspy.find() != script(beside / "py-spy", "")
    assert pyspy.find() == str(beside / "py-spy")


def test_signals_that_are_caught(start: Start) -> None:
    process = start("server", faulthandler=True)
    assert condition.catches(process.pid, signal.SIGABRT) is True
    assert condition.catches(process.pid, signal.SIGINT) is True
    assert condition.catches(process.pid, signal.SIGTERM) is False


def test_devices_that_are_held(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "_DEVICES", (str(tmp_path / "nvidia"),))
    process = start("server", "device", device=tmp_path / "nvidia0")
    assert condition.devices(process.pid) == (str(tmp_path / "nvidia0"),)


@pytest.mark.root
def test_the_kernel_stack(start: Start) -> None:
    process = start("server")
    wait_until(lambda: re.search("pause", condition.kernel_stack(process.pid) or ""))


@pytest.mark.parametrize("reader", ["status", "wchan", "kernel_stack", "rss", "threads", "devices", "ports"])
def test_the_vanished_tell_nothing(reader: str) -> None:
    assert getattr(condition, reader)(gone().pid) is None


def test_the_vanished_catch_nothing() -> None:
    pid = gone().pid
    assert condition.catches(pid, signal.SIGABRT) is None
    assert condition.memory_events(pid) is None


V2 = "30 23 0:28 {root} {top} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "35 31 0:32 {root} {top} rw - cgroup cgroup rw,memory"
CPU = "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu"


@pytest.mark.parametrize(
    ("mount", "membership", "file"),
    [
        (V2.format(root="/", top="/cg"), "0::/a/b", "/cg/a/b/memory.events"),
        (V2.format(root="/", top="/cg"), "0::/a/b/no/controller (deleted)", "/cg/a/b/memory.events"),
        (V2.format(root="/", top="/cg"), "0::/elsewhere", None),
        (V2.format(root="/", top="/cg"), "0::/../a/b", None),
        (V2.format(root="/host/x", top="/cg"), "0::/host/x/a/b", "/cg/a/b/memory.events"),
        (V2.format(root="/host/x", top="/cg"), "0::/host/y", None),
        (V2.format(root="/", top=r"/c\040g"), "0::/", "/c g/memory.events"),
        (V1.format(root="/", top="/cg/memory"), "4:memory:/a\n1:cpu:/\n0::/", "/cg/memory/a/memory.oom_control"),
        (V1.format(root="/", top="/cg/memory"), "4:cpu,cpuacct:/a", None),
    ],
)
def test_memory_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, membership: str, file: str | None
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"{CPU}\n{mount}\n")
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *rest: real(table if "mountinfo" in str(path) else path, *rest))
    texts = {"/proc/7/cgroup": f"{membership}\n", file: "oom_kill 0\n"}
    monkeypatch.setattr(condition, "_text", texts.get)
    assert condition.memory_events(7) == (None if file is None else "oom_kill 0\n")


def test_memory_events_of_this_very_process() -> None:
    told = condition.memory_events(os.getpid())
    v1 = re.search(r"^\d+:(\w+,)*memory[,:]", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    if told is None and not (v1 and " - cgroup " in Path("/proc/self/mountinfo").read_text()):
        pytest.skip("no memory controller for this cgroup")
    assert re.search(r"^oom_kill \d+$", told or "", re.MULTILINE)
