"""What the server's log tells while it runs: phases, the ready line, the first fatal line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from supervise.attempts.log import Bound, LogFile
from supervise.attempts.store import Attempt
from supervise.diagnosis.frames import Owners
from supervise.diagnosis.progress import ProgressTracker
from supervise.diagnosis.scanner import HURRIED, Scanner, SparseReader
from supervise.diagnosis.verdict import Diagnoser
from supervise.model.diagnosis import Diagnosis, End, Fatal, Line, Progress, SignatureSet
from supervise.model.profile import BEFORE_PHASES, Profile
from supervise.profiles.errors import ProfileError
from supervise.profiles.own import with_own
from supervise.profiles.signatures import load_signatures
from supervise.report.console import Console
from supervise.runner.watching import LogWatch

# Last words are few lines, or much that can be skimmed.
_CATCH_UP_S = 0.2
# Whoever has so many bytes to read is behind: a second's work if they have to be read in full.
_BEHIND = 2 * 1024 * 1024


class ServerLog:
    """Follows one attempt's log.

    Args:
        attempt: whose log.
        profile: what its lines mean.
        signatures: known failures.
        bound: how large the log may grow.
        clock: monotonic seconds.
        on_progress: called on news about start-up; True if a new phase began.
        on_ready_line: called once, when the log says that the server is up.
        on_fatal: called once, with the first line that says it cannot go on; see `forgive`.
        user: files and directories that the user works on.
        on_fault: called once if the log cannot be read, or not be bounded, with the reason.

    Raises:
        OSError: the log cannot be opened.
    """

    def __init__(
        self,
        attempt: Attempt,
        profile: Profile,
        signatures: SignatureSet,
        bound: Bound,
        clock: Callable[[], float],
        *,
        on_progress: Callable[[bool], None],
        on_ready_line: Callable[[], None],
        on_fatal: Callable[[Fatal], None],
        user: Sequence[str] = (),
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.progress: Progress | None = None
        self._began = {BEFORE_PHASES: clock()}
        self._clock = clock
        self._on_progress, self._on_ready_line, self._on_fatal = on_progress, on_ready_line, on_fatal
        self._tracker = ProgressTracker(profile.phases, profile.percents, profile.ready)
        self._diagnoser = Diagnoser(signatures, self._tracker, Owners(profile.packages, user))
        self._ready_said = False
        log = LogFile(attempt.log, bound)
        reader = SparseReader(
            lambda: Scanner.of(signatures, [profile]),
            lambda: self._diagnoser.open,
            plain=0,
            allowance=lambda: HURRIED if log.left > _BEHIND else None,
        )
        self._watch = LogWatch(log, reader, self._on_line, on_fault)

    @property
    def phase(self) -> str | None:
        """The phase that start-up is in."""
        return self.progress.phase if self.progress else None

    def phases(self, until: float) -> dict[str, float]:
        """Seconds that each phase took, in order, the last one up to `until` (monotonic)."""
        moments = [*self._began.values(), until]
        return {name: end - began for name, (began, end) in zip(self._began, pairwise(moments), strict=True)}

    def mute(self, *, asked: bool = False) -> None:
        """What comes after what has been written until now tells nothing.

        Args:
            asked: whether somebody asked for the stop: then nothing tells anything any more.
        """
        if asked:
            self._watch.drop()
        else:
            self._watch.end_here()

    def forgive(self) -> None:
        """What it has called fatal was not: it serves. The next such line is told again."""
        self._diagnoser.forgive()

    def catch_up(self) -> None:
        """Read what has been written until now, as far as that takes no time."""
        self._watch.catch_up(_CATCH_UP_S)

    async def finish(self) -> int:
        """Read to the end and let go of the file.

        Returns:
            How many bytes there was no time to read.
        """
        return await self._watch.finish()

    def conclude(self, end: End) -> Diagnosis:
        """The first cause, now that it is over."""
        return self._diagnoser.conclude(end)

    def _on_line(self, line: Line) -> None:
        if fatal := self._diagnoser.feed(line):
            self._on_fatal(fatal)
        if self._ready_said:
            return
        if progress := self._tracker.feed(line):
            self._advance(progress)
        if self._tracker.ready_line is not None:
            self._ready_said = True
            self._on_ready_line()

    def _advance(self, progress: Progress) -> None:
        new = self.phase != progress.phase
        if new:
            self._began.setdefault(progress.phase, self._clock())
        self.progress = progress
        self._on_progress(new)


def known_failures(profile: Profile, console: Console) -> SignatureSet:
    """The signatures of a profile and the user's own; a damaged file costs their names, never the server."""
    try:
        known = load_signatures(profile.signatures)
    except ProfileError as error:
        console.error(f"{error}; causes will be named from tracebacks only")
        known = SignatureSet()
    known, notes = with_own(known, os.environ)
    for note in notes:
        console.error(note)
    return known
