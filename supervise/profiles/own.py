"""Signatures of the user's own: files beside the settings, known to every launch and to `explain`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from supervise.host import files
from supervise.model.diagnosis import Signature, SignatureSet, Trap
from supervise.profiles.errors import ProfileError
from supervise.profiles.settings import settings_dir
from supervise.profiles.signatures import parse_signatures

SHORTEST_LITERAL = 4
"""Characters of a literal: a shorter one stands in nearly every line, and each such line is looked at closely."""

_LARGEST = 4 * 1024 * 1024


def own_files(env: Mapping[str, str]) -> list[str]:
    """Find the user's files of signatures, in the order in which they count."""
    directory = os.path.join(settings_dir(env), "signatures")
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    return [os.path.join(directory, name) for name in names if name.endswith(".toml") and not name.startswith(".")]


def with_own(known: SignatureSet, env: Mapping[str, str]) -> tuple[SignatureSet, list[str]]:
    """Add what the user knows to what comes along.

    Args:
        known: the sets that come along.
        env: says where the user's files are, see `settings_dir`.

    Returns:
        Both, an entry of the user's instead of one with the same id; and a note for each file that could not be used.
    """
    notes: list[str] = []
    for path in own_files(env):
        try:
            known = joined(known, _read(path))
        except ProfileError as error:
            notes.append(f"{error}; nothing in it is used, see `supervise profiles check {path}`")
    return known, notes


def joined(known: SignatureSet, own: SignatureSet) -> SignatureSet:
    """Put entries in the place of those with the same id, and the others behind."""
    taken = {each.id for each in own.signatures} | {each.id for each in own.traps}
    return SignatureSet(
        (*(each for each in known.signatures if each.id not in taken), *own.signatures),
        (*(each for each in known.traps if each.id not in taken), *own.traps),
    )


def unfit(entry: Signature | Trap) -> tuple[str, str] | None:
    """What makes an entry a burden for every log: what is wrong, and what to do; None if nothing does."""
    for literal in entry.literals:
        if len(literal) < SHORTEST_LITERAL:
            return f"the literal {literal!r} stands in nearly every line", f"at least {SHORTEST_LITERAL} characters"
    # Nearly nobody has files of their own, and a launch waits for every import.
    from supervise.profiles.structure import trouble

    if unsafe := trouble(entry.pattern):
        return f"effort explodes: {unsafe}", "repetitions with a bound, of which no two take the same text"
    return None


def _read(path: str) -> SignatureSet:
    try:
        own = parse_signatures(files.read_regular(path, _LARGEST), path)
    except (OSError, ValueError) as error:
        if isinstance(error, ProfileError):
            raise
        said = getattr(error, "strerror", None) or str(error)
        raise ProfileError(path, "", f"cannot be read: {said}", "a file of [[signature]] tables") from error
    entries: tuple[Signature | Trap, ...] = (*own.signatures, *own.traps)
    for entry in entries:
        if found := unfit(entry):
            raise ProfileError(path, entry.id, *found)
    return own
