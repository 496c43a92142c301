"""Evidence of a hung or fatally wounded server, taken before its group is ended: afterwards nobody can tell."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from supervise import text
from supervise.host import condition, files, nvml, procfs, pyspy, signals, sockets
from supervise.host.beside import Beside
from supervise.model.process import Process, ProcessId
from supervise.model.snapshot import Gpus

_VERSION = 1
_TITLE, _REASON = 200, 160
_ENDED, _LATE = "it has ended", "no time was left"
# One process that py-spy cannot cope with must not cost all others their turn.
_DUMP_S = 3.0
# What a member's line about its stacks may yet add to the JSON.
_RESERVE = 2 * _REASON


@dataclass(frozen=True, slots=True)
class Budget:
    """What evidence may cost.

    Seconds in all; bytes in all (the GPUs' come on top, some hundred each); processes; bytes of one process's stacks.
    """

    seconds: float = 8.0
    size: int = 8 << 20
    members: int = 64
    stack: int = 64 << 10


class Captured(NamedTuple):
    """What was taken.

    `files` are the paths written, `with_stacks` the pids whose stacks are among them. `without` are the members that
    have none and catch SIGABRT: faulthandler is on in them, `ask_for_stacks` makes them dump by themselves.
    """

    files: tuple[str, ...]
    with_stacks: frozenset[int]
    without: tuple[ProcessId, ...]


_BUDGET = Budget()


def capture(
    members: Sequence[Process],
    directory: str,
    name: str,
    *,
    gpus: Callable[[], Gpus] = nvml.read,
    budget: Budget = _BUDGET,
    title: Callable[[Process], str] = attrgetter("title"),
) -> Captured:
    """Write down what can be told of a group from outside; it harms no member.

    NAME.json has the facts of all members, with up to 128 threads each, and of the GPUs, NAME-stacks-PID.txt the stacks
    of a member that py-spy could read. `truncated` says what the budget left out, and is empty if that is nothing.

    Args:
        members: who belongs to the group; the first ones matter most.
        directory: where to write; made, for us alone, if it is missing.
        name: how the names of the files begin; files of the same name are replaced.
        gpus: reads the GPUs; a driver that does not answer is not waited for longer than the budget.
        budget: what it may cost.
        title: what to call a member; the place to hide the secrets of a command line.

    Returns:
        What was written, which is less, and never an error, with a full disk or a closed directory.
    """
    collection = _Collection(directory, name, budget)
    driver = _Driver(gpus) if budget.seconds > 0 else None
    collection.look(members, title)
    # What is known by now is safe if we are ended over the rest.
    if collection.save():
        collection.read_stacks()
    collection.report["gpus"] = driver.answer(collection.seconds_left()) if driver else None
    collection.save()
    return Captured(tuple(collection.files), frozenset(collection.with_stacks), collection.without(members))


def ask_for_stacks(targets: Iterable[ProcessId]) -> tuple[ProcessId, ...]:
    """Have processes print the stacks of all their threads where their stderr goes, by SIGABRT. It ends them.

    Python does so with faulthandler, also when the main thread is inside C. Core files are switched off before:
    those of a server with its model in memory fill a disk. A stopped process is continued, else it would not hear.

    Args:
        targets: the processes; those that do not catch SIGABRT would only die of it and are skipped.

    Returns:
        Those that the signal was delivered to.
    """
    return tuple(target for target in targets if _ask(target))


def _ask(target: ProcessId) -> bool:
    process = _now(target)
    if process is None or not condition.catches(target.pid, signal.SIGABRT) or not _switch_off_core(target.pid):
        return False
    try:
        delivered = signals.send(target, signal.SIGABRT) is signals.Sent.DELIVERED
        if delivered and process.state == "T":
            signals.send(target, signal.SIGCONT)
    except OSError:
        return False
    return delivered


def _switch_off_core(pid: int) -> bool:
    """Whether a process will leave no core file.

    A soft limit of 1 byte is too small for a file, and the one value that also keeps the kernel from piping the core to
    a program; 0 does not (core(5); fs/coredump.c, `cprm.limit == 1`). A hard limit of 0 can only be raised by root; the
    process leaves no file then either, and what its host has the core piped to was told the limit.
    """
    soft = resource.RLIM_INFINITY
    try:
        soft, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        resource.prlimit(pid, resource.RLIMIT_CORE, (1, hard or 1))
    except (OSError, ValueError):
        return soft == 0
    return True


class _Collection:
    """Evidence as it grows, within its budget."""

    def __init__(self, directory: str, name: str, budget: Budget) -> None:
        self._directory, self._name, self._budget = directory, name, budget
        self._began = time.monotonic()
        self._living: list[tuple[Process, dict[str, Any]]] = []
        self._members: list[dict[str, Any]] = []
        self._truncated: list[str] = []
        self._written = 0
        self.files: list[str] = []
        self.with_stacks: set[int] = set()
        self.report: dict[str, Any] = {
            "version": _VERSION,
            "time": round(time.time(), 3),
            "truncated": self._truncated,
            "members": self._members,
            "memory_events": None,
            "gpus": None,
        }

    def seconds_left(self) -> float:
        """What is left of the time, in seconds, never negative."""
        return max(0.0, self._budget.seconds - (time.monotonic() - self._began))

    def look(self, members: Sequence[Process], title: Callable[[Process], str]) -> None:
        """Take the kernel's facts of the members: cheap, so before all stacks."""
        chosen = members[: self._budget.members]
        self._leave_out("over the limit", len(members) - len(chosen))
        listening = sockets.listening_ports() if self.seconds_left() else {}
        self._written = _RESERVE
        for at, process in enumerate(chosen):
            if not self.seconds_left():
                self._leave_out("not reached in time", len(chosen) - at)
                break
            facts, lives = _facts(process, text.shorten(title(process), _TITLE), listening)
            size = len(json.dumps(facts, indent=3)) + _RESERVE
            if self._written + size > self._budget.size:
                self._leave_out("did not fit into the size", len(chosen) - at)
                break
            self._written += size
            self._members.append(facts)
            if lives:
                self._living.append((process, facts))
                self.report["memory_events"] = self.report["memory_events"] or condition.memory_events(process.pid)

    def read_stacks(self) -> None:
        """Have py-spy read the stacks of all that live, and say where there are none why."""
        program = pyspy.find()
        for process, facts in self._living:
            facts["stacks"] = text.shorten(self._stacks(program, process), _REASON)
        self._leave_out("no time for the stacks of", sum(facts["stacks"] == _LATE for _, facts in self._living))

    def save(self) -> bool:
        """Write the JSON as it is now; False if that cannot be."""
        path = os.path.join(self._directory, f"{self._name}.json")
        try:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            files.write_json(path, self.report)
        except OSError as error:
            for _, facts in self._living:
                facts["stacks"] = facts["stacks"] or f"not written: {error.strerror}"
            return False
        if path not in self.files:
            self.files.insert(0, path)
        return True

    def without(self, members: Sequence[Process]) -> tuple[ProcessId, ...]:
        """Those that can yet be asked for their stacks, members that there was no time for included."""
        missing = (process.id for process in members if process.pid not in self.with_stacks)
        return tuple(target for target in missing if _now(target) and condition.catches(target.pid, signal.SIGABRT))

    def _stacks(self, program: str | None, process: Process) -> str:
        """The name of the file, or why there is none."""
        if program is None:
            return "py-spy is not installed"
        if not self.seconds_left():
            return _LATE
        if _now(process.id) is None:
            return _ENDED
        try:
            printed = pyspy.dump(program, process.pid, min(self.seconds_left(), _DUMP_S))
        except (pyspy.PySpyError, OSError) as error:
            return str(error)
        stacks = printed.encode(errors="replace")
        if len(stacks) > self._budget.stack:
            stacks = stacks[: self._budget.stack]
            self._truncated.append(f"the stacks of pid {process.pid} were cut at {self._budget.stack} bytes")
        if self._written + len(stacks) > self._budget.size:
            self._truncated.append(f"the stacks of pid {process.pid} did not fit into the size")
            return "no space was left in the budget"
        return self._write_stacks(f"{self._name}-stacks-{process.pid}.txt", process.pid, stacks)

    def _write_stacks(self, name: str, pid: int, stacks: bytes) -> str:
        path = os.path.join(self._directory, name)
        try:
            files.write_atomic(path, stacks.decode(errors="ignore"))
        except OSError as error:
            return f"not written: {error.strerror}"
        self._written += len(stacks)
        self.files.append(path)
        self.with_stacks.add(pid)
        return name

    def _leave_out(self, why: str, count: int) -> None:
        if count:
            self._truncated.append(f"{why}: {text.plural(count, 'process')}")


class _Driver:
    """A reading of the GPUs beside all else; a driver that never answers is left behind with its thread."""

    def __init__(self, gpus: Callable[[], Gpus]) -> None:
        self._reading: Beside[Gpus] | None = None
        with contextlib.suppress(OSError):
            self._reading = Beside(gpus)

    def answer(self, timeout_s: float) -> dict[str, Any]:
        """The reading as JSON, or that it failed."""
        if self._reading is None:
            return _failed("no thread can be started for it")
        if not self._reading.wait(timeout_s):
            return _failed("no answer in time")
        try:
            return asdict(self._reading.result())
        except Exception as error:  # noqa: BLE001 - whatever a broken driver makes its bindings raise is evidence too
            return _failed(f"{type(error).__name__}: {error}")


def _failed(error: str) -> dict[str, Any]:
    return {"status": "failed", "devices": [], "error": error}


def _now(target: ProcessId) -> Process | None:
    """The process as it is now; None if it has ended, whoever has its pid, or if nothing can be told."""
    try:
        process = procfs.read(target.pid, cmdline=False, environ=False)
    except OSError:
        return None
    return process if process is not None and process.id == target else None


def _facts(process: Process, title: str, listening: dict[int, int]) -> tuple[dict[str, Any], bool]:
    """What the kernel says of a member now, and whether there is anything left to read stacks from."""
    pid = process.pid
    facts: dict[str, Any] = {"pid": pid, "ticks": process.id.ticks, "title": title, "stacks": None}
    now = _now(process.id)
    if now is None:
        return {**facts, "state": "gone", "stacks": _ENDED}, False
    found = condition.threads(pid)
    facts |= {
        "state": now.state,
        "ppid": now.ppid,
        "uid": now.uid,
        "wchan": condition.wchan(pid),
        "kernel_stack": condition.kernel_stack(pid) if now.state == "D" else None,
        "rss": condition.rss(pid),
        "devices": condition.devices(pid),
        "ports": condition.ports(pid, listening),
        "threads": None if found is None else [thread._asdict() for thread in found],
    }
    return facts if not now.gone else {**facts, "stacks": _ENDED}, not now.gone
