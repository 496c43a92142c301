"""What an attempt has left, read one by one, and believed only where it is of its kind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, cast

from supervise.attempts.log import pieces
from supervise.attempts.store import Attempt, Run
from supervise.diagnosis.engines import GENERIC
from supervise.diagnosis.whole import UNKNOWN_END, explain
from supervise.host import files
from supervise.host.archives import BROKEN
from supervise.host.archives import damage as archive_damage
from supervise.model.diagnosis import Diagnosis
from supervise.profiles.load import load_all
from supervise.profiles.own import with_own
from supervise.profiles.signatures import load_signatures
from supervise.text import plural

_LARGEST_EVENTS = 16 * 1024 * 1024


def read(attempt: Attempt, name: str, notes: list[str]) -> dict[str, Any] | None:
    """One of an attempt's JSON files.

    Args:
        attempt: whose.
        name: `attempt` or `outcome`.
        notes: what is wrong with it is added here.

    Returns:
        Its content, None if it is missing, unreadable or damaged.
    """
    said = attempt.read(name)
    if said is None and exists(attempt, name):
        notes.append(f"{name}.json{_refused(os.path.join(attempt.path, f'{name}.json'))}")
    elif said is None and name == "attempt":
        notes.append("attempt.json is missing")
    return said


def exists(attempt: Attempt, name: str) -> bool:
    """Whether one of an attempt's JSON files is there, in whatever state."""
    return os.path.lexists(os.path.join(attempt.path, f"{name}.json"))


def _refused(path: str) -> str:
    """Why nothing is known of what stands in a file."""
    try:
        files.read_regular(path, _LARGEST_EVENTS)
    except OSError as error:
        return f": {error.strerror}"
    except ValueError:
        pass
    return " is damaged; nothing in it is believed"


def from_log(attempt: Attempt, record: Mapping[str, Any] | None, notes: list[str], *, live: bool) -> Diagnosis | None:
    """What the log alone tells of an attempt of which nobody has written down how it ended.

    Args:
        attempt: whose log.
        record: its attempt.json.
        notes: what should be known of it is added here.
        live: whether the attempt still runs.

    Returns:
        The first cause, None if the log shows no failure.

    Raises:
        ProfileError: a profile or a set of signatures is damaged.
    """
    profiles = load_all()
    profile = profiles.get(text(record, "profile") or GENERIC, profiles[GENERIC])
    known, damaged = with_own(load_signatures(profile.signatures), os.environ)
    notes.extend(damaged)
    try:
        told = explain(log_pieces(attempt.log, notes), UNKNOWN_END, known, profiles, profile.name)
    except OSError as error:
        notes.append(f"server.log: {error.strerror}")
        return None
    if not told.diagnosis.fatal:
        return None
    if not live:
        notes.append("the cause was told from the log alone: there is no record of its end")
    return told.diagnosis


def log_pieces(path: str, damage: list[str]) -> Iterator[bytes]:
    """A log that its own supervise keeps within a bound, and what is in the archive beside it.

    Args:
        path: the log.
        damage: what is wrong with the archive is added here.

    Raises:
        OSError: it cannot be opened.
    """
    began = False
    try:
        for piece in pieces(path):
            began = True
            yield piece
    except BROKEN as error:
        if not began and isinstance(error, OSError):
            raise
        damage.append(archive_damage(error))


def moments(run: Run, number: int, notes: list[str]) -> list[tuple[float, str]]:
    """When an attempt entered which state, as events.jsonl has it.

    Args:
        run: its run.
        number: its number.
        notes: what is wrong with the file is added here.

    Returns:
        Seconds since the epoch and the name of the state, in order.
    """
    return all_moments(run, notes).get(number, [])


def all_moments(run: Run, notes: list[str]) -> dict[int, list[tuple[float, str]]]:
    """The same of every attempt of which there still is something, by its number."""
    found: dict[int, list[tuple[float, str]]] = {}
    damaged = 0
    for name in ("events.jsonl.1", "events.jsonl"):
        try:
            lines = files.read_regular(os.path.join(run.path, name), _LARGEST_EVENTS).splitlines()
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            notes.append(f"{name}: {getattr(error, 'strerror', None) or error}")
            continue
        for line in lines:
            event = _event(line)
            damaged += event is None
            if event and isinstance(event["attempt"], int):
                found.setdefault(event["attempt"], []).append((event["time"], event["state"]))
    if damaged:
        notes.append(f"events.jsonl: {plural(damaged, 'damaged line')}")
    return found


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or seconds(said.get("time")) is None or not isinstance(said.get("state"), str):
        return None
    return {"attempt": None, **said}


def seconds(value: object) -> float | None:
    """A value that is a number of seconds; JSON knows Infinity and NaN, no clock does."""
    return float(cast("float", value)) if type(value) in (int, float) and 0 <= cast("float", value) < 2**40 else None


def text(said: Mapping[str, Any] | None, name: str) -> str | None:
    """A value that is text."""
    value = said.get(name) if said else None
    return value if isinstance(value, str) else None


def words(said: Mapping[str, Any] | None, name: str) -> tuple[str, ...]:
    """A value that is a list of texts, or what of it is one."""
    value = said.get(name) if said else None
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list) else ()
