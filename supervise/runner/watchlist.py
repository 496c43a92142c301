"""What the user works on: as it was when the present attempt was launched, and how it differs from that."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from supervise.host import watched
from supervise.host.watched import Look, State

# Before a launch; the rest is read while the server loads.
_AT_ONCE_S = 0.25
_IN_ALL_S = 3.0


class Watchlist:
    """Files and directories, compared by content with what an attempt began with. All of it blocks.

    Args:
        paths: absolute.
        but: a directory of ours that may be among them.
    """

    def __init__(self, paths: Sequence[str], but: str | None = None) -> None:
        self.paths, self.but = tuple(paths), but
        self.broken = False
        """Whether a changed file does not compile: then a relaunch cannot help, whatever else has changed."""
        self._lock = threading.Lock()
        self._base: Look | None = None
        self._digests: dict[tuple[str, State], str | None] = {}
        self._since: tuple[str, ...] = ()
        self._cut = False

    @property
    def since(self) -> tuple[str, ...]:
        """What the present attempt was launched with that the one before it was not."""
        return self._since

    @property
    def cut(self) -> bool:
        """Whether there was more than is looked at when it was looked last."""
        return self._cut

    def begin(self) -> bool:
        """An attempt is about to be launched: what is there now is what it begins with.

        Returns:
            Whether there is more than is looked at.
        """
        with self._lock:
            before, now = self._base, self._look()
            self._since = () if before is None else self._between(before, now)
            self._base = now
            doubtful = frozenset() if before is None else before.fresh
            self._digests = {
                (path, state): digest
                for (path, state), digest in self._digests.items()
                if now.files.get(path) == state and path not in doubtful
            }
            # Their state proves nothing: the content is read before anybody imports it.
            self._read(now, sorted(now.fresh), _AT_ONCE_S)
            self._read(now, now.files, _AT_ONCE_S)
            return now.cut

    def learn(self) -> None:
        """Read what the launch did not wait for; a file that has changed since cannot be read any more."""
        with self._lock:
            if self._base is not None:
                self._read(self._base, self._base.files, _IN_ALL_S)

    def changes(self) -> tuple[str, ...]:
        """Files whose content is not what the present attempt was launched with, new ones and missing ones."""
        with self._lock:
            return () if self._base is None else self._between(self._base, self._look())

    def title(self, path: str) -> str:
        """A file as people call it: `vllm/config.py`."""
        for root in self.paths:
            if path.startswith(root + "/"):
                return os.path.relpath(path, os.path.dirname(root))
        return os.path.basename(path)

    def _look(self) -> Look:
        seen = watched.look(self.paths, self.but)
        self._cut = seen.cut
        return seen

    def _between(self, before: Look, now: Look) -> tuple[str, ...]:
        touched = sorted(
            path
            for path in before.files.keys() | now.files.keys()
            if before.files.get(path) != now.files.get(path) or path in before.fresh or path in now.fresh
        )
        if not touched:
            return ()
        # A tree of which nothing is left is on its way back: nobody works without it.
        gone = tuple(root + "/" for root in self.paths if not any(_is_in(path, root) for path in now.files))
        return tuple(path for path in touched if not path.startswith(gone) and self._differs(path, before, now))

    def _differs(self, path: str, before: Look, now: Look) -> bool:
        old, new = before.files.get(path), now.files.get(path)
        if old is None or new is None:
            # A file that is named itself comes back as well; what a look that was cut off has not seen may be there.
            return old is None if path in self.paths else not (before.cut if old is None else now.cut)
        was, present = self._digests.get((path, old)), self._digest(path, new, now)
        # Of one that cannot be read, or is too large: what only gets another mode has the content that it had.
        return was != present if was and present else watched.content_of(old) != watched.content_of(new)

    def _digest(self, path: str, state: State, look: Look) -> str | None:
        """Remembered for a state that proves something; what is remembered of the present attempt is never replaced."""
        key = (path, state)
        if path not in look.fresh and key in self._digests and not self._is_doubtful(path, state):
            return self._digests[key]
        found = watched.digest(path, state)
        if path not in look.fresh and found is not None and not self._is_doubtful(path, state):
            self._digests[key] = found
        return found

    def _is_doubtful(self, path: str, state: State) -> bool:
        """A state that the file had when it was just being changed: another content may have the same one."""
        return self._base is not None and path in self._base.fresh and self._base.files.get(path) == state

    def _read(self, look: Look, paths: Sequence[str] | dict[str, State], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        for path in paths:
            key = (path, look.files[path])
            if key not in self._digests and (digest := watched.digest(*key)) is not None:
                self._digests[key] = digest
            if time.monotonic() >= deadline:
                return


def _is_in(path: str, root: str) -> bool:
    """Whether a file is a root, or below it; one beside it may have a name that begins alike."""
    return path == root or path.startswith(f"{root}/")
