"""`supervise healthcheck` without a parser: it is asked every few seconds, beside a server that wants the processor."""

from __future__ import annotations

from collections.abc import Sequence

FLAGS = ("--startup", "--ready", "--live")


def checked(words: Sequence[str]) -> int | None:
    """Answer a command line that can be read without a parser.

    Args:
        words: those after `healthcheck`.

    Returns:
        The exit status; None where there is something to explain: help, or a mistake.
    """
    flags = {word for word in words if word in FLAGS}
    names = [word for word in words if word not in FLAGS]
    if len(flags) > 1 or len(names) > 1 or any(name.startswith("-") for name in names):
        return None
    from supervise.verbs.healthcheck import Asked, healthcheck

    asked = Asked(flags.pop().removeprefix("--")) if flags else Asked.READY
    return healthcheck(names[0] if names else None, asked)
