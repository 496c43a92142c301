"""The user's own standing orders: config.toml in the directory of the user's configuration."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervise.host import files
from supervise.model.evict import Evict
from supervise.profiles.errors import ProfileError
from supervise.profiles.leftovers import expand, templates
from supervise.profiles.table import Table

_STANDING = (Evict.OWN, Evict.STALE)
_LARGEST = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every launch of this user.

    `artefacts` are absolute globs of files that are removed unless somebody has them open. `protected` are searched in
    whole titles of processes: what matches is never touched. `evict` is None where the file does not say.
    """

    artefacts: tuple[str, ...] = ()
    protected: tuple[re.Pattern[str], ...] = ()
    evict: Evict | None = None


def settings_dir(env: Mapping[str, str]) -> str:
    """Where the files of this user are.

    Args:
        env: `XDG_CONFIG_HOME` counts only if it is absolute (XDG Base Directory Specification); otherwise ~/.config.

    Returns:
        A path, there or not.
    """
    base = env.get("XDG_CONFIG_HOME", "")
    # A uid without a passwd entry has no home: `~` then stands for itself, and is no directory of whoever may be here.
    home = os.path.join("/nonexistent", env.get("HOME") or os.path.expanduser("~"))
    return os.path.join(base if os.path.isabs(base) else os.path.join(home, ".config"), "supervise")


def settings_path(env: Mapping[str, str]) -> str:
    """Where the settings are, there or not.

    Args:
        env: `SUPERVISE_CONFIG` names the file; otherwise it is in `settings_dir`.

    Returns:
        A path.
    """
    if named := env.get("SUPERVISE_CONFIG"):
        return named
    return os.path.join(settings_dir(env), "config.toml")


def load_settings(env: Mapping[str, str]) -> Settings:
    """Read the user's settings.

    Args:
        env: says where they are, and fills in the templates in them.

    Returns:
        What they say; nothing if there are none.

    Raises:
        ProfileError: the file cannot be read, has an entry that does not fit, or is named and missing: whoever has
            mistyped its name would otherwise lose what it protects without a word.
    """
    path = settings_path(env)
    try:
        data = files.read_regular(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        if env.get("SUPERVISE_CONFIG"):
            raise ProfileError(path, "", "does not exist", "the file that SUPERVISE_CONFIG names") from error
        return Settings()
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or error
        raise ProfileError(path, "", f"cannot be read: {why}", "a readable file, or none") from error
    return parse_settings(data, path, env)


def parse_settings(data: bytes, file: str, env: Mapping[str, str]) -> Settings:
    """Read the text of the settings.

    Args:
        data: the TOML text.
        file: its path, for errors.
        env: what templates are filled in with.

    Returns:
        What it says.

    Raises:
        ProfileError: naming file, key, what is wrong with it, and what is allowed.
    """
    top = Table.parse(data, file)
    settings = Settings(
        artefacts=expand(templates(top, "artefacts"), env),
        protected=top.patterns("protected"),
        evict=_evict(top),
    )
    top.done()
    return settings


def _evict(table: Table) -> Evict | None:
    """A standing order never goes as far as living servers: that takes a word at the launch that it is meant for."""
    word = table.choice("evict", Evict)
    if word is None:
        return None
    if Evict(word) not in _STANDING:
        problem = f"is {word!r}, and no standing order may end living servers"
        raise table.error("evict", problem, f"{', '.join(_STANDING)} here, --evict {word} at a launch")
    return Evict(word)
