"""Engines as data: profiles/*.toml, how a command line is matched to one, and what it then needs."""

from __future__ import annotations

from pathlib import Path

from supervise.profiles.errors import ProfileError

_HERE = Path(__file__).resolve().parent


def data_dir() -> Path:
    """Find the directory of the profile files.

    Returns:
        `supervise/_profiles` of an installed wheel, else `profiles/` beside the package of a source tree.

    Raises:
        ProfileError: there is neither; the installation is incomplete.
    """
    candidates = (_HERE.parent / "_profiles", _HERE.parent.parent / "profiles")
    found = next((path for path in candidates if path.is_dir()), None)
    if found is None:
        raise ProfileError(str(candidates[0]), "", "is missing", "an installation that holds the profile files")
    return found
