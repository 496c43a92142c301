"""What a server holds that others want, or that stays behind: sockets and shared memory."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import uuid
from multiprocessing.shared_memory import SharedMemory


class Holdings:
    """All of it.

    Attributes:
        socket: the one to serve on, bound, not yet listening; None until it is bound.
    """

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self._segment: SharedMemory | None = None
        self._ipc: list[socket.socket] = []

    def bind(self, host: str, port: int, path: str | None) -> None:
        """Take the address to serve on: a Unix socket if there is a path, else host and port."""
        if path:
            bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            bound.bind(path)
        else:
            bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, port))
        self.socket = bound

    def take_shared_memory(self, size: int) -> None:
        """A segment of so many bytes, named as Python's multiprocessing does; none of 0."""
        if size:
            self._segment = SharedMemory(f"psm_{secrets.token_hex(4)}", create=True, size=size)

    def take_ipc_sockets(self, count: int) -> None:
        """So many Unix sockets, where vLLM has them."""
        base = os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir()
        for _ in range(count):
            ipc = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            ipc.bind(os.path.join(base, str(uuid.uuid4())))
            ipc.listen()
            self._ipc.append(ipc)

    def release(self) -> None:
        """Close the sockets, in a process that is not to hold them."""
        if self.socket is not None:
            self.socket.close()
        for ipc in self._ipc:
            ipc.close()
