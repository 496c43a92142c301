"""The console on a terminal: the same lines, and below them a view of what happens, which leaves no trace.

The view is a few lines at the bottom that are drawn over each other. The cursor is neither hidden nor are modes
changed: there is nothing that a SIGKILL could leave behind but the view itself.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, TextIO

from supervise.host import tty
from supervise.report.glass import Glass
from supervise.report.letters import encoding_of, fitting
from supervise.report.present import Present

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console as Rich

    from supervise.model.diagnosis import Progress
    from supervise.model.need import Need
    from supervise.report.scene import Scene

# What is said must have a place above the view.
_LEFT_ROWS = 2
LEAST_COLUMNS = 20
"""A view in fewer would tell nothing."""
_STYLE = re.compile(r"\x1b\[[\d;]*m")
_ERASE_BELOW, _ERASE_RIGHT = "\x1b[J", "\x1b[K"


class Terminal(Present):
    """Lines, and a view below them while somebody shows one; no view where another one of us writes on that terminal.

    Attributes:
        on_suspend: called before we are stopped.
        on_resize: called once the window has another size.
    """

    views = True

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.on_suspend: Callable[[], None] | None = None
        self.on_resize: Callable[[], None] | None = None
        self._glass: Glass | None = None
        self._rich: Rich | None = None
        self._shown: tuple[Scene, tuple[int, int]] | None = None
        self._lines: list[str] = []

    @property
    def live(self) -> bool:
        """Whether a view can be seen: in the foreground of a terminal that takes what is written, and is ours alone."""
        glass = self._glass
        return glass is not None and tty.in_foreground(glass.fd) and self.alone and glass.clear

    def show(self, scene: Scene | None) -> bool:
        """Show this from now on; None: nothing.

        Returns:
            Whether it can be seen. What cannot be written at once is not written at all.
        """
        glass = self._open()
        if glass is None or scene is None or not self.live:
            self._give_way()
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
        """A line per phase where no view shows them, or is about to."""
        glass = self._open()
        if glass is None or not self.live or not _has_room(tty.size(glass.fd)):
            super().progress(progress, seconds, new=new, eta=eta)

    def ready(self, seconds: float, phases: dict[str, float], need: Need) -> None:
        """It serves; what is shown of its start-up is over."""
        self._erase()
        super().ready(seconds, phases, need)

    def resized(self) -> None:
        """SIGWINCH."""
        if self.on_resize is not None:
            self.on_resize()

    def suspend(self) -> None:
        """Ctrl-Z: whoever has taken the terminal gives it back."""
        if self.on_suspend is not None:
            self.on_suspend()
        self._erase()
        super().suspend()

    def close(self) -> None:
        """Take the view away; what is said after it are lines alone."""
        self._erase()
        if self._glass is not None:
            self._glass.close()
            self._glass = None
        super().close()

    def _write(self, text: str) -> None:
        glass = self._glass
        if glass is None:
            super()._write(text)
            return
        self._give_way()
        # Once nothing waits the view is drawn again in the same breath, or it would flicker.
        again = _drawn(self._lines) if self.live else ""
        glass.write(f"{self._back()}{text}\n{again}", patient=True)
        if not again:
            self._forget()

    def _open(self) -> Glass | None:
        if self._glass is None and not self._closed:
            try:
                self._glass = Glass.of(self._stream.fileno(), encoding_of(self._stream))
            except (OSError, ValueError):
                self._glass = None
        return self._glass

    def _give_way(self) -> None:
        """Somebody else has written below our view, or is about to: it stays where it is, for it cannot be found."""
        if self._lines and self._glass is not None and not self.alone:
            self._glass.write("\r\n", patient=True)
            self._forget()

    def _erase(self) -> None:
        self._give_way()
        if self._lines and self._glass is not None:
            self._glass.write(self._back(), patient=True)
        self._forget()

    def _forget(self) -> None:
        self._shown, self._lines = None, []

    def _back(self) -> str:
        """To where the view begins, and nothing below."""
        if not (up := self._up()):
            return ""
        # tmux(1), scroll-on-clear: what ED clears from the very first cell on goes into its history instead.
        return f"{up}{_ERASE_RIGHT}\n{_ERASE_BELOW}\x1b[A" if up != "\r" else f"{up}{_ERASE_RIGHT}"

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

        if not _has_room((height + _LEFT_ROWS, width + 1)):
            return []
        rich = self._writer()
        rich.width = max(1, width)
        with rich.capture() as captured:
            rich.print(render(scene, width, height))
        encoding = self._glass.encoding if self._glass is not None else "utf-8"
        return [fitting(line, encoding) for line in captured.get().rstrip("\n").split("\n")]

    def _writer(self) -> Rich:
        if self._rich is None:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(
                file=io.StringIO(), force_terminal=True, highlight=False, markup=False, emoji=False
            )
        return self._rich


def _has_room(size: tuple[int, int]) -> bool:
    rows, columns = size
    return rows > _LEFT_ROWS and columns >= LEAST_COLUMNS


def _drawn(lines: list[str]) -> str:
    """The cursor stays behind the last line: nothing scrolls that need not."""
    return f"{_ERASE_RIGHT}\r\n".join(lines)


def _width(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(_STYLE.sub("", line))
