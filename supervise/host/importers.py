"""The door to whether a process may import Python code from some directories: told from what it really is.

Not its recorded command line counts, which may have been a launcher's, but its program, what it has mapped, where it
stands, and where its Python searches, with the .pth files there. What cannot be read counts as yes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from supervise.host import files, interpreter, procfs
from supervise.host.interpreter import Interpreter
from supervise.model.process import Process

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")
_EMBEDDED = re.compile(rb"/lib(?:python3|pypy3)[^/]*\.so")
_FINDER = re.compile(r"\bimport (__editable__\w+)")
_LARGEST = 1024 * 1024
_GONE = (FileNotFoundError, ProcessLookupError)


def any_may(members: Iterable[Process], directories: Collection[str]) -> bool:
    """Whether one of the processes may.

    Args:
        members: of one group, parents first.
        directories: with links resolved.
    """
    # Who has another title than its command line has mostly been started by one with the same program.
    known: dict[str, Interpreter] = {}
    return any(_may(member, directories, known) for member in members)


def searches(python: Interpreter, directories: Collection[str]) -> bool:
    """Whether a Python searches one of the directories, by itself or because a .pth file in its own says so.

    Args:
        python: the Python.
        directories: with links resolved.
    """
    return any(_in(path, directories) or _led(path, directories) for path in python.site)


def _may(member: Process, directories: Collection[str], known: dict[str, Interpreter]) -> bool:
    base = f"/proc/{member.pid}"
    try:
        program, cwd = os.readlink(f"{base}/exe"), os.readlink(f"{base}/cwd")
        with open(f"{base}/maps", "rb") as file:
            maps = file.read()
        with open(f"{base}/environ", "rb") as file:
            env = _environment(file.read())
    except _GONE:
        return False
    except OSError:
        now = procfs.read(member.pid, cmdline=False, environ=False)
        return now is not None and now.id == member.id and not now.gone
    if any(_in(path, directories) for path in (program, cwd)) or any(
        b" %s/" % os.fsencode(directory) in maps for directory in directories
    ):
        return True
    if not _PYTHON.fullmatch(os.path.basename(program).removesuffix(" (deleted)")):
        return _EMBEDDED.search(maps) is not None
    python = _of(member, program, cwd, env) or known.get(program)
    if python is None:
        return True
    known.setdefault(program, python)
    return searches(python, directories)


def _of(member: Process, program: str, cwd: str, env: Mapping[str, str]) -> Interpreter | None:
    """The Python of its command line, if that is its program."""
    if not member.argv:
        return None
    python, _ = interpreter.find(member.argv, env, cwd=cwd)
    return python if python and os.path.realpath(python.executable) == program else None


def _environment(data: bytes) -> dict[str, str]:
    pairs = (os.fsdecode(each).partition("=") for each in data.split(b"\0"))
    return {name: value for name, equals, value in pairs if equals}


def _led(site: str, directories: Collection[str]) -> bool:
    try:
        names = [name for name in os.listdir(site) if name.endswith(".pth")]
        return any(_leads(site, line, directories) for name in names for line in _lines(os.path.join(site, name)))
    except (OSError, ValueError):
        return True


def _leads(site: str, line: str, directories: Collection[str]) -> bool:
    """A line of a .pth file (site.py): a path, or code; of code it is only told what it names."""
    if not line.startswith(("import ", "import\t")):
        return _in(os.path.join(site, line), directories)
    said = [line]
    if finder := _FINDER.search(line):
        said += _lines(os.path.join(site, f"{finder[1]}.py"))
    return any(directory in text for text in said for directory in directories)


def _lines(path: str) -> Iterator[str]:
    text = files.read_regular(path, _LARGEST).decode("utf-8", "surrogateescape")
    yield from (line for each in text.splitlines() if (line := each.strip()) and not line.startswith("#"))


def _in(path: str, directories: Collection[str]) -> bool:
    real = os.path.realpath(path)
    return any(real == directory or real.startswith(f"{directory}/") for directory in directories)
