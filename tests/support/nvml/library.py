"""The stand-in for libnvidia-ml.so.1, built with the C compiler of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("standin.c")


def build(directory: Path) -> Path:
    """Compile it into a directory, which is returned; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    target = directory / "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return directory


def environment(library: Path, state: Path) -> dict[str, str]:
    """What a process needs to find it: the loader reads its path once, at the start."""
    return os.environ | {"LD_LIBRARY_PATH": str(library), "NVML_STANDIN": str(state)}
