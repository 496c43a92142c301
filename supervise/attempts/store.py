"""The store of runs and attempts on disk. Every write is atomic, every JSON file carries a `version`.

<root>/<run>/lock                    held by supervise and by its keeper for as long as a group may exist
<root>/<run>/sequence                number of the newest attempt: numbering survives pruning and restarts
<root>/<run>/run.json                live state
<root>/<run>/events.jsonl            what happened, one object per line
<root>/<run>/slate.json              why the last launch that was refused was, and what had been done until then
<root>/<run>/latest                  link to the newest attempt
<root>/<run>/attempts/0007/          server.log, attempt.json, outcome.json, slate.json
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import time
from dataclasses import dataclass
from typing import Any

from supervise.attempts import locking, told
from supervise.attempts.pruning import Kept, Pruning, to_remove
from supervise.host import files, space
from supervise.model.restart import Identity
from supervise.model.snapshot import Record

VERSION = 1
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
# Nine digits: what is no attempt of ours must not make the next one's number.
_NUMBER = re.compile(r"[0-9]{1,9}")
_EVENTS_LIMIT = 4 * 1024 * 1024


class StoreError(Exception):
    """The state directory cannot be used; the text says which path and what to do."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt's directory."""

    run: str
    number: int
    path: str

    @property
    def log(self) -> str:
        """The one file that the server writes its output to."""
        return os.path.join(self.path, "server.log")

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write `attempt`, `outcome` or `slate` (.json), atomically."""
        files.write_json(os.path.join(self.path, f"{name}.json"), {"version": VERSION, **value})

    def read(self, name: str) -> dict[str, Any] | None:
        """Read it back; None if missing or damaged."""
        return _read(os.path.join(self.path, f"{name}.json"))


def _read(path: str) -> dict[str, Any] | None:
    said = files.read_json(path)
    return said if said is not None and told.sound(said) else None


class Run:
    """One named run's directory."""

    def __init__(self, root: str, name: str) -> None:
        self.name = name
        self.path = os.path.join(root, name)

    def create(self) -> None:
        """Make the directory, private to its owner.

        Raises:
            StoreError: it cannot be made or written.
        """
        if not RUN_NAME.fullmatch(self.name):
            raise StoreError(f"run name {self.name!r}: use 1 to 80 of the characters A-Z a-z 0-9 . _ -")
        try:
            files.make_private(os.path.dirname(self.path), self.name, "attempts")
        except OSError as error:
            raise StoreError(
                f"state directory {self.path}: {error.strerror}; set XDG_STATE_HOME to a writable place"
            ) from None

    def lock(self) -> int | None:
        """Take the run's lock without waiting: one group per run, ever.

        Returns:
            The descriptor to keep open, None if somebody else holds it.

        Raises:
            StoreError: the lock file cannot be opened.
        """
        try:
            return locking.take(os.path.join(self.path, "lock"), self.read_state)
        except OSError as error:
            raise StoreError(f"lock file in {self.path}: {error.strerror}") from None

    def examine(self) -> list[str]:
        """Put aside what is damaged, with the lock held and before anything else; sentences for people about it."""
        from supervise.attempts import damage

        newest = self.latest()
        return damage.of_run(self.path, newest.path if newest else None)

    def restore(self, attempt: Attempt | None) -> None:
        """Make directories again that somebody has removed: what is written from now on shall be found.

        Raises:
            OSError: they cannot be made.
        """
        last = [] if attempt is None else [os.path.basename(attempt.path)]
        files.make_private(os.path.dirname(self.path), self.name, "attempts", *last)
        if attempt is not None:
            files.write_atomic(os.path.join(self.path, "sequence"), f"{attempt.number}\n")
            self._point_latest_to(attempt.number)

    def open_attempt(self) -> Attempt:
        """Begin the next attempt: its directory, its empty log, and the `latest` link. Call it with the lock held.

        Raises:
            StoreError: the disk is full or the directory not writable; nothing half-made counts as an attempt.
        """
        from supervise.attempts import damage

        # While a run lives nobody looks at these two but who begins its next attempt.
        damage.examined(os.path.join(self.path, "sequence"), damage.is_number)
        damage.examined(os.path.join(self.path, "latest"), damage.is_link)
        try:
            number = max([self._sequence(), *self.numbers()], default=0) + 1
            files.write_atomic(os.path.join(self.path, "sequence"), f"{number}\n")
            attempt = self.attempt(number)
            os.mkdir(attempt.path, 0o700)
            try:
                os.close(os.open(attempt.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                self._point_latest_to(number)
            except OSError:
                self.forget(attempt)
                raise
        except OSError as error:
            remedy = "; make room, or set XDG_STATE_HOME to another place"
            raise StoreError(f"cannot begin an attempt in {self.path}: {error.strerror}{remedy}") from None
        return attempt

    def forget(self, attempt: Attempt) -> None:
        """Take back the newest attempt: it could not be begun, and nothing was launched in it."""
        files.remove_tree(attempt.path)
        if numbers := self.numbers():
            with contextlib.suppress(OSError):
                self._point_latest_to(numbers[-1])

    def attempt(self, number: int) -> Attempt:
        """The attempt of that number, whether or not it exists."""
        return Attempt(self.name, number, os.path.join(self.path, "attempts", f"{number:04d}"))

    def numbers(self) -> list[int]:
        """Numbers of all attempts still kept, ascending."""
        try:
            names = os.listdir(os.path.join(self.path, "attempts"))
        except OSError:
            return []
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def latest(self) -> Attempt | None:
        """The newest attempt, None before the first."""
        return self.attempt(numbers[-1]) if (numbers := self.numbers()) else None

    def records(self) -> list[Record]:
        """What its attempts without a verified end wrote down about themselves."""
        attempts = [self.attempt(number) for number in self.numbers()]
        left = (each for each in attempts if not (each.read("outcome") or {}).get("verified"))
        return [record for attempt in left if (record := _record(self, attempt))]

    def close_attempt(self, attempt: Attempt, outcome: dict[str, Any]) -> None:
        """Write an attempt's outcome; `failed` in it decides whether it begins a streak of failures.

        Raises:
            OSError: it could not be written.
        """
        before = [number for number in self.numbers() if number < attempt.number]
        previous = self.attempt(before[-1]).read("outcome") if before else None
        first = bool(outcome["failed"]) and not (previous or {}).get("failed", False)
        attempt.write("outcome", {**outcome, "first_failure": first})

    def recent_failures(self, before: int, most: int = 20) -> list[tuple[int, Identity]]:
        """What the last attempts before that one failed of, as far as they told: number and cause, newest first."""
        failed: list[tuple[int, Identity]] = []
        for number in [number for number in reversed(self.numbers()) if number < before][:most]:
            cause = told.identity(self.attempt(number).read("outcome") or {})
            if cause.known:
                failed.append((number, cause))
        return failed

    def write_state(self, state: dict[str, Any]) -> None:
        """Publish the live state for `status`, `stop` and the next start.

        Raises:
            OSError: it could not be written.
        """
        path, said = os.path.join(self.path, "run.json"), {"version": VERSION, **state}
        try:
            files.write_json(path, said)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not files.overwrite_json(path, said):
                raise

    def write_slate(self, slate: dict[str, Any]) -> None:
        """Keep the slate of a launch that was refused: there is no attempt whose slate.json it could be in."""
        said = {"version": VERSION, "time": round(time.time(), 3), **slate}
        files.write_json(os.path.join(self.path, "slate.json"), said)

    def read_state(self) -> dict[str, Any] | None:
        """The live state; None if missing or damaged."""
        return _read(os.path.join(self.path, "run.json"))

    def append_event(self, event: dict[str, Any]) -> None:
        """Add one line to events.jsonl.

        Raises:
            OSError: it could not be written.
        """
        path = os.path.join(self.path, "events.jsonl")
        if os.path.exists(path) and os.path.getsize(path) > _EVENTS_LIMIT:
            os.replace(path, f"{path}.1")
        files.append_line(path, json.dumps({"version": VERSION, "time": round(time.time(), 3), **event}))

    def prune(self, pruning: Pruning, *, running: int) -> list[int]:
        """Remove old attempts beyond the limits; returns the numbers removed."""
        doomed = to_remove([_weigh(self.attempt(number)) for number in self.numbers()], pruning, running=running)
        for number in doomed:
            files.remove_tree(self.attempt(number).path)
        return doomed

    def _sequence(self) -> int:
        try:
            said = files.read_regular(os.path.join(self.path, "sequence"), 32).decode("ascii").strip()
        except (OSError, ValueError):
            return 0
        return int(said) if _NUMBER.fullmatch(said) else 0

    def _point_latest_to(self, number: int) -> None:
        link = os.path.join(self.path, "latest")
        temporary = f"{link}.{os.getpid()}.tmp"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(os.path.join("attempts", f"{number:04d}"), temporary)
        os.replace(temporary, link)


class Store:
    """All runs of one state directory."""

    def __init__(self, root: str) -> None:
        self.root = root

    def run(self, name: str) -> Run:
        """The run of that name, whether or not it exists."""
        return Run(self.root, name)

    def runs(self) -> list[Run]:
        """All runs there are, by name.

        Raises:
            StoreError: they are not ours to see.
        """
        try:
            names = sorted(os.listdir(self.root))
        except PermissionError as error:
            raise StoreError(f"state directory {self.root}: {error.strerror}") from None
        except OSError:
            return []
        ours = [Run(self.root, name) for name in names if RUN_NAME.fullmatch(name)]
        return [run for run in ours if os.path.isdir(os.path.join(run.path, "attempts"))]

    def records(self) -> tuple[Record, ...]:
        """What all attempts without a verified end wrote down about themselves, of every run."""
        return tuple(record for run in self.runs() for record in run.records())


def _record(run: Run, attempt: Attempt) -> Record | None:
    said = attempt.read("attempt")
    record = told.record(run.name, attempt.number, attempt.log, said) if said else None
    return record or told.record(run.name, attempt.number, attempt.log, told.instead(attempt.number, run.read_state()))


def _weigh(attempt: Attempt) -> Kept:
    outcome = attempt.read("outcome")
    return Kept(attempt.number, space.taken(attempt.path), first_failure=bool(outcome and outcome.get("first_failure")))
