"""What is written down about a run while it lives: for `status`, for `stop`, and for the next start."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from supervise.host import procfs
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


class Journal:
    """Writes as long as there is something to write to; a full disk is said once and never ends a server that runs.

    Args:
        run: the run; its lock is held.
        console: where people read.
        keeper: identity of the keeper.
        guard: identity of its guard.
        tiers: what holds the group.
        what: what is about to be launched: see Memory.next.
    """

    def __init__(
        self, run: Run, console: Console, keeper: ProcessId, guard: ProcessId, tiers: Tiers, what: str = "the launch"
    ) -> None:
        self.opened: Opened | None = None
        self.tiers = tiers
        self._run, self._console, self._keeper, self._guard, self._what = run, console, keeper, guard, what
        self._failed = False

    def enter(self, state: State, phase: str | None, fatal: Fatal | None = None, **more: object) -> None:
        """A new state: in run.json and in the history."""
        if isinstance(state, Done) and self.opened is None:
            more |= unlaunched(state, self._what)
        self.publish(state, phase, fatal, **more)
        self.append(state, fatal, **more)

    def publish(self, state: State, phase: str | None, fatal: Fatal | None = None, **more: object) -> None:
        """The live state, in run.json, with the cause once it is known, and more where there is more to say."""
        self.write(self._run.write_state, self._state(state, phase, **_cause(fatal), **more))

    def append(self, state: State, fatal: Fatal | None = None, **more: object) -> None:
        """The history, in events.jsonl."""
        number = self.opened.attempt.number if self.opened else None
        self._run.append_event({"state": name_of(state), "attempt": number, **_cause(fatal), **more})

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
        try:
            with open(path, "a", encoding="utf-8") as file:
                traceback.print_exception(error, file=file)
        except OSError:
            pass
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
        """Write something down."""
        try:
            write(*arguments)
        except OSError as error:
            if not self._failed:
                self._console.error(f"{self._run.path}: {error.strerror}; the server is not affected, its records are")
            self._failed = True

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
