"""What was written since a launch: it may have been imported with either content."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from supervise.preflight.edited import changed_since

LONG_AGO, SOON = 0, 1 << 62


@pytest.fixture
def site(tmp_path: Path) -> Path:
    made = tmp_path / "site-packages"
    for name in ("vllm/core.py", "vllm/data.json", "other/x.py"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).touch()
    return made


def names(paths: tuple[str, ...]) -> list[str]:
    return [Path(path).name for path in paths]


def test_of_a_package_and_of_what_is_watched(site: Path, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for name in ("serve.yaml", "notes.txt"):
        (tmp_path / "work" / name).touch()
    work = [str(tmp_path / "work")]
    assert names(changed_since(LONG_AGO, [str(site)], ["vllm"], work)) == ["core.py", "serve.yaml"]
    assert changed_since(SOON, [str(site)], ["vllm"], work) == ()


def test_the_clock_of_a_file_may_be_a_tick_behind(site: Path) -> None:
    changed_ns = (site / "vllm/core.py").stat().st_ctime_ns
    assert names(changed_since(changed_ns + 4_000_000, [str(site)], ["vllm"], ())) == ["core.py"]
    assert changed_since(changed_ns + 40_000_000, [str(site)], ["vllm"], ()) == ()


@pytest.mark.parametrize("below", ["", "src"])
def test_of_an_editable_installation(site: Path, tmp_path: Path, below: str) -> None:
    package = tmp_path / "checkout" / below / "engine"
    package.mkdir(parents=True)
    (package / "core.py").touch()
    info = site / "engine-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("engine-1.0.dist-info/RECORD,,\n__editable__.engine.pth,sha256=x,1\n")
    url = {"url": f"file://{tmp_path / 'checkout'}", "dir_info": {"editable": True}}
    (info / "direct_url.json").write_text(json.dumps(url))
    assert changed_since(LONG_AGO, [str(site)], ["engine"], ()) == (str(package / "core.py"),)
    assert changed_since(time.time_ns() + 10**9, [str(site)], ["engine"], ()) == ()
