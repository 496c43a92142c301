"""What a person sees and types: the other side of a pseudo-terminal."""

from __future__ import annotations

import os
import select


class Screen:
    """Its holder's side.

    Attributes:
        master: the descriptor of it.
        seen: everything that has been shown.
    """

    master: int
    seen: bytes

    def look(self) -> bytes:
        """All that was seen until now."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.seen += os.read(self.master, 65536)
            except OSError:  # EIO: nobody has the other side open
                break
        return self.seen

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.master, keys.encode())
