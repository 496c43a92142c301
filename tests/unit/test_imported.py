"""Whether a file has been imported, as its bytecode tells: each case with its twin."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervise.host.imported import Imported
from supervise.host.interpreter import Interpreter

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "lib" / VERSION / "site-packages"
    (path / "eng").mkdir(parents=True)
    for name in ("__init__", "used", "unused"):
        (path / "eng" / f"{name}.py").write_text(f"NAME = '{name}'\n")
    return path


def run(site: Path, what: str, *options: str, env: Mapping[str, str] | None = None) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = (
        [sys.executable, "-S", *options, *what.split()]
        if "-c" not in options
        else [sys.executable, "-S", *options, what]
    )
    subprocess.run(command, check=True, timeout=30, env={**clean, "PYTHONPATH": str(site), **(env or {})})


def watching(site: Path, env: Mapping[str, str] | None = None, program: tuple[str, ...] = ("python",)) -> Imported:
    files = [str(site / "eng" / name) for name in ("used.py", "unused.py")]
    watched = Imported(files, Interpreter(sys.executable, (str(site),)), env or {}, program)
    watched.begin()
    return watched


def unread(watched: Imported) -> list[str]:
    told, why = watched.unread()
    assert why == ""
    return [Path(path).name for path in told]


def read_all(site: Path) -> None:
    """As supervise does, to keep copies."""
    for path in (site / "eng").glob("*.py"):
        path.read_text()


@pytest.mark.parametrize("compiled", [True, False])
def test_only_an_import_counts_though_everybody_reads_the_source(site: Path, compiled: bool) -> None:
    if compiled:
        run(site, f"-m compileall -q {site}")
    watched = watching(site)
    assert unread(watched) == ["used.py", "unused.py"]
    run(site, "import eng.used", "-c")
    read_all(site)
    assert unread(watched) == ["unused.py"]
    run(site, "import eng.unused", "-c")
    assert unread(watched) == []


def test_what_was_opened_before_the_launch_does_not_count(site: Path) -> None:
    run(site, f"-m compileall -q {site}")
    watched = watching(site)
    run(site, "import eng.used", "-c")
    watched.begin()
    assert unread(watched) == ["used.py", "unused.py"]


def test_an_edit_behind_old_bytecode_and_one_saved_by_a_rename(site: Path) -> None:
    run(site, f"-m compileall -q {site}")
    watched = watching(site)
    for name in ("used", "unused"):
        (site / "new.py").write_text(f"NAME = '{name}, edited'\n")
        os.replace(site / "new.py", site / f"eng/{name}.py")
    run(site, "import eng.used", "-c")
    assert unread(watched) == ["unused.py"]


def test_who_writes_no_bytecode_is_seen_by_the_source(site: Path) -> None:
    watched = watching(site, env={"PYTHONDONTWRITEBYTECODE": "1"})
    run(site, "import eng.used", "-B", "-c")
    assert unread(watched) == ["unused.py"]
    # Then any reader counts: a false "it was read" is harmless.
    read_all(site)
    assert unread(watched) == []


def test_bytecode_elsewhere(site: Path, tmp_path: Path) -> None:
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path / "pyc")}
    run(site, "import eng.used, eng.unused", "-c", env=prefix)
    watched = watching(site, env=prefix)
    run(site, "import eng.used", "-c", env=prefix)
    assert unread(watched) == ["unused.py"]


def test_a_script_is_read_without_being_imported(site: Path) -> None:
    run(site, f"-m compileall -q {site}")
    script, other = site / "eng/used.py", site / "eng/unused.py"
    other.write_text("if __name__ == '__main__':\n    print()\n")
    watched = watching(site, program=("python", str(script)))
    run(site, str(script))
    run(site, str(other))
    assert unread(watched) == []


def test_a_directory_that_was_moved_away_proves_nothing(site: Path) -> None:
    watched = watching(site)
    os.rename(site / "eng", site / "gone")
    assert watched.unread() == ((), "the kernel has lost count")
