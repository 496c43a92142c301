"""Loads and validates sets of leftovers: profiles/leftovers/*.toml; and fills in their templates."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from supervise.model.rules import LeftoverRules, join
from supervise.profiles import data_dir
from supervise.profiles.errors import ProfileError
from supervise.profiles.table import Table

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_]\w*)(?::-(?P<default>(?:[^{}]|\{[a-z]+\}|\$\{[^{}]*\})*))?\}")
_BRACE = re.compile(r"\{(?P<name>[a-z]+)\}")
_PLACEHOLDERS = ("tmp", "user", "uid")


@cache
def load_rules(names: tuple[str, ...]) -> LeftoverRules:
    """Load the named sets as one.

    Args:
        names: file names in profiles/leftovers/ without `.toml`.

    Returns:
        What they say together.

    Raises:
        ProfileError: a set does not exist, cannot be read, or has an entry that does not fit.
    """
    return join(_load(name) for name in dict.fromkeys(names))


def available_rules() -> tuple[str, ...]:
    """Name all sets there are, sorted."""
    return tuple(sorted(path.stem for path in _directory().glob("*.toml")))


def parse_rules(data: bytes, file: str) -> LeftoverRules:
    """Read one set.

    Args:
        data: the TOML text.
        file: its path, for errors.

    Returns:
        What it says.

    Raises:
        ProfileError: naming file, key, what is wrong with it, and what is allowed.
    """
    top = Table.parse(data, file)
    caches = top.table("caches")
    rules = LeftoverRules(
        segments=top.patterns("segments"),
        anonymous=top.patterns("anonymous"),
        sockets=top.patterns("sockets"),
        batons=templates(top, "batons"),
        soft_locks=templates(top, "soft_locks"),
        artefacts=templates(top, "artefacts"),
        sessions=templates(top, "sessions"),
        keep=templates(top, "keep"),
        caches={word: templates(caches, word) for word in caches.present()},
    )
    top.done()
    return rules


def expand(templates: Iterable[str], env: Mapping[str, str]) -> tuple[str, ...]:
    """Fill in templates.

    Args:
        templates: with `~`, `{tmp}`, `{user}`, `{uid}`, `${NAME}` and `${NAME:-default}`; a default may hold templates.
        env: the environment that the server will see.

    Returns:
        Absolute paths or globs; one that needs a variable that is not set, or that is not absolute, is left out.
    """
    filled = (_fill(template, env) for template in templates)
    return tuple(dict.fromkeys(os.path.normpath(path) for path in filled if path and os.path.isabs(path)))


def temporary(env: Mapping[str, str]) -> str:
    """The directory for temporary files as this environment has it."""
    return env.get("TMPDIR") or "/tmp"


def _fill(template: str, env: Mapping[str, str]) -> str | None:
    for _ in range(4):
        match = _VARIABLE.search(template)
        if match is None:
            break
        value = env.get(match["name"]) or match["default"]
        if value is None:
            return None
        template = template[: match.start()] + value + template[match.end() :]
    values = {"tmp": temporary(env), "user": env.get("USER") or _user(), "uid": str(os.geteuid())}
    text = _BRACE.sub(lambda match: values[match["name"]], template)
    return env.get("HOME", os.path.expanduser("~")) + text[1:] if text.startswith("~/") else text


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.geteuid())


def _directory() -> Path:
    return data_dir() / "leftovers"


def _load(name: str) -> LeftoverRules:
    path = _directory() / f"{name}.toml"
    if name not in available_rules():
        raise ProfileError(str(path), "leftovers", f"no set is called {name!r}", ", ".join(available_rules()))
    return parse_rules(path.read_bytes(), str(path))


def templates(table: Table, key: str) -> tuple[str, ...]:
    """Take a list of templates that `expand` can fill in.

    Raises:
        ProfileError: one of them uses what is not known, or can never be absolute.
    """
    found = table.texts(key)
    for index, template in enumerate(found):
        unknown = [m["name"] for m in _BRACE.finditer(_VARIABLE.sub("", template)) if m["name"] not in _PLACEHOLDERS]
        if unknown:
            allowed = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS) + ", ${NAME:-default}"
            raise table.error(f"{key}[{index}]", f"uses {{{unknown[0]}}}", allowed)
        if not template.startswith(("/", "~/", "{tmp}", "${")):
            raise table.error(f"{key}[{index}]", f"is {template!r}", "an absolute path, ~/…, {tmp}/… or ${NAME:-…}")
    return found
