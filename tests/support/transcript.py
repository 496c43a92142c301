"""A document whose examples are a transcript: what is typed, in which terminal, and what follows."""

from __future__ import annotations

import difflib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(r"(?m)^(?:<!-- (?P<where>\w+ terminals?) -->\n)?```console\n(?P<text>(?:.*\n)*?)```$")
_ELIDED = "…"
_DONE = "\x1e"
_LOOK_EVERY_S = 0.02
# Nothing more comes: it has been silent for so long, or has not said enough by then.
_QUIET_S = 5.0
_LATEST_S = 30.0


class Step(NamedTuple):
    """A command, None for what a terminal says without one, and the lines that follow.

    `where`: "", "first terminal" or "both terminals". `begins` and `ends`: of the lines within the document.
    """

    where: str
    command: str | None
    output: str
    begins: int
    ends: int


def steps(document: str) -> list[Step]:
    """All steps of a document, in order. Blocks are fenced with `console`; a command begins with `$ `."""
    found = []
    for block in _BLOCK.finditer(document):
        where, begins = block["where"] or "", block.start("text")
        for command, output in re.findall(r"(?m)^(?:\$ (.*)\n)?((?:(?!\$ ).*\n)*)", block["text"]):
            if command or output or not block["text"]:
                begins += len(f"$ {command}\n") if command else 0
                found.append(Step(where, command or None, output, begins, begins + len(output)))
                begins += len(output)
    return found


def agree(told: str, written: str) -> bool:
    """Whether a terminal has told what is written; a line `…` stands for any lines. Both normalised."""
    parts = re.split(rf"(?m)^{_ELIDED}\n", written)
    return re.fullmatch(r"(?:.*\n)*?".join(map(re.escape, parts)), told) is not None


def mended(told: Sequence[str], written: Sequence[str], same: tuple[Sequence[str], Sequence[str]]) -> str:
    """What is to be written: what was, where that is still told, and what is told where it is not.

    Args:
        told: lines of the terminal.
        written: lines of the document.
        same: both, normalised; in the order told, written.
    """
    result: list[str] = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, same[1], same[0], autojunk=False).get_opcodes():
        keeps = tag == "equal" or [line.strip() for line in written[i:j]] == [_ELIDED]
        result += written[i:j] if keeps else told[k:m]
    return "".join(result)


class Terminal:
    """A shell that is typed into.

    Args:
        home: where it begins.
        env: its environment.
        log: where what it shows is kept.
    """

    def __init__(self, home: Path, env: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._read = 0
        with log.open("wb") as shown:
            self._shell = subprocess.Popen(
                ["bash", "--norc", "-s"],
                stdin=subprocess.PIPE,
                stdout=shown,
                stderr=shown,
                cwd=home,
                env=dict(env),
                start_new_session=True,
            )

    def type(self, command: str) -> None:
        """A command, which gets no input of its own."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(f"{{ {command}\n}} </dev/null; printf '{_DONE}'\n".encode())
        self._shell.stdin.flush()

    def told(self, ends: bool, awaited: Callable[[str], bool]) -> str:
        """What it has shown since the last time.

        Args:
            ends: the command is to end; else it is one that goes on, and says what is awaited.
            awaited: whether it is that.
        """
        until, size, changed = time.monotonic() + _LATEST_S, -1, time.monotonic()
        while True:
            text = self._log.read_text(errors="replace")[self._read :]
            now = time.monotonic()
            if len(text) != size:
                size, changed = len(text), now
            over = text.endswith(_DONE) if ends else awaited(text.replace(_DONE, "")) or now > changed + _QUIET_S
            if over or now > until:
                self._read += len(text)
                return text.replace(_DONE, "")
            time.sleep(_LOOK_EVERY_S)

    def close(self) -> None:
        """End it with what it runs."""
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGTERM)
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(_LATEST_S)
