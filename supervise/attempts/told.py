"""What the files of the store say, believed only where every value is of its kind. Pure but for our own identity.

Anybody may have edited them, a disk may have lost half of one, and JSON knows Infinity, NaN and numbers of any size: a
file with one value that none of us writes is a damaged file, and none of its other values is trusted either.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

from supervise.host import procfs
from supervise.model.litter import FileId
from supervise.model.process import HostId, ProcessId
from supervise.model.restart import Identity
from supervise.model.snapshot import LOST_ID, Record

# A pid is an int of C, start ticks, devices and inodes have 64 bits (proc(5), inode(7)).
_PID = 2**31
_WORD = 2**64


def sound(said: dict[str, Any]) -> bool:
    """Whether each value that is read back from attempt.json, outcome.json or run.json is of its kind, or absent."""
    return all(_absent(name, said) or fits(said[name]) for name, fits in _KINDS.items())


def record(run: str, number: int, log: str, said: dict[str, Any]) -> Record | None:
    """A record from attempt.json; one that makes no sense proves nothing and is passed over.

    Args:
        run: the name of its run.
        number: of the attempt.
        log: the path of its log.
        said: a sound file's content.
    """
    if not sound(said) or not isinstance(said.get("id"), str) or not said.get("host"):
        return None
    return Record(
        run=run,
        attempt=number,
        marker_id=said["id"],
        host=HostId(said["host"]["boot_id"], said["host"]["pid_namespace"]),
        supervisor=_process_id(said.get("supervisor")),
        keeper=_process_id(said.get("keeper")),
        leader=_process_id(said.get("leader")),
        segments=tuple(FileId(dev, ino) for dev, ino in said.get("segments", ())),
        runtime_dir=said.get("runtime_dir"),
        members=tuple(ProcessId(pid, ticks) for pid, ticks in said.get("members", ())),
        guard=_process_id(said.get("guard")),
        cgroup=said.get("cgroup"),
        log=log,
    )


def instead(number: int, state: dict[str, Any] | None) -> dict[str, Any]:
    """What can still be known of an attempt whose attempt.json is lost or damaged: who runs in it, if run.json tells.

    Its log proves members as ever; its marker, whose id nobody knows any more, proves nobody.
    """
    known = state if state and state.get("attempt") == number and state.get("host") else {}
    return {"host": procfs.host_id()._asdict(), **known, "id": LOST_ID, "segments": [], "members": []}


def identity(outcome: dict[str, Any]) -> Identity:
    """What tells the failure in a sound outcome.json from others; outcomes of earlier versions know less of it."""
    cause = outcome.get("cause") or {}
    return Identity(*(cause.get(name) for name in Identity._fields))


def _absent(name: str, said: dict[str, Any]) -> bool:
    return name not in said or (said[name] is None and name not in _LISTS)


def _process_id(said: dict[str, Any] | None) -> ProcessId | None:
    return ProcessId(said["pid"], said["ticks"]) if said else None


def _below(limit: int, least: int = 0) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value < limit


def _text(value: object) -> bool:
    """A string that can be printed: JSON can spell halves of characters that no encoding has."""
    return isinstance(value, str) and _encodes(value, "strict")


def _path(value: object) -> bool:
    """An absolute path, whatever bytes it is made of."""
    return isinstance(value, str) and os.path.isabs(value) and "\0" not in value and _encodes(value, "surrogateescape")


def _encodes(text: str, errors: str) -> bool:
    try:
        text.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def _truth(value: object) -> bool:
    return isinstance(value, bool)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _pairs(first: int, second: int) -> Callable[[object], bool]:
    fits = (_below(first), _below(second))

    def pair(value: object) -> bool:
        return isinstance(value, list) and len(value) == 2 and fits[0](value[0]) and fits[1](value[1])

    return lambda value: isinstance(value, list) and all(map(pair, value))


def _host(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == set(HostId._fields)
        and _text(value["boot_id"])
        and _below(_WORD)(value["pid_namespace"])
    )


def _process(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == set(ProcessId._fields)
        and _below(_PID, 1)(value["pid"])
        and _below(_WORD)(value["ticks"])
    )


def _cause(value: object) -> bool:
    names = (*Identity._fields, "meaning")
    return isinstance(value, dict) and all(value.get(name) is None or _text(value[name]) for name in names)


def _ended(value: object) -> bool:
    return (
        isinstance(value, dict)
        and _below(256, -128)(value.get("exit_status"))
        and (value.get("why") is None or _text(value["why"]))
    )


def _moment(value: object) -> bool:
    """Seconds since the epoch; JSON knows Infinity and NaN, no clock does."""
    return type(value) in (int, float) and 0 <= cast("float", value) < _WORD


def _phases(value: object) -> bool:
    return isinstance(value, dict) and all(_text(name) and _moment(seconds) for name, seconds in value.items())


# Whoever reads these goes through them.
_LISTS = ("segments", "members", "tiers", "survivors")
_KINDS: dict[str, Callable[[object], bool]] = {
    "id": _text,
    "host": _host,
    "supervisor": _process,
    "keeper": _process,
    "leader": _process,
    "guard": _process,
    "segments": _pairs(_WORD, _WORD),
    "members": _pairs(_PID, _WORD),
    "runtime_dir": _path,
    "cgroup": _path,
    "attempt": _below(_PID),
    "state": _text,
    "phase": _text,
    "tiers": _texts,
    "outcome": _text,
    "exit_status": _below(256, -128),
    "verified": _truth,
    "failed": _truth,
    "first_failure": _truth,
    "survivors": lambda value: isinstance(value, list),
    "cause": _cause,
    "relaunch_at": _moment,
    "ready_eta": _moment,
    "ready_s": _moment,
    "phases": _phases,
    "ended": _ended,
}
