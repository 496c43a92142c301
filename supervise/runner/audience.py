"""Everybody who listens to what happens to a run; none of them can do it any harm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from supervise.model.news import News
    from supervise.report.console import Console


class Listener(Protocol):
    """Is told of everything, in the loop's thread, and never blocks it."""

    def hear(self, news: News) -> None:
        """Something has happened."""

    def close(self) -> None:
        """Nothing more will."""


class Audience:
    """Tells all of them.

    Args:
        listeners: those who are there from the beginning.
        console: where it is said that one of them has failed.
    """

    def __init__(self, listeners: Sequence[Listener], console: Console) -> None:
        self._listeners, self._console = list(listeners), console

    def join(self, listener: Listener) -> None:
        """One more."""
        self._listeners.append(listener)

    def tell(self, news: News) -> None:
        """Tell them; one that fails is told nothing any more."""
        for listener in tuple(self._listeners):
            try:
                listener.hear(news)
            except Exception as error:  # noqa: BLE001 - the server must not end for one who listens
                self._listeners.remove(listener)
                self._console.error(f"{_name(listener)} fails and is not used any more: {_told(error)}")

    def close(self) -> None:
        """It is over."""
        for listener in self._listeners:
            try:
                listener.close()
            except Exception as error:  # noqa: BLE001 - likewise
                self._console.error(f"{_name(listener)}: {_told(error)}")
        self._listeners.clear()


def _name(listener: Listener) -> str:
    return type(listener).__name__.lower()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
