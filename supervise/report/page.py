"""The console of a verb that answers and is done: standard output, where a slow reader is waited for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from supervise.report.console import Console
from supervise.text import plural, shorten

if TYPE_CHECKING:
    from supervise.diagnosis.whole import Explained, Tried
    from supervise.model.diagnosis import Diagnosis

_WIDTH = 120


class Page(Console):
    """Prints what a log says.

    Args:
        stream: where it goes; standard output if left out.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._out = stream or sys.stdout
        super().__init__(self._out)

    def explained(self, file: str, told: Explained, notes: list[str], *, whole: bool = True) -> None:
        """One log: the first cause of the attempt that is named, then a line for each other attempt.

        Of one that could not be read to its end nobody can say that it is healthy: `whole` is False.
        """
        named, diagnosis = told.named, told.diagnosis
        which = f", attempt {named.number} of {told.attempts}" if told.attempts > 1 else ""
        self.line("file", f"{file}   ({told.engine}, {plural(told.lines, 'line')}{which})")
        for note in notes:
            self.note(f"note: {note}")
        if told.blank and not diagnosis.fatal:
            self.line("empty", "there is nothing in it to explain")
        elif diagnosis.fatal:
            self.cause(diagnosis, numbered=True)
        elif whole:
            self.line("healthy", diagnosis.meaning)
        else:
            self.line("unknown", "what could be read shows no failure")
        for index, other in enumerate(told.others):
            text = f"attempt {other.number} of {told.attempts}, from line {other.begins}: {compared(other, named)}"
            self.line("" if index else "others", shorten(text, _WIDTH))
        if missing := told.attempts - 1 - len(told.others):
            self.note(f"and {plural(missing, 'attempt')} in between")

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")


def compared(other: Tried, named: Tried) -> str:
    """What became of another attempt, next to the one that is named."""
    its = other.diagnosis
    if not its.fatal:
        return "no failure"
    if named.diagnosis.fatal and same_cause(its, named.diagnosis):
        return "same cause"
    cause = f"{its.text} (line {its.line})" if its.text is not None else its.meaning
    return f"another cause: {cause}"


def same_cause(one: Diagnosis, other: Diagnosis) -> bool:
    """Whether two failures are the same one: by fingerprint, or word for word where there is none."""
    if one.fingerprint is not None and other.fingerprint is not None:
        return one.fingerprint == other.fingerprint
    return (one.signature, one.text, one.meaning) == (other.signature, other.text, other.meaning)
