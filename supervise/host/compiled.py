"""The door to bytecode that Python would believe although it is not what its source compiles to.

A `.pyc` holds the time (in seconds) and the size of its source, or a hash that need not be checked (PEP 552). An edit
that keeps both, or any edit behind an unchecked hash, has no effect. What was compiled after the last change of its
source cannot be such a one, and that is nearly all of them; the rest is compiled again, by the same interpreter.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO

from supervise.host import procfs, signals

_NAME = re.compile(r"(?P<source>.+?)\.(?P<tag>[a-z]+-\d+[a-z]*)(?:\.opt-(?P<level>[12]))?\.pyc")
_HEADER = 16
_HASHED, _CHECKED = 1, 2
_GONE_WITHIN_S = 1.0
_COPIED_NS, _COPYING_NS = 60 * 10**9, 600 * 10**9
# So many are compiled in about a tenth of a second: not worth another interpreter.
_SHARE = 50
_HELPERS = 8

# Prints, for each line "level, bytecode, source" of its input, one letter: s(ame), d(ifferent), i(gnored by this
# Python), u(nreadable). Code objects compare without the name of their file.
_PROGRAM = """
import importlib.util, json, marshal, re, sys
tag = re.compile(re.escape("." + sys.implementation.cache_tag) + r"(\\.opt-[12])?\\.pyc$")
def verdict(level, compiled, source):
    if not tag.search(compiled):
        return "i"
    try:
        with open(compiled, "rb") as file:
            data = file.read()
        with open(source, "rb") as file:
            text = file.read()
    except OSError:
        return "u"
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return "i"
    if data[4] & 1 and data[8:16] == importlib.util.source_hash(text):
        return "s"
    try:
        code = compile(text, source, "exec", dont_inherit=True, optimize=level)
        return "s" if marshal.loads(data[16:]) == code else "d"
    except (SyntaxError, ValueError, EOFError, TypeError):
        return "d"
    except (MemoryError, RecursionError):
        return "u"
for line in sys.stdin.buffer:
    print(verdict(*json.loads(line)), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Bytecode with a header that its source fits, and a source that changed later; what both were when looked at."""

    path: str
    source: str
    level: int
    state: tuple[int, ...]
    source_state: tuple[int, ...]


def candidates(
    directory: str, deadline: float, *, prefix: str = "", unread: list[str] | None = None
) -> Iterator[Candidate]:
    """Bytecode below a package directory that may not be what its source compiles to.

    Args:
        directory: absolute; links below it are not followed.
        deadline: on the monotonic clock.
        prefix: of PYTHONPYCACHEPREFIX, where bytecode then is.
        unread: takes the directories that could not be read, or not in time.
    """
    pending = [os.path.normpath(directory)]
    while pending:
        here = pending.pop()
        try:
            if time.monotonic() >= deadline:
                raise TimeoutError
            with os.scandir(here) as entries:
                pending += [e.path for e in entries if e.name != "__pycache__" and e.is_dir(follow_symlinks=False)]
            yield from _in(here, cache_of(here, prefix))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            if unread is not None:
                unread.append(here)


def of_source(path: str, *, prefix: str = "") -> Iterator[Candidate]:
    """The same of one source file; what cannot be read is not told.

    Args:
        path: absolute.
        prefix: of PYTHONPYCACHEPREFIX.
    """
    directory = os.path.dirname(path)
    try:
        yield from (each for each in _in(directory, cache_of(directory, prefix)) if each.source == path)
    except OSError:
        return


def cache_of(directory: str, prefix: str = "") -> str:
    """Where the bytecode of a directory's files is.

    Args:
        directory: absolute.
        prefix: of PYTHONPYCACHEPREFIX.
    """
    return os.path.realpath(prefix + directory if prefix else f"{directory}/__pycache__")


def _in(directory: str, cache: str) -> Iterator[Candidate]:
    with os.scandir(cache) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_file(follow_symlinks=False):
                candidate = _candidate(
                    entry, os.path.join(directory, match["source"] + ".py"), int(match["level"] or 0)
                )
                if candidate is not None:
                    yield candidate


def _candidate(entry: os.DirEntry[str], source: str, level: int) -> Candidate | None:
    try:
        compiled, written = entry.stat(follow_symlinks=False), os.stat(source)
    except OSError:  # bytecode without its source is nothing to Python
        return None
    # Equal counts, too: both clocks tick every few milliseconds.
    if written.st_ctime_ns < _settled_ns(compiled) or not stat.S_ISREG(written.st_mode):
        return None
    if not _believed(entry.path, written):
        return None
    return Candidate(entry.path, source, level, identity(compiled), identity(written))


def _settled_ns(compiled: os.stat_result) -> int:
    """Up to when a change of the source was before its compilation.

    What was copied with its times, as the files of a container image are, has all been changed at the time of the copy,
    source and bytecode within a while of each other: there only a later change counts.
    """
    copied = compiled.st_ctime_ns - compiled.st_mtime_ns > _COPIED_NS
    return compiled.st_ctime_ns + _COPYING_NS if copied else compiled.st_mtime_ns


def _believed(path: str, source: os.stat_result) -> bool:
    """Whether Python takes it for this source (importlib._bootstrap_external, SourceLoader.get_code)."""
    header = _read(path)
    flags, first, second = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if len(header) < _HEADER or flags & ~(_HASHED | _CHECKED):
        return False
    if flags & _HASHED:
        return not flags & _CHECKED
    return (first, second) == (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _HEADER)
    finally:
        os.close(descriptor)


def identity(state: os.stat_result) -> tuple[int, ...]:
    """What a file cannot change without."""
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


def prove(wanted: Iterable[Candidate], python: str, deadline: float) -> Mapping[Candidate, bool]:
    """Compile sources anew and compare.

    Args:
        wanted: what is doubtful.
        python: the interpreter that would believe it.
        deadline: on the monotonic clock.

    Returns:
        Whether each differs; those that could not be told are not in it. Blocking until the deadline at most.
    """
    # What changed last is looked at first, should there be no time for all.
    doubtful = sorted(wanted, key=lambda candidate: candidate.source_state[-1], reverse=True)
    helpers = min(_HELPERS, os.cpu_count() or 1, -(-len(doubtful) // _SHARE))
    shares = [doubtful[at::helpers] for at in range(helpers)]
    running = [(share, _start(python, share)) for share in shares]
    told: dict[Candidate, bool] = {}
    for share, helper in running:
        letters = helper.answer(deadline) if helper else ""
        told |= {candidate: letter == "d" for candidate, letter in zip(share, letters, strict=False) if letter in "sdi"}
    return told


class _Helper:
    """An interpreter that compiles; input and output are files, so that nothing waits for anything."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self._process, self._output = process, output

    def answer(self, deadline: float) -> str:
        """The letters that it printed until then."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._kill()
        with self._output:
            self._output.seek(0)
            return "".join(line.strip() for line in self._output.read().decode("ascii", "replace").splitlines())

    def _kill(self) -> None:
        target = procfs.identify(self._process.pid)
        if target is not None:
            signals.send(target, signal.SIGKILL)
        try:
            self._process.wait(_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:  # stuck in the kernel: not waited for any longer
            pass


def _start(python: str, share: list[Candidate]) -> _Helper | None:
    """Isolated, without site: neither the environment nor a .pth file has a word in it."""
    try:
        output = tempfile.TemporaryFile()  # noqa: SIM115 - the helper's, closed when it has answered
    except OSError:
        return None
    try:
        with tempfile.TemporaryFile() as jobs:
            jobs.write(b"".join(json.dumps([c.level, c.path, c.source]).encode() + b"\n" for c in share))
            jobs.seek(0)
            process = subprocess.Popen(
                [python, "-I", "-S", "-B", "-c", _PROGRAM], stdin=jobs, stdout=output, stderr=subprocess.DEVNULL
            )
    except OSError:
        output.close()
        return None
    return _Helper(process, output)
