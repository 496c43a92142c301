"""Who may import from a directory: told from what a process is, not from what it was launched as."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervise.host import importers, procfs
from supervise.host.interpreter import Interpreter


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "v/lib/python3.12/site-packages"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("line", "leads"),
    [
        ("{wanted}", True),
        ("../../../../wanted/site", True),
        ("{wanted}/below", True),
        ("import site; site.addsitedir('{wanted}')", True),
        ("import __editable___x_finder; __editable___x_finder.install()", True),
        ("# {wanted}", False),
        ("{wanted}-not", False),
        ("import os; var = 'SETUPTOOLS_USE_DISTUTILS'", False),
    ],
)
def test_a_pth_file_leads_elsewhere(site: Path, tmp_path: Path, line: str, leads: bool) -> None:
    wanted = tmp_path / "wanted/site"
    wanted.mkdir(parents=True)
    (site / "__editable___x_finder.py").write_text(f"MAPPING = {{'x': '{wanted}/x'}}\n")
    (site / "x.pth").write_text(f"\n{line.format(wanted=wanted)}\n")
    assert importers.searches(Interpreter("/v/bin/python", (str(site),)), [str(wanted)]) is leads


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for each in found:
        if each.returncode is None:
            each.kill()
            each.communicate(timeout=30)


def sleeping(started: list[subprocess.Popen[bytes]], **how: object) -> procfs.Process:
    """A Python that has begun, and waits."""
    program = "import sys; sys.stdout.write('x'); sys.stdout.flush(); sys.stdin.read()"
    process = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **how
    )
    started.append(process)
    assert process.stdout.read(1) == b"x"
    found = procfs.read(process.pid)
    assert found is not None
    return found


def test_a_python_is_asked_where_it_searches(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    wanted.mkdir()
    apart = sleeping(started, env={**os.environ, "PYTHONPATH": ""})
    assert not importers.any_may([apart], [str(wanted)])
    led = sleeping(started, env={**os.environ, "PYTHONPATH": str(wanted)})
    assert importers.any_may([apart, led], [str(wanted)])
    beside = sleeping(started, cwd=wanted)
    assert importers.any_may([beside], [str(wanted)])


def test_one_that_calls_itself_something_else_is_like_the_one_with_its_program(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    parent, child = sleeping(started), sleeping(started)
    renamed = replace(child, argv=("VLLM::EngineCore",))
    assert importers.any_may([renamed], [str(tmp_path)])
    assert not importers.any_may([parent, renamed], [str(tmp_path)])


def test_one_that_is_gone_imports_nothing(started: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    process = sleeping(started)
    started[0].kill()
    started[0].communicate(timeout=30)
    assert not importers.any_may([process], [str(tmp_path)])
