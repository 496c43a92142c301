"""The door to the kernel's notices of changed files (inotify(7), through watchfiles): they wake, and prove nothing.

A queue may overflow, a directory may be new before it is watched, and a watch follows the inode, not the name: whoever
is woken looks, and looks now and then all the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from watchfiles import Change
from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

from supervise.host import watched

# How often it is asked whether it shall end, over how long notices are gathered, and how long one handle is asked while
# the other has to wait, in ms.
_STEP_MS, _GATHER_MS, _TURN_MS = 50, 200, 250

Identity = tuple[int, int] | None


class Notices:
    """Notices of changes below directories, and of files that are named themselves.

    Args:
        paths: absolute.
        but: a directory of ours that may be among them.

    Raises:
        OSError: the user's limit of watches or instances is reached, or a directory cannot be watched.
    """

    def __init__(self, paths: Sequence[str], but: str | None = None) -> None:
        self._paths, self._but = frozenset(paths), (but or "\\0") + "/"
        self._stop, self._lost = threading.Event(), False
        self._roots = tuple(path for path in paths if os.path.isdir(path))
        # An editor puts a new file in place of the old one: only the directory tells of that. Likewise for a root.
        places = {os.path.dirname(path) for path in paths}
        self._identities = self._identified()
        self._trees = _handle(self._roots, recursive=True)
        self._places = _handle(tuple(sorted(places)), recursive=False)

    def wait(self, seconds: float) -> bool:
        """Wait for a notice of something that may count; blocking, but for a moment after `stop`."""
        deadline, heard = time.monotonic() + seconds, False
        while not heard and not self._stop.is_set() and (left_ms := int((deadline - time.monotonic()) * 1000)) > 0:
            turn_ms = min(left_ms, _TURN_MS) if self._trees and self._places else left_ms
            if not self._trees and not self._places:
                self._stop.wait(left_ms / 1000)
            heard = self._hears(self._trees, _STEP_MS, turn_ms)
            heard |= self._hears(self._places, *((1, 1) if self._trees else (_STEP_MS, turn_ms)))
        return heard

    def _hears(self, handle: RustNotify | None, step_ms: int, within_ms: int) -> bool:
        told = handle.watch(_GATHER_MS, step_ms, within_ms, self._stop) if handle else ()
        if not isinstance(told, set):
            return False
        self._lost |= any(change == Change.deleted and path in self._roots for change, path in told)
        return any(self._counts(path) for _, path in told)

    @property
    def stale(self) -> bool:
        """Whether a directory is not the one any more that is watched: it was moved away, or made anew."""
        return self._lost or self._identified() != self._identities

    def stop(self) -> None:
        """Whoever waits is back within a moment."""
        self._stop.set()

    def close(self) -> None:
        """Let go of everything; nobody waits any more."""
        self._stop.set()
        for handle in (self._trees, self._places):
            if handle is not None:
                handle.close()

    def _counts(self, path: str) -> bool:
        if path in self._paths:
            return True
        if path.startswith(self._but) or not path.startswith(tuple(root + "/" for root in self._roots)):
            return False
        root = next(root for root in self._roots if path.startswith(root + "/"))
        names = os.path.relpath(path, root).split("/")
        if any(map(watched.is_hidden, names)):
            return False
        # What has no suffix may be a directory, which may be gone by now.
        return watched.counts(names[-1]) or "." not in names[-1] or os.path.isdir(path)

    def _identified(self) -> tuple[Identity, ...]:
        return tuple(map(_identity, sorted(self._paths)))


def _handle(paths: Sequence[str], *, recursive: bool) -> RustNotify | None:
    there = [path for path in paths if os.path.isdir(path)]
    try:
        # Not to ignore a directory that may not be read: whatever comes after it would not be watched, either.
        return RustNotify(there, False, False, 0, recursive, False) if there else None
    except WatchfilesRustInternalError as error:  # so it calls EMFILE: no instance is left for this user
        raise OSError(str(error)) from None


def _identity(path: str) -> Identity:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return (state.st_dev, state.st_ino) if os.path.isdir(path) else None
