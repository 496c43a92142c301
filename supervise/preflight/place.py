"""Where a model is: a directory here, a snapshot in the cache of the hub, on the hub, or elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A quantized file of a repository may be named behind it: owner/name:Q4_K_M, owner/name/file.gguf
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?(?::[\w.-]+|/[^/]+\.gguf)?")
_TRUE = ("1", "on", "yes", "true")
_LONGEST_REF = 256


class Kind(StrEnum):
    """What a model's name stands for."""

    NONE = "none"
    LOCAL = "local"
    MISSING = "missing"
    FILE = "file"
    CACHED = "cached"
    HUB = "hub"
    REMOTE = "remote"


class Place(NamedTuple):
    """Where a model is: `path` of its directory, or where it would be."""

    kind: Kind
    path: str = ""


def find(model: str | None, env: Mapping[str, str], caches: Iterable[str], revision: str) -> Place:
    """Tell where a model is, as the engines do: what is a directory is one, whatever it looks like.

    Args:
        model: as given.
        env: the engine's environment.
        caches: directories that stand in for the hub's cache (`--download-dir`).
        revision: on the hub.

    Returns:
        LOCAL or FILE if it is here, MISSING for a path that leads nowhere, CACHED or HUB for a name on the hub.
    """
    if not model:
        return Place(Kind.NONE)
    if _REMOTE.match(model):
        return Place(Kind.REMOTE, model)
    if os.path.isdir(model):
        return Place(Kind.LOCAL, os.path.abspath(model))
    if os.path.exists(model):
        return Place(Kind.FILE, os.path.abspath(model))
    if model.startswith(("/", "./", "../", "~")) or not _HUB_NAME.fullmatch(model):
        return Place(Kind.MISSING, model)
    snapshot = _snapshot(model, (*caches, hub_cache(env)), revision)
    return Place(Kind.CACHED, snapshot) if snapshot else Place(Kind.HUB, model)


def offline(env: Mapping[str, str]) -> str | None:
    """The variable that forbids the hub, None if there is none (huggingface_hub, constants.py)."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next((name for name in names if env.get(name, "").lower() in _TRUE), None)


def hub_cache(env: Mapping[str, str]) -> str:
    """The hub's cache of models (huggingface_hub, constants.py)."""
    home = os.path.join(env.get("XDG_CACHE_HOME") or os.path.join(user_home(env), ".cache"), "huggingface")
    default = os.path.join(env.get("HF_HOME") or home, "hub")
    return os.path.expanduser(env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or default)


def user_home(env: Mapping[str, str]) -> str:
    """The home directory of an environment."""
    return env.get("HOME") or os.path.expanduser("~")


def _snapshot(model: str, caches: Iterable[str], revision: str) -> str | None:
    """The directory of a cached revision: what the file refs/REVISION names, or the revision itself if it is a hash."""
    for cache in caches:
        base = os.path.join(cache, "models--" + model.replace("/", "--"))
        try:
            with open(os.path.join(base, "refs", revision), encoding="utf-8") as file:
                commit = file.read(_LONGEST_REF).strip()
        except (OSError, ValueError):
            commit = revision
        path = os.path.join(base, "snapshots", commit)
        if commit and "/" not in commit and os.path.isdir(path):
            return path
    return None
