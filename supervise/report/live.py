"""The console on a terminal: the same lines, and below them a view of what happens, which leaves no trace.

The view is a few lines at the bottom that are drawn over each other. The cursor is neither hidden nor are modes
changed: there is nothing that a SIGKILL could leave behind but the view itself.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, TextIO

from supervise.host import tty
from supervise.report.console import Console
from supervise.report.glass import Glass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console as Rich

    from supervise.model.diagnosis import Progress
    from supervise.report.scene import Scene

# What is said must have a place above the view.
_LEFT_ROWS = 2
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_ERASE_BELOW, _ERASE_RIGHT = "\x1b[J", "\x1b[K"


class Terminal(Console):
    """Lines, and a view below them while somebody shows one.

    Attributes:
        on_suspend: called before we are stopped.
    """

    views = True

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.on_suspend: Callable[[], None] | None = None
        self._glass: Glass | None = None
        self._rich: Rich | None = None
        self._closed = False
        self._shown: tuple[Scene, tuple[int, int]] | None = None
        self._lines: list[str] = []

    @property
    def live(self) -> bool:
        """Whether a view can be seen: in the foreground of a terminal that takes what is written."""
        return self._glass is not None and tty.in_foreground(self._glass.fd) and self._glass.clear

    def show(self, scene: Scene | None) -> bool:
        """Show this from now on; None: nothing.

        Returns:
            Whether it can be seen. What cannot be written at once is not written at all.
        """
        glass = self._open()
        if glass is None or scene is None or not self.live:
            self._erase()
            return False
        rows, columns = size = tty.size(glass.fd)
        if (scene, size) == self._shown:
            return bool(self._lines)
        resized = self._shown is not None and self._shown[1] != size
        lines = self._rendered(scene, columns - 1, rows - _LEFT_ROWS)
        if resized or lines != self._lines:
            begin = self._back() if resized else self._up()
            glass.write(f"{begin}{_drawn(lines)}{_ERASE_BELOW}", patient=False)
        self._shown, self._lines = (scene, size), lines
        return bool(lines)

    def progress(self, progress: Progress, seconds: float, *, new: bool, eta: str = "") -> None:
        """A line per phase where the view does not show them."""
        if not self._lines:
            super().progress(progress, seconds, new=new, eta=eta)

    def suspend(self) -> None:
        """Ctrl-Z: whoever has taken the terminal gives it back."""
        if self.on_suspend is not None:
            self.on_suspend()
        self._erase()

    def close(self) -> None:
        """Take the view away; what is said after it are lines alone."""
        self._erase()
        self._closed = True
        if self._glass is not None:
            self._glass.close()
            self._glass = None

    def _write(self, text: str) -> None:
        glass = self._glass
        if glass is None:
            super()._write(text)
            return
        # Once nothing waits the view is drawn again in the same breath, or it would flicker.
        again = _drawn(self._lines) if self.live else ""
        glass.write(f"{self._back()}{text}\n{again}", patient=True)
        if not again:
            self._forget()

    def _open(self) -> Glass | None:
        if self._glass is None and not self._closed:
            try:
                self._glass = Glass.of(self._stream.fileno())
            except (OSError, ValueError):
                self._glass = None
        return self._glass

    def _erase(self) -> None:
        if self._lines and self._glass is not None:
            self._glass.write(self._back(), patient=True)
        self._forget()

    def _forget(self) -> None:
        self._shown, self._lines = None, []

    def _back(self) -> str:
        """To where the view begins, and nothing below."""
        return f"{up}{_ERASE_BELOW}" if (up := self._up()) else ""

    def _up(self) -> str:
        """To where the view begins; a terminal that became narrower has broken its lines.

        From the background, what stands there is not ours any more.
        """
        if not self._lines or self._glass is None or not tty.in_foreground(self._glass.fd):
            return ""
        columns = tty.size(self._glass.fd)[1]
        rows = sum(max(1, -(-_width(line) // columns)) for line in self._lines)
        return f"\r\x1b[{rows - 1}A" if rows > 1 else "\r"

    def _rendered(self, scene: Scene, width: int, height: int) -> list[str]:
        from supervise.report.view import render

        rich = self._writer()
        rich.width = max(1, width)
        with rich.capture() as captured:
            rich.print(render(scene, width, height))
        return captured.get().rstrip("\n").split("\n") if height > 0 and captured.get().strip() else []

    def _writer(self) -> Rich:
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(
                file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False
            )
        return self._rich


def _drawn(lines: list[str]) -> str:
    """The cursor stays behind the last line: nothing scrolls that need not."""
    return f"{_ERASE_RIGHT}\r\n".join(lines)


def _width(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(_STYLE.sub("", line))
