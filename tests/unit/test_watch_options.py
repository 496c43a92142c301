"""What is watched: paths, packages of the server's Python, and whose bytecode is looked at for that."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer

from supervise.cli.restarts import RestartOptions
from supervise.model.watch import OnChange
from supervise.profiles.errors import ProfileError
from supervise.runner import clearing
from supervise.runner.plan import Options, make


@pytest.fixture
def package(tmp_path: Path) -> Path:
    made = tmp_path / "site/mypackage"
    made.mkdir(parents=True)
    (made / "__init__.py").touch()
    return made


def options(*watch: str, on_change: OnChange = OnChange.NOW) -> RestartOptions:
    return RestartOptions(watch=list(watch) or None, on_change=on_change)


def test_paths_are_absolute_and_each_is_watched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = options(".", str(tmp_path), "package:vllm", "package:vllm")
    assert given.watched() == (str(tmp_path), "package:vllm")
    assert given.policy() is None


@pytest.mark.parametrize("given", ["", "nope", "package:", "package:../x"])
def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(typer.BadParameter, match="there is no such file or directory"):
        options(given).watched()


def test_what_becomes_of_changes_that_nobody_looks_for() -> None:
    with pytest.raises(typer.BadParameter, match="--on-change ask: name what is watched with --watch"):
        options(on_change=OnChange.ASK).watched()


def test_a_package_is_what_the_server_would_import(package: Path) -> None:
    env = {"PYTHONPATH": str(package.parent), "PATH": "/usr/bin"}
    made = make([sys.executable, "-m", "x"], env, Options(watch=("package:mypackage", "/a", str(package))))
    assert made.options.watch == (str(package), "/a")
    with pytest.raises(ProfileError, match=f"--watch: package:nosuch: not found for {sys.executable}"):
        make([sys.executable, "-m", "x"], env, Options(watch=("package:nosuch",)))
    with pytest.raises(ProfileError, match="the server's Python is not known"):
        make(["/bin/sleep", "1"], env, Options(watch=("package:mypackage",)))


def test_stale_bytecode_is_looked_for_in_what_is_watched(package: Path) -> None:
    file = package / "__init__.py"
    watch = (str(package.parent), str(package), str(file))
    request = clearing.for_launch(make([sys.executable, "-m", "x"], {}, Options(watch=watch)), ())
    assert request.packages == watch[:2]
    assert request.python == sys.executable
    request = clearing.for_launch(make([sys.executable, "-m", "x"], {}, Options(watch=(str(file),))), ())
    assert request.packages == ()
