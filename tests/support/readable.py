"""Our code, its dependencies and a Python where every user may read them: a checkout may lie under a closed home."""

from __future__ import annotations

import compileall
import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Not needed to run anything, and large.
_HEAVY = ("mypy*", "ruff*", "hypothesis*", "pip*", "grimp*", "torch*", "vllm*")
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def readable_copy() -> Path:
    """A copy of the package and of the programs under test that every user can read, wherever the checkout is."""
    base = _shared_directory() / "code"
    for name in ("supervise", "profiles", "tests/support"):
        shutil.copytree(ROOT / name, base / name, ignore=shutil.ignore_patterns("__pycache__"))
    # Those users cannot write bytecode there.
    compileall.compile_dir(base / "supervise", quiet=1)
    _open_up(base)
    return base


@functools.cache
def readable_site() -> str:
    """What to import the dependencies from: our own site directories, or copies if those are closed to others."""
    found = [Path(path) for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return os.pathsep.join(str(_readable(path)) for path in found if path.is_dir())


@functools.cache
def readable_python() -> str:
    """A Python of our own version that every user can execute; skips the test if there is none."""
    version = f"python3.{sys.version_info.minor}"
    beside = [Path(sys.executable).resolve(), *(Path(at) / version for at in ("/usr/bin", "/usr/local/bin"))]
    for candidate in beside:
        if candidate.exists() and _readable_by_all(candidate):
            return str(candidate)
    pytest.skip(f"no {version} that an ordinary user may execute")


def _readable(site: Path) -> Path:
    if _readable_by_all(site):
        return site
    copy = _shared_directory() / f"site-{len(list(_shared_directory().iterdir()))}"
    shutil.copytree(site, copy, ignore=shutil.ignore_patterns("__pycache__", *_HEAVY))
    _open_up(copy)
    return copy


def _readable_by_all(path: Path) -> bool:
    resolved = [path, path.resolve()]
    return all(at.stat().st_mode & 0o005 == 0o005 for start in resolved for at in (start, *start.parents))


@functools.cache
def _shared_directory() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="supervise-test-")
    _KEPT.append(holder)
    path = Path(holder.name)
    path.chmod(0o755)
    return path


def _open_up(base: Path) -> None:
    for path in (base, *base.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def kept() -> set[str]:
    """The names in the temporary directory of what stays until `release_shared`."""
    return {os.path.basename(holder.name) for holder in _KEPT}


def release_shared() -> None:
    """Remove what `readable_copy` and `readable_python` made."""
    while _KEPT:
        _KEPT.pop().cleanup()
