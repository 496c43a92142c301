"""The door to the question whether Python files compile, asked of the interpreter that is to import them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from supervise.host import program

_DEADLINE_S = 5.0
# More than that nobody has edited by hand: a checkout, and what is wrong in it shows at the launch.
_MOST = 100

# Prints a line of JSON for each file that does not compile. It shall run on any Python 3.
_PROGRAM = """
import json, sys
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            text = file.read()
        compile(text, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        print(json.dumps([path, error.lineno, type(error).__name__, error.msg, error.text or ""]), flush=True)
    except ValueError as error:
        print(json.dumps([path, None, "ValueError", str(error), ""]), flush=True)
    except (OSError, MemoryError, RecursionError):
        pass
"""


class Mistake(NamedTuple):
    """A file that does not compile: where (None: nobody can tell), why, and the line itself."""

    path: str
    line: int | None
    why: str
    text: str


def mistakes(paths: Sequence[str], python: str) -> tuple[Mistake, ...]:
    """Which of these files do not compile.

    Args:
        paths: absolute, of Python files.
        python: the interpreter; it runs isolated and imports nothing but its own library.

    Returns:
        What is wrong, the first mistake of each file; nothing where the interpreter does not answer, or not in time.
        Blocking, five seconds at most.
    """
    if not paths:
        return ()
    command = [python, "-I", "-S", "-B", "-W", "ignore", "-c", _PROGRAM, *paths[:_MOST]]
    try:
        answer = program.ask(command, _DEADLINE_S)
    except (OSError, TimeoutError):
        return ()
    return tuple(mistake for line in answer.printed.splitlines() if (mistake := _mistake(line)) is not None)


def _mistake(line: str) -> Mistake | None:
    try:
        match json.loads(line):
            case [str(path), int() | None as number, str(kind), str(message), str(text)]:
                return Mistake(path, number, f"{kind}: {message}", text.strip())
    except ValueError:
        pass
    return None
