"""The door to calls that may never come back, each in a thread of its own that is left behind then."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Beside(Generic[_T]):
    """One such call, which begins at once.

    Not `threading.Thread`, whose start waits for ever for a thread that dies before its first line, as it may where
    memory is short.

    Args:
        function: what is called; what it raises is raised by `result`.

    Raises:
        OSError: no thread can be started.
    """

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function = function
        self._results: list[_T] = []
        self._error: BaseException | None = None
        self._began = False
        self._done = _thread.allocate_lock()
        self._done.acquire()
        try:
            _thread.start_new_thread(self._run, ())
        except (RuntimeError, MemoryError) as error:
            raise OSError(f"no thread can be started: {error}") from None

    @property
    def runs(self) -> bool:
        """Whether it has begun and not come back."""
        return self._began and self._done.locked()

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; whether it has come back."""
        if not self._done.acquire(timeout=max(0.0, seconds)):
            return False
        self._done.release()
        return True

    def result(self) -> _T:
        """What it has returned; only once it has come back.

        Raises:
            BaseException: whatever it has raised.
        """
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _run(self) -> None:
        self._began = True
        try:
            self._results.append(self._function())
        except BaseException as error:  # noqa: BLE001 - raised to whoever waits
            self._error = error
        finally:
            self._done.release()
