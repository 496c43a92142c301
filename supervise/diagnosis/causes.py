"""Finds the line inside of an exception's message that says more exactly what went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable

from supervise.diagnosis.builds import is_error, wraps_build
from supervise.diagnosis.styles import names_exception

_PYDANTIC = re.compile(r"(?:[\w.]*ValidationError: )?\d+ validation errors? for ")
_PYDANTIC_CAUSE = re.compile(r"\s+(?:(?:Value error|Assertion failed), \S|\S.*\[type=\w+)")
# What these raise was raised elsewhere, and their message quotes it.
_CARRIERS = re.compile(
    r"(?:ray\.exceptions\.|RayTaskError\b|RayActorError\b|ActorDiedError\b).*"
    r"|[\w.]*ExceptionGroup: .*\(\d+ sub-exceptions?\)$"
    r"|[\w.]*RemoteTraceback: ?$"
)
_RAISED = re.compile(r".* raised:$")
_TRITON = re.compile(r"[\w.]*CompilationError: at \d+:\d+:")
_CARET = re.compile(r"\s*\^+\s*$")


class Seeker:
    """Watches the lines of a message.

    Args:
        text: the exception's line.
    """

    def __init__(self, text: str) -> None:
        self._finds = _finder(text)

    @property
    def waits(self) -> bool:
        """Whether the message is known to quote a cause that has not come yet."""
        return self._finds is not None

    def feed(self, text: str) -> bool:
        """Take the next line of the message.

        Args:
            text: the line's text, read as in a plain traceback.

        Returns:
            Whether it is the cause, more exactly than any line before. A cause may quote another one.
        """
        if self._finds is None or not self._finds(text):
            return False
        self._finds = _finder(text)
        return True


def carries(text: str) -> bool:
    """Whether an exception only carries another one, which its message quotes."""
    return _CARRIERS.match(text) is not None


def _finder(text: str) -> Callable[[str], bool] | None:
    if _PYDANTIC.match(text):
        return lambda line: _PYDANTIC_CAUSE.match(line) is not None
    if carries(text):
        return lambda line: names_exception(line, surely=True) and not carries(line)
    if _RAISED.match(text):
        return lambda line: names_exception(line)
    if _TRITON.match(text):
        return _after_caret()
    return is_error if wraps_build(text) else None


def _after_caret() -> Callable[[str], bool]:
    """Triton quotes the kernel's source up to a caret, and says what is wrong there in the next line."""
    passed = False

    def finds(line: str) -> bool:
        nonlocal passed
        found = passed and bool(line.strip())
        passed = passed or _CARET.match(line) is not None
        return found

    return finds
