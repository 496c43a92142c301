"""The command lines that install this very supervise on another host: the index is asked only if ours came from there.

A name on an index may be anybody's. What pip has recorded of a directory, an archive or a repository (PEP 610), and the
sources that lie beside a package which nobody has installed, are surely ours.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from supervise import __version__
from supervise.host import distribution, files

_NAME = "supervise-llm"
_PACKAGE_PARENT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_NEEDED = ("pyproject.toml", "README.md", "LICENSE", "supervise", "profiles")
"""What a wheel is built from; anything else that lies there (`.git`, a virtual environment) stays here."""

_ALL = "~/.local/share/supervise-sources"
_THERE = f"{_ALL}/{__version__}"
INSTALLERS = ("uv", "pipx")
"""Those that are used if the other side has them, in this order."""


class Source(NamedTuple):
    """Where this supervise comes from.

    Attributes:
        wanted: as pip takes it over there; None if nothing that is known can be had there.
        path: a file or directory on this host that has to be brought there first; None if there is none.
    """

    wanted: str | None
    path: str | None = None


def source(site: Sequence[str] = sys.path, beside: str = _PACKAGE_PARENT) -> Source:
    """Where this supervise comes from.

    Args:
        site: directories in which it may be installed, in order of search.
        beside: the directory of the package.
    """
    if _is_source(beside):
        return Source(_THERE, beside)
    found = distribution.find(_NAME, [beside, *site])
    if not found:
        return Source(None)
    told = files.read_json(os.path.join(found[0].site, found[0].info, "direct_url.json")) or {}
    url, _ = found[0].origin
    if not url:
        return Source(f"{_NAME}=={found[0].version}")
    if (path := distribution.directory_of(url)) is not None and "vcs_info" not in told:
        return _from_here(path)
    vcs = told.get("vcs_info")
    if urlsplit(url).scheme == "file":
        return Source(None)  # a repository that is a directory of this host means nothing there
    where = f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if isinstance(vcs, dict) and _is_named(vcs) else url
    below = told.get("subdirectory")
    return Source(f"{where}#subdirectory={below}" if below else where)


def lines(ssh: Sequence[str], host: str, origin: Source) -> dict[str, str]:
    """What to do about it, by what installs over there; "" if that has nothing but Python's own venv.

    Args:
        ssh: the user's ssh.
        host: as the user names it.
        origin: of this supervise.

    Returns:
        A clause with a command line for this side, if there is one.
    """
    if origin.wanted is None:
        known = "what this one was installed from is gone from here: install it there as it was here"
        return dict.fromkeys((*INSTALLERS, ""), known)
    wanted = origin.wanted if origin.path is not None else shlex.quote(origin.wanted)
    installed = {
        "uv": f"uv tool install --force {wanted}",
        "pipx": f"pipx install --force {wanted}",
        # Works where pip may not touch what the distribution has installed (PEP 668).
        "": "python3 -m venv ~/.local/supervise && "
        f"~/.local/supervise/bin/pip install --upgrade {wanted} && "
        "mkdir -p ~/.local/bin && ln -sf ~/.local/supervise/bin/supervise ~/.local/bin",
    }
    packed, taken = _brought(origin)
    return {
        by: f"this installs it there: {packed}{shlex.join([*ssh, host, taken + install])}"
        for by, install in installed.items()
    }


def _brought(origin: Source) -> tuple[str, str]:
    """What packs it here, and what unpacks it there; words that any login shell reads alike.

    Nothing is left of other sources of the same version, and what arrives by halves takes nobody's place.
    """
    if origin.path is None:
        return "", ""
    new = f"{_THERE}.new"
    if os.path.isdir(origin.path):
        packed = shlex.join(["tar", "-C", origin.path, "--exclude=__pycache__", "-cz", *_NEEDED])
        unpacked = f"tar -C {new} -xz"
    else:
        packed = shlex.join(["cat", origin.path])
        unpacked = f"cat > {new}/{shlex.quote(os.path.basename(origin.path))}"
    fresh = f"rm -rf {new} && mkdir -p {new} && {unpacked} && rm -rf {_THERE} && mv {new} {_THERE} && "
    return f"{packed} | ", fresh


def _from_here(path: str) -> Source:
    if _is_source(path):
        return Source(_THERE, path)
    name = os.path.basename(path)
    # The name of a wheel means something to pip.
    return Source(f"{_THERE}/{shlex.quote(name)}", path) if os.path.isfile(path) else Source(None)


def _is_source(directory: str) -> bool:
    return all(os.path.exists(os.path.join(directory, name)) for name in _NEEDED)


def _is_named(vcs: dict[str, object]) -> bool:
    return isinstance(vcs.get("vcs"), str) and isinstance(vcs.get("commit_id"), str)
