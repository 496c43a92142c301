"""Keys that mean supervise itself: read as they are typed, while its terminal is ours and nobody else reads from it."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable

from supervise.host import tty
from supervise.runner.keyboard import Keyboard

_STDIN = 0
_CHUNK = 4096
# bash(1) tells nobody when it brings a job to the foreground that was running in the background: only looking helps.
_LOOK_AGAIN_S = 0.5


class Keys:
    """Tells of each key; listens between `attend` and `pause`, and only then the terminal's modes are changed.

    Args:
        loop: tells when there is something.
        keyboard: the user's terminal; it is closed with us.
        press: called with each key that is known.
        known: the keys that mean something. What comes in one piece with anything else was pasted or typed ahead for
            others, or is a key of its own with a name (an arrow), and means nothing.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, keyboard: Keyboard, press: Callable[[str], None], known: str
    ) -> None:
        self._loop, self._keyboard, self._press = loop, keyboard, press
        self._known = frozenset(known.encode())
        self._listening = self._over = False
        self._later: asyncio.TimerHandle | None = None
        atexit.register(keyboard.restore)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, press: Callable[[str], None], known: str) -> Keys | None:
        """Those of the terminal that controls us, if standard input is that terminal."""
        keyboard = Keyboard.behind(_STDIN)
        return None if keyboard is None else cls(loop, keyboard, press, known)

    @property
    def listening(self) -> bool:
        """Whether a key would be heard."""
        return self._listening

    def attend(self) -> None:
        """Listen from now on; while the terminal is not ours to take, look again later."""
        if self._listening or self._over:
            return
        self._forget()
        if self._keyboard.take():
            # What was typed while nobody listened was meant for something else, or for an attempt that is over.
            self._keyboard.forget()
            self._loop.add_reader(self._keyboard.fd, self._take)
            self._listening = True
        else:
            self._later = self._loop.call_later(_LOOK_AGAIN_S, self.attend)

    def pause(self) -> None:
        """Listen no more, until `attend`: the terminal is as it was found."""
        self._forget()
        self._keyboard.restore()

    def close(self) -> None:
        """It is over."""
        if self._over:
            return
        self.pause()
        self._over = True
        atexit.unregister(self._keyboard.restore)
        os.close(self._keyboard.fd)

    def _forget(self) -> None:
        if self._listening and not self._loop.is_closed():
            self._loop.remove_reader(self._keyboard.fd)
        if self._later is not None:
            self._later.cancel()
        self._listening, self._later = False, None

    def _take(self) -> None:
        if not self._keyboard.ours:
            self._forget()
            self.attend()
            return
        try:
            with tty.never_stopped():
                data = os.read(self._keyboard.fd, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # hung up
            data = b""
        if not data:
            self._forget()
            self._over = True
        elif self._known.issuperset(data):
            for key in data.decode():
                self._press(key)
