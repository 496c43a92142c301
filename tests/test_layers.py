"""Imports go downward only, and the core is pure: import-linter says so, and says no when it is not so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readable import ROOT

LINT = (
    "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True, is_debug_mode=False))"
)


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in this directory, by the contracts in its pyproject.toml."""
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tree)!r}); {LINT}"],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_contracts_are_kept() -> None:
    linted = lint(ROOT)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    assert "Contracts: 2 kept, 0 broken." in linted.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("host/files.py", "import supervise.slate.sweep", "Imports go downward only"),
        ("group/wire.py", "import supervise.diagnosis.lines", "Imports go downward only"),
        ("slate/judge.py", "import os", "The core is pure"),
        ("diagnosis/lines.py", "import psutil", "The core is pure"),
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, line: str, broken: str) -> None:
    shutil.copytree(ROOT / "supervise", tmp_path / "supervise", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "supervise" / module
    path.write_text(f"{path.read_text()}\n{line}\n")
    linted = lint(tmp_path)
    assert linted.returncode != 0
    assert [line for line in linted.stdout.splitlines() if line.startswith(broken) and line.endswith("BROKEN")], linted
