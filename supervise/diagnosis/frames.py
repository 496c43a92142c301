"""Tells whose code the frames of a traceback are in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from supervise.model.diagnosis import Frame, Kind, Line, Owner, Traceback

# Python's own `File "a.py", line 3, in f`, and faulthandler's without the second comma; IPython's `File ~/a.py:3, in f`
# and `Cell In[2], line 3, in f`; rich's `/a.py:3 in f`, whose borders are around it.
_FRAMES = (
    re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})(?:,? in (?P<function>.+))?$'),
    re.compile(r"\s*File (?P<file>[^\s\"][^:]*):(?P<line>\d{1,9})(?:, in (?P<function>[^\s(]+).*)?$"),
    re.compile(r"(?P<file>(?:Cell )?In ?\[\d+\]), line (?P<line>\d{1,9})(?:, in (?P<function>[^\s(]+).*)?$"),
    re.compile(r"[│|] (?P<file>[^\s:]+\.py):(?P<line>\d{1,9}) in (?P<function>\S+) +[│|]$"),
)
_CARETS = re.compile(r"\s*[~^]+\s*$")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/(?P<package>[^/.]+)")
_STDLIB = re.compile(r"(?:.*/lib(?:64)?/(?:python|pypy)3?(?:\.\d+)?t?/|\w+\.py$|<)")
# Code that compilers wrote, and frames of native code.
_GENERATED = re.compile(r".*/(?:torchinductor_[^/]*|\.triton|triton_cache)/")
_SCRIPT = re.compile(r"(?:.*\.(?:py|ipynb)|(?:Cell )?In ?\[\d+\]|.*/bin/[^/]+)$")


def frames(traceback: Traceback) -> tuple[Frame, ...]:
    """Read a traceback's frames.

    Args:
        traceback: of any kind.

    Returns:
        The frames that were kept of it, the innermost last, whichever end was printed first.
    """
    read = tuple(_frames(traceback.frames))
    # faulthandler prints the most recent call first.
    return read[::-1] if traceback.kind is Kind.NATIVE else read


def is_frame(text: str) -> bool:
    """Whether a line of Python's own tracebacks names a frame."""
    return _FRAMES[0].match(text) is not None


def _frames(lines: Iterable[Line]) -> Iterator[Frame]:
    pending: Frame | None = None
    for line in lines:
        found = next(filter(None, (pattern.match(line.text) for pattern in _FRAMES)), None)
        if found is None:
            if pending is not None and not _CARETS.match(line.text):
                yield Frame(pending.file, pending.line, pending.function, line.text.strip())
                pending = None
            continue
        if pending is not None:
            yield pending
        pending = Frame(found["file"], int(found["line"]), found["function"])
    if pending is not None:
        yield pending


class Owners:
    """Knows whose code a file is.

    Args:
        packages: the engines' own packages ("vllm", "sglang"): installed, or as a checkout anywhere.
        user: what the user works on: directories and files, or globs of them. It goes before everything else, also
            inside of an installed engine: somebody who patches a file wants to see that file.
    """

    def __init__(self, packages: Iterable[str], user: Iterable[str] = ()) -> None:
        self._packages = frozenset(packages)
        self._user = tuple(each.rstrip("/") for each in user)

    def of(self, frame: Frame) -> Owner:
        """Say whose code a frame is in.

        Args:
            frame: any frame.

        Returns:
            USER for the user's own files, and for any script that is neither installed nor of the standard library.
        """
        file = frame.file.replace("\\", "/")
        if self._is_users(file):
            return Owner.USER
        if installed := _INSTALLED.match(file):
            return Owner.ENGINE if installed["package"] in self._packages else Owner.LIBRARY
        if _STDLIB.match(file) or _GENERATED.match(file) or not _SCRIPT.match(file):
            return Owner.LIBRARY
        return Owner.USER if self._packages.isdisjoint(file.split("/")) else Owner.ENGINE

    def innermost(self, traceback: Traceback, owner: Owner | None = None) -> Frame | None:
        """Find the frame closest to where it was raised.

        Args:
            traceback: of any kind.
            owner: whose frame; None for anybody's.

        Returns:
            The frame; None if no frame of theirs was kept.
        """
        return next((each for each in reversed(frames(traceback)) if owner in (None, self.of(each))), None)

    def _is_users(self, file: str) -> bool:
        return any(file == each or file.startswith(f"{each}/") or fnmatchcase(file, each) for each in self._user)
