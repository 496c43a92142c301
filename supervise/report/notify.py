"""The socket on which a service manager hears from its service (sd_notify(3)): assignments in, one datagram out."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping
from typing import Self

_AGAIN_S = 0.2
_SOON_S = 1.0
# Only one of them can be true; what was true before need not be told any more.
_STATES = frozenset({"READY", "RELOADING", "STOPPING"})
_BUSY = frozenset({errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM})


class Notify:
    """Never blocks and never raises: that a manager does not listen is said once, and the server goes on.

    What finds its queue full is kept, the newest of each name, and sent again.

    Args:
        address: a path, or a name in the abstract namespace that begins with a zero byte (unix(7)).
        complain: is told why it fails.
    """

    def __init__(self, address: str, complain: Callable[[str], object]) -> None:
        self._address, self._complain = address, complain
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._kept: dict[str, str] = {}
        self._again: asyncio.TimerHandle | None = None
        self._said = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str], complain: Callable[[str], object]) -> Self | None:
        """The one that we were given, if any.

        Args:
            env: our environment; NOTIFY_SOCKET is a path or `@name`. Other kinds (vsock, for virtual machines) are none
                that a service can be given, and count as absent.
            complain: is told why it fails.
        """
        given = env.get("NOTIFY_SOCKET", "")
        if len(given) < 2 or given[0] not in "/@":
            return None
        return cls("\0" + given[1:] if given[0] == "@" else given, complain)

    @property
    def waits(self) -> bool:
        """Whether something could not be told yet."""
        return bool(self._kept)

    def send(self, **assignments: object) -> None:
        """Tell it of these, in one datagram, and of what was to be told soon."""
        self._keep(assignments)
        self._flush()

    def soon(self, **assignments: object) -> None:
        """Tell it within a second, and only of the newest of each name until then."""
        self._keep(assignments)
        self._later(_SOON_S)

    def close(self) -> None:
        """Nothing more will be told."""
        self._flush()
        if self._again is not None:
            self._again.cancel()
        self._socket.close()

    def _keep(self, assignments: Mapping[str, object]) -> None:
        for name, value in assignments.items():
            slot = "state" if name in _STATES else name
            self._kept.pop(slot, None)
            self._kept[slot] = f"{name}={value}"

    def _flush(self) -> None:
        if not self._kept:
            return
        try:
            self._socket.sendto("\n".join(self._kept.values()).encode("utf-8", "replace"), self._address)
        except OSError as error:
            if error.errno in _BUSY:
                self._later(_AGAIN_S)
                return
            self._kept.clear()
            if not self._said:
                self._said = True
                shown = self._address.replace("\0", "@", 1)
                self._complain(f"the service manager does not listen on {shown}: {error.strerror or error}")
            return
        self._kept.clear()

    def _later(self, delay_s: float) -> None:
        if self._again is None:
            with contextlib.suppress(RuntimeError):  # without a loop, with the next datagram
                self._again = asyncio.get_running_loop().call_later(delay_s, self._retry)

    def _retry(self) -> None:
        self._again = None
        self._flush()


def microseconds(seconds: float) -> int:
    """As sd_notify(3) has every time."""
    return max(1, round(seconds * 1e6))
