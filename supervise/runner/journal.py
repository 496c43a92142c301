"""What is written down about a run while it lives: for `status`, for `stop`, and for the next start."""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervise.host import files, procfs, space
from supervise.lifecycle import Done, State
from supervise.model.exits import Exit
from supervise.runner.attempt import Opened, identities
from supervise.runner.report import unlaunched
from supervise.slate.serialise import to_json
from supervise.text import printable

if TYPE_CHECKING:
    from supervise.attempts.store import Run
    from supervise.model.diagnosis import Diagnosis, Fatal
    from supervise.model.litter import FileId
    from supervise.model.process import ProcessId
    from supervise.model.slate import SlateResult
    from supervise.model.tier import Tier, Tiers
    from supervise.report.console import Console

_UNAFFECTED = "the server is not affected, its records are"


class Journal:
    """Writes as long as there is something to write to; that there is not is said once, and never ends a server.

    Args:
        run: the run; its lock is held.
        console: where people read.
        keeper: identity of the keeper.
        guard: identity of its guard.
        tiers: what holds the group.
        what: what is about to be launched: see Memory.next.
    """

    def __init__(
        self, run: Run, console: Console, keeper: ProcessId, guard: ProcessId, tiers: Tiers, what: str | None = None
    ) -> None:
        self.opened: Opened | None = None
        self.tiers = tiers
        self._run, self._console, self._keeper, self._guard = run, console, keeper, guard
        self._what = what or "the launch"
        self._said: set[int | str] = set()
        self._last: dict[str, object] | None = None

    def enter(self, state: State, phase: str | None, fatal: Fatal | None = None, **more: object) -> None:
        """A new state: in run.json and in the history."""
        if isinstance(state, Done) and self.opened is None:
            more |= unlaunched(state, self._what)
        self.publish(state, phase, fatal, **more)
        self.append(state, fatal, **more)

    def publish(self, state: State, phase: str | None, fatal: Fatal | None = None, **more: object) -> None:
        """The live state, in run.json, with the cause once it is known, and more where there is more to say."""
        self._last = self._state(state, phase, **_cause(fatal), **more)
        self.write(self._run.write_state, self._last)

    def append(self, state: State, fatal: Fatal | None = None, **more: object) -> None:
        """The history, in events.jsonl."""
        number = self.opened.attempt.number if self.opened else None
        self.write(self._run.append_event, {"state": name_of(state), "attempt": number, **_cause(fatal), **more})

    def record(self) -> None:
        """The attempt, in attempt.json."""
        if self.opened is not None:
            self.opened.tiers = self.tiers
            self.write(self.opened.record)

    def launched(self, leader: ProcessId) -> None:
        """Whom the keeper has launched."""
        if self.opened is not None:
            self.opened.leader = leader
            self.record()

    def noted(self, members: Iterable[ProcessId], segments: Iterable[FileId]) -> None:
        """Who was seen in the group, and the shared memory that they use."""
        if self.opened is not None:
            self.opened.members, self.opened.segments = tuple(members), tuple(segments)
            self.record()

    def refused(self, tier: Tier, why: str) -> None:
        """A tier that was promised cannot be had after all."""
        self.tiers = self.tiers.without(tier, why)
        self._console.error(f"no {tier} tier: {why}")
        self.record()

    def slate(self, result: SlateResult | None) -> None:
        """The clean slate that the attempt began with, in its slate.json; in that of the run if there is none."""
        if self.opened is not None and result is not None:
            self.write(self.opened.attempt.write, "slate", to_json(result))
        elif result is not None:
            self.write(self._run.write_slate, to_json(result))

    def broken(self, error: BaseException) -> None:
        """Something of ours raised: say it in one line, and keep its traceback."""
        path = os.path.join(self._run.path, "supervise.log")
        with contextlib.suppress(OSError):
            files.append_line(path, "".join(traceback.format_exception(error)).rstrip())
        self._console.error(f"supervise itself failed: {type(error).__name__}: {error}; details in {path}")

    def gone(self, error: Exception, what: str) -> None:
        """We are about to leave for this reason: whoever asks for the run later shall not have to guess.

        Args:
            error: it is told to people by whoever catches it.
            what: what could not be done: "the relaunch".
        """
        ended = {"exit_status": int(Exit.INTERNAL), "why": printable(f"{what} failed: {error}")}
        with contextlib.suppress(OSError):
            self._run.write_state(self._state(Done(Exit.INTERNAL), None, ended=ended))

    def write(self, write: Callable[..., None], *arguments: object) -> None:
        """Write something down; where its directory was removed, or something else stands in its place, that is mended.

        Args:
            write: raises OSError if it could not.
            arguments: what it is called with.
        """
        try:
            try:
                write(*arguments)
            except FileNotFoundError:
                self._restore()
                write(*arguments)
            except IsADirectoryError as error:
                self._make_way(error)
                write(*arguments)
        except OSError as error:
            self.say(error.errno or 0, f"{self._run.path}: {error.strerror}; {_UNAFFECTED}")

    def blind(self, error: OSError) -> None:
        """Something could not be looked at (no descriptors, no memory): that says nothing about the server."""
        self.say(error.errno or 0, f"supervise itself: {error.strerror}; the server is not affected")

    def look(self) -> None:
        """See whether all is still there: nothing may be written for days, and then somebody asks for it."""
        if self.opened is None or self._last is None:
            return
        path = self.opened.attempt.path
        if not all(map(os.path.lexists, (self._state_path, self.opened.attempt.log, f"{path}/attempt.json"))):
            self.write(self._write_again)
        elif self._run.read_state() is None:
            self.write(self._repair)
        elif space.is_full(path):
            self.say(errno.ENOSPC, f"{path}: {os.strerror(errno.ENOSPC)}; the server runs on, what it logs is lost")

    @property
    def _state_path(self) -> str:
        return os.path.join(self._run.path, "run.json")

    def _write_again(self) -> None:
        """What there is to be known of what runs.

        Raises:
            OSError: it could not be written.
        """
        self.say("removed", f"{self._run.path}: files of ours were removed; {_UNAFFECTED}, and written again")
        if self.opened is not None:
            self.opened.record()
        if self._last is not None:
            self._run.write_state(self._last)

    def _repair(self) -> None:
        """Who would ask, or stop it, by a run.json that is damaged would take the run for dead.

        Raises:
            OSError: it could not be written.
        """
        from supervise.attempts import damage

        if (told := damage.examined(self._state_path, damage.is_json)) is not None and self._last is not None:
            self.say("run.json", told)
            self._run.write_state(self._last)

    def _restore(self) -> None:
        self._run.restore(self.opened.attempt if self.opened else None)
        self._write_again()

    def _make_way(self, error: OSError) -> None:
        from supervise.attempts import damage

        path = error.filename
        if not isinstance(path, str) or os.path.dirname(path) not in (self._run.path, self._attempt_path):
            raise error
        self.say(path, damage.set_aside(path))

    @property
    def _attempt_path(self) -> str | None:
        return self.opened.attempt.path if self.opened else None

    def say(self, what: int | str, text: str) -> None:
        """Tell people of a fault of our own; once is enough.

        Args:
            what: the fault, as an error number where it is one.
            text: the line.
        """
        if what not in self._said:
            self._said.add(what)
            self._console.error(text)

    def _state(self, state: State, phase: str | None, **more: object) -> dict[str, object]:
        opened = self.opened
        return {
            "run": self._run.name,
            "state": name_of(state),
            "attempt": opened.attempt.number if opened else None,
            "phase": phase,
            "tiers": list(self.tiers.held),
            **more,
            **identities(procfs.self_id(), self._guard, self._keeper, opened.leader if opened else None),
        }


def _cause(fatal: Fatal | None) -> dict[str, object]:
    """What a living server's log has said, as far as it is known then; outcome.json has the last word."""
    if fatal is None:
        return {}
    line = fatal.line
    cause = {"text": fatal.text, "line": line.number, "process": line.process, "rank": line.rank}
    return {"cause": {**cause, "signature": fatal.signature, "meaning": fatal.meaning}}


def cause_of(diagnosis: Diagnosis) -> dict[str, object]:
    """The same of a server that is gone."""
    names = ("text", "line", "process", "rank", "signature", "meaning")
    return {"cause": {name: getattr(diagnosis, name) for name in names}}


def name_of(state: State) -> str:
    """A state's name in files."""
    return type(state).__name__.lower()
