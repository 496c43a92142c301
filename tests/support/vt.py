"""A terminal's screen, as far as supervise makes use of one: what is to be seen on it in the end."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|\x1b|.", re.DOTALL)


class Vt:
    """Takes what is written, and shows what a person would see; anything it does not know is an AssertionError.

    Args:
        rows: of its window.
        columns: of its window.

    Attributes:
        above: lines that have scrolled out of the window.
    """

    def __init__(self, rows: int, columns: int) -> None:
        self.rows, self.columns = rows, columns
        self.above: list[str] = []
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0

    def feed(self, data: bytes) -> Vt:
        """Something is written."""
        for token in _TOKEN.finditer(data.decode()):
            if token[2]:
                self._control(token[1], token[2])
            else:
                self._character(token[0])
        return self

    @property
    def window(self) -> list[str]:
        """What stands in the window, without empty lines at its end."""
        lines = ["".join(row).rstrip() for row in self._cells]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def all(self) -> str:
        """All of it, also what has scrolled away."""
        return "\n".join([*self.above, *self.window])

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column, from 0."""
        return self._row, self._column

    def _control(self, parameters: str, final: str) -> None:
        count = int(parameters or 0) if parameters.isdigit() or not parameters else 0
        match final:
            case "A":
                self._row = max(0, self._row - max(1, count))
            case "J":
                assert count == 0, parameters
                self._clear_right()
                for row in range(self._row + 1, self.rows):
                    self._cells[row] = [" "] * self.columns
            case "K":
                assert count == 0, parameters
                self._clear_right()
            case "m":
                pass
            case _:
                raise AssertionError(f"CSI {parameters}{final}")

    def _clear_right(self) -> None:
        row = self._cells[self._row]
        row[self._column :] = [" "] * (self.columns - self._column)

    def _character(self, character: str) -> None:
        match character:
            case "\r":
                self._column = 0
            case "\n":
                self._down()
            case _:
                assert character.isprintable(), repr(character)
                wide = unicodedata.east_asian_width(character) in "WF"
                if self._column + (2 if wide else 1) > self.columns:
                    self._column = 0
                    self._down()
                self._cells[self._row][self._column] = character
                self._column += 1
                if wide:
                    self._cells[self._row][self._column] = ""
                    self._column += 1

    def _down(self) -> None:
        if self._row + 1 < self.rows:
            self._row += 1
        else:
            self.above.append("".join(self._cells.pop(0)).rstrip())
            self._cells.append([" "] * self.columns)
