"""`-H HOST`, before a parser: what follows is for a supervise over there, which has a parser of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from supervise.model.exits import Exit

_SHORT, _LONG = "-H", "--host"


def enter(argv: Sequence[str]) -> list[str]:
    """Go to the host that is named first, if one is; does not come back then.

    Args:
        argv: all words after `supervise`.

    Returns:
        The words that are to be carried out here: all, or those that whoever has come from elsewhere has for us.

    Raises:
        RuntimeError: no thread can be started to hear of whoever has come from elsewhere.
    """
    from supervise.host import leash
    from supervise.verbs.select import say

    if argv[0].startswith(leash.FLAG):
        told = leash.Told.read(argv[0])
        if told is None:
            say(f"supervise: {argv[0]}: this is what supervise -H says to another supervise, and of another version")
            sys.exit(Exit.USAGE)
        if note := leash.begin(told):
            say(f"{'note':<8} {note}")
        return list(argv[1:])
    named = split(argv)
    if named is None:
        return list(argv)
    host, words = named
    if not host or host.startswith("-"):
        say("supervise: -H takes a host that ssh knows: supervise -H [USER@]HOST [VERB or OPTIONS] …")
        sys.exit(Exit.USAGE)
    from supervise.verbs.remote import remote

    sys.exit(remote(host, words))


def split(argv: Sequence[str]) -> tuple[str, list[str]] | None:
    """The host and what is to be done there; no host in its place is an empty one; None if nobody asks for one.

    Only as the first word: `vllm serve … --host` is the server's.
    """
    first = argv[0]
    if first in (_SHORT, _LONG):
        return (argv[1] if len(argv) > 1 else ""), list(argv[2:])
    if first.startswith(f"{_LONG}="):
        return first.partition("=")[2], list(argv[1:])
    if first.startswith(_SHORT) and not first.startswith("--"):
        return first.removeprefix(_SHORT), list(argv[1:])
    return None
