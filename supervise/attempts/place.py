"""Where the state of all runs is kept: one rule for whoever launches and for whoever asks later.

A container often has no home directory that can be written: a read-only root, a random uid, `HOME=/`. Then it is kept
where everybody can write, in a directory that is ours alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_PRIVATE = 0o700
_EVERYBODYS = "/tmp"


class Place(NamedTuple):
    """The directory of the store; `note` is for people where it is not the one that they would look for."""

    root: str
    note: str | None = None


class PlaceError(Exception):
    """There is none; the text says what was tried and what to do."""


def default_root(env: Mapping[str, str]) -> str:
    """Where runs are kept, without making anything: for whoever asks.

    Args:
        env: our environment.

    Returns:
        systemd's $STATE_DIRECTORY, supervise/ in $XDG_STATE_HOME or in ~/.local/state; where no home directory can be
        written, the first private directory of ours in $XDG_RUNTIME_DIR, $TMPDIR or /tmp.
    """
    if (chosen := _chosen(env)) is not None:
        return chosen
    home = _at_home(env)
    if home is not None and _can_be_made(home):
        return home
    instead = next((path for path in _instead(env) if _distrust(path) is None), None)
    # A home that became read-only while something ran still has its records.
    return instead or home or _first_instead(env)


def settle(env: Mapping[str, str]) -> Place:
    """The same for whoever launches: a directory that stands in for the home directory is made.

    Args:
        env: our environment.

    Raises:
        PlaceError: nothing can be written, or what can is not ours alone.
    """
    home = _at_home(env)
    if (chosen := _chosen(env)) is not None:
        return Place(chosen)
    if home is not None and _can_be_made(home):
        return Place(home)
    lack = "there is no home directory" if home is None else f"{home} cannot be written"
    refused = []
    for path in _instead(env):
        if (why := _make(path)) is None:
            return Place(path, f"{lack}: state is kept in {path}; XDG_STATE_HOME chooses another place")
        refused.append(f"{path} ({why})")
    raise PlaceError(f"no state directory: {lack}, nor {', '.join(refused)}; set XDG_STATE_HOME to a writable place")


def _chosen(env: Mapping[str, str]) -> str | None:
    """What somebody has said is never replaced by a guess, whether or not it can be written."""
    if state := env.get("STATE_DIRECTORY"):
        return state.split(":", maxsplit=1)[0]
    base = env.get("XDG_STATE_HOME")
    return os.path.join(base, "supervise") if base else None


def _at_home(env: Mapping[str, str]) -> str | None:
    home = env.get("HOME") or os.path.expanduser("~")
    # A uid without a passwd entry has none: then `~` stands for itself (os.path.expanduser).
    return os.path.join(home, ".local", "state", "supervise") if os.path.isabs(home) else None


def _can_be_made(path: str) -> bool:
    """Whether a directory can be written, or the nearest of its parents that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)


def _instead(env: Mapping[str, str]) -> Iterator[str]:
    """Where else it may be, best first."""
    if os.path.isabs(runtime := env.get("XDG_RUNTIME_DIR", "")):
        yield os.path.join(runtime, "supervise")
    named = env.get("TMPDIR", "")
    for base in dict.fromkeys((named if os.path.isabs(named) else _EVERYBODYS, _EVERYBODYS)):
        yield os.path.join(base, f"supervise-{os.geteuid()}")


def _first_instead(env: Mapping[str, str]) -> str:
    return next(_instead(env))


def _make(path: str) -> str | None:
    """Make a private directory; why it is none, if it is not."""
    try:
        os.mkdir(path, _PRIVATE)
    except FileExistsError:
        pass
    except OSError as error:
        return error.strerror
    return _distrust(path)


def _distrust(path: str) -> str | None:
    """Why a directory is not ours alone; None if it is. Others can make names in /tmp, and links."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return error.strerror
    if not stat.S_ISDIR(found.st_mode):
        return "is no directory"
    if found.st_uid != os.geteuid():
        return f"belongs to uid {found.st_uid}"
    if found.st_mode & 0o077:
        return "is open to others; chmod 700 it"
    return None if os.access(path, os.W_OK | os.X_OK) else "cannot be written"
