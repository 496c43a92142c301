"""Two attempts next to each other, as people read them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from supervise.report.page import Page

if TYPE_CHECKING:
    from supervise.report.comparison import Comparison

_LABELS = {
    "command": "command",
    "flag": "flags",
    "environment": "environ",
    "patch": "code",
    "package": "code",
    "root": "code",
    "git": "code",
    "interpreter": "python",
    "version": "versions",
}
_OTHERS = "besides"


class ComparisonPage(Page):
    """Prints comparisons on standard output."""

    def told(self, found: Comparison) -> None:
        """All of one: what differs, what is not known, phases that moved, and the end."""
        self.line("diff", f"{found.run}, attempt {found.before.number} -> attempt {found.after.number}")
        for note in found.notes:
            self.note(f"note: {note}")
        for label, rows in itertools.groupby(found.differences, lambda each: _LABELS.get(each.kind, _OTHERS)):
            self._rows(label, [each.told for each in rows])
        if not found.differences:
            self.line("same", "nothing recorded differs")
        self._rows("unknown", found.unknown)
        self._rows("times", [f"{phase.name:<12} {phase.told}" for phase in found.phases if phase.moved])
        self.line("ended", found.course.told)

    def _rows(self, label: str, rows: list[str] | tuple[str, ...]) -> None:
        for index, row in enumerate(rows):
            self.line("" if index else label, row)


def patch_text(found: Comparison) -> str:
    """What differs in files, as `patch -p1` takes it; it passes over the lines about files that have no diff."""
    return "".join(
        patch.text if patch.known else f"{patch.path}: {patch.text or 'content not known'}\n"
        for patch in found.patches or ()
    )
