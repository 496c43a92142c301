"""The post-mortem of an attempt: what it consists of, and how it is printed."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supervise.report.cause import to_data
from supervise.report.page import Page
from supervise.text import duration, home, plural, shorten

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis

VERSION = 1
"""Of the JSON; docs/report.md says what it promises."""

_WIDTH = 200


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened `at_s` seconds after the launch; `took_s` is how long it lasted, None if unknown."""

    at_s: float
    name: str
    took_s: float | None = None


@dataclass(frozen=True, slots=True)
class Left:
    """What the stop left: a sentence for each thing looked at, whether all is as it should be, and who survived."""

    sentences: tuple[str, ...]
    clean: bool
    survivors: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class PostMortem:
    """All that is known of an attempt.

    `began` is in seconds since the epoch, `seconds` how long it lasted or lasts. `how` says how it ended in words;
    `outcome`, `exit_status` and `left` are None while it runs and where nobody saw the end. `good` is the number of the
    last attempt before it that had been ready, `changes` what is recorded differently since, None without such an
    attempt or without records to compare. `unrecorded` names what could not be compared. `same` are earlier attempts
    with the same cause, newest first; `earlier` says whether there is any earlier failure to compare with; if not,
    `unnamed` counts those of which nothing is known.
    """

    run: str
    attempt: int
    live: bool
    engine: str | None
    model: str | None
    command: tuple[str, ...]
    began: float | None
    seconds: float | None
    outcome: str | None
    how: str
    exit_status: int | None
    exit_means: str
    ready_s: float | None
    timeline: tuple[Moment, ...]
    cause: Diagnosis | None
    left: Left | None
    files: tuple[tuple[str, str], ...]
    good: int | None
    changes: tuple[str, ...] | None
    unrecorded: tuple[str, ...]
    same: tuple[int, ...]
    earlier: bool
    log: str
    notes: tuple[str, ...] = ()
    unnamed: int = 0

    @property
    def headline(self) -> str:
        """`vllm-8000, attempt 7`."""
        return f"{self.run}, attempt {self.attempt}"

    @property
    def comparison(self) -> tuple[str, ...]:
        """What changed since the last good attempt, in sentences."""
        if self.good is None:
            return ("no earlier attempt that is kept had been ready",)
        if self.changes is None:
            return (f"attempt {self.good} had been ready; nothing is recorded of one of them that could be compared",)
        missing = (f"not recorded: {', '.join(self.unrecorded)}",) if self.unrecorded else ()
        if not self.changes:
            return (f"nothing recorded differs from attempt {self.good}, which had been ready", *missing)
        return (f"since attempt {self.good}, which had been ready:", *self.changes, *missing)

    @property
    def history(self) -> str:
        """Whether earlier attempts failed of the same."""
        if self.same:
            several = "attempts" if len(self.same) > 1 else "attempt"
            return f"same cause as {several} {', '.join(map(str, self.same))}"
        if self.cause is None or self.cause.text is None:
            return ""
        if self.unnamed and not self.earlier:
            return f"{plural(self.unnamed, 'earlier failure')}, of which no cause is known"
        return "new cause" if self.earlier else "no earlier failure is kept"

    def as_data(self) -> dict[str, Any]:
        """As JSON; see docs/report.md."""
        return {
            "version": VERSION,
            "run": self.run,
            "attempt": self.attempt,
            "live": self.live,
            "engine": self.engine,
            "model": self.model,
            "argv": list(self.command),
            "began": self.began,
            "seconds": self.seconds,
            "outcome": self.outcome,
            "how": self.how,
            "exit_status": self.exit_status,
            "ready_s": self.ready_s,
            "timeline": [{"at_s": each.at_s, "name": each.name, "took_s": each.took_s} for each in self.timeline],
            "cause": to_data(self.cause) if self.cause else None,
            "left": _left(self.left) if self.left else None,
            "files": [{"path": path, "what": what} for path, what in self.files],
            "good_attempt": self.good,
            "changes": None if self.changes is None else list(self.changes),
            "unrecorded": list(self.unrecorded),
            "same_cause_as": list(self.same),
            "log": self.log,
            "notes": list(self.notes),
        }


def _left(left: Left) -> dict[str, Any]:
    return {"clean": left.clean, "sentences": list(left.sentences), "survivors": list(left.survivors)}


def when(moment: float) -> str:
    """A moment as people read it, in their own time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(moment)).rstrip()


class PostMortemPage(Page):
    """Prints post-mortems on standard output."""

    def told(self, what: PostMortem) -> None:
        """All of one: head, timeline, cause, what the stop left, files, what changed."""
        self._head(what)
        self._timeline(what)
        if what.cause is not None:
            self.cause(what.cause, numbered=True)
        if what.history:
            self.line("history", what.history)
        if what.left is not None:
            self.verified(list(what.left.sentences), clean=what.left.clean)
            self.survivors(list(what.left.survivors))
        self._rows("changed", what.comparison)
        self._rows("files", [f"{home(path)}   {said}" for path, said in what.files])
        self.line("log", home(what.log))

    def _head(self, what: PostMortem) -> None:
        served = f"   ({', '.join(part for part in (what.engine, what.model) if part)})" if what.engine else ""
        self.line("attempt", f"{what.headline}{served}")
        for note in what.notes:
            self.note(f"note: {note}")
        if what.command:
            self.line("command", shorten(shlex.join(what.command), _WIDTH))
        if what.began is not None:
            lasted = "" if what.seconds is None else f", {'for' if what.live else 'lasted'} {duration(what.seconds)}"
            self.line("began", f"{when(what.began)}{lasted}")
        self.line("runs" if what.live else "ended", what.how)
        if what.exit_status is not None:
            self.line("exit", f"{what.exit_status}: {what.exit_means}" if what.exit_means else str(what.exit_status))

    def _timeline(self, what: PostMortem) -> None:
        self._rows(
            "timeline",
            [
                f"{'+' + duration(each.at_s):<8} {each.name:<12} "
                f"{duration(each.took_s) if each.took_s is not None else ''}".rstrip()
                for each in what.timeline
            ],
        )

    def _rows(self, label: str, rows: list[str] | tuple[str, ...]) -> None:
        for index, row in enumerate(rows):
            self.line("" if index else label, row)
