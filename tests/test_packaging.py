"""What is shipped is complete: the wheel, built from this tree, works where there is no tree."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.readable import ROOT

pytest.importorskip("hatchling.build", reason="the wheel is built offline, so hatchling must be here")


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built in a process of its own: the builder works on its current directory."""
    target = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; build_wheel({str(target)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True, timeout=60)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def _run(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`supervise` from the unpacked wheel, somewhere else."""
    env = os.environ | {"PYTHONPATH": str(site), "HOME": str(site), "XDG_STATE_HOME": str(site / "state")}
    command = [sys.executable, "-m", "supervise", *words]
    return subprocess.run(command, env=env, cwd=site.parent, capture_output=True, text=True, timeout=30, check=False)


def test_every_module_and_every_profile_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "supervise").rglob("*.py")}
    profiles = {
        f"supervise/_profiles/{path.relative_to(ROOT / 'profiles')}" for path in ROOT.glob("profiles/**/*.toml")
    }
    assert {"supervise/_profiles/vllm.toml", "supervise/_profiles/signatures/vllm.toml"} <= profiles
    assert modules | profiles <= names


def test_nothing_else_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    info = f"supervise_llm-{_project()['version']}.dist-info/"
    assert [name for name in names if not name.startswith(("supervise/", info))] == []
    assert [name for name in names if not name.endswith((".py", ".toml", "py.typed")) and info not in name] == []
    assert f"{info}licenses/LICENSE" in names


def test_the_entry_point_is_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        text = archive.read(name).decode()
    assert text.split() == ["[console_scripts]", "supervise", "=", "supervise.cli:main"]


def test_the_versions_are_the_same(unpacked: Path) -> None:
    assert _run(unpacked, "--version").stdout == f"supervise {_project()['version']}\n"


def test_it_finds_its_profiles(unpacked: Path) -> None:
    listed = _run(unpacked, "profiles")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["generic", "sglang", "vllm"], listed.stderr
    shown = _run(unpacked, "profiles", "vllm")
    assert f"file      {unpacked}/supervise/_profiles/vllm.toml" in shown.stdout.splitlines(), shown.stderr


def test_it_launches(unpacked: Path) -> None:
    """The keeper is started from there as well, and every signature file is read."""
    launched = _run(unpacked, "--profile", "vllm", "--name", "unpacked", sys.executable, "-c", "raise SystemExit(7)")
    assert launched.returncode == 7, launched.stderr
