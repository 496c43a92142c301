"""How much of a log is read in full for the sake of one thing that it says again and again."""

from __future__ import annotations

_STRETCH = 64 * 1024 * 1024


class Tolerance:
    """Keeps account of the bytes that each literal had read in full.

    What has had its share is not looked for until the stretch is over. From then on it is known for noise, and has one
    occurrence of each stretch read.

    Attributes:
        ignored: what is not looked for now.
    """

    def __init__(self) -> None:
        self.ignored: frozenset[str] = frozenset()
        self._allowance: int | None = None
        self._spent: dict[str, int] = {}
        self._noise: set[str] = set()
        self._passed = 0

    @property
    def tired(self) -> bool:
        """Whether anything is not looked for."""
        return bool(self.ignored)

    def go_on(self, size: int, allowance: int | None) -> None:
        """Go on in the log.

        Args:
            size: by so many bytes.
            allowance: bytes that one thing may have read in full from now on; None for all.
        """
        self._allowance = allowance
        self._passed += size
        if allowance is None or self._passed >= _STRETCH:
            self.ignored, self._passed = frozenset(), 0
            self._spent.clear()

    def charge(self, name: str, size: int) -> None:
        """Note what was read.

        Args:
            name: for the sake of what.
            size: bytes.
        """
        if self._allowance is None or name in self.ignored:
            return
        spent = self._spent[name] = self._spent.get(name, 0) + size
        if spent > (0 if name in self._noise else self._allowance):
            self._noise.add(name)
            self.ignored |= {name}
