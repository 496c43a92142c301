"""Who has a device file open, with files that stand for devices."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import gpudevices

HOLD = "import sys; files = [open(path) for path in sys.argv[1:]]; print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in place of /dev, with two NVIDIA GPUs."""
    for name in ("nvidia0", "nvidia1", "nvidiactl", "renderD128"):
        (tmp_path / name).touch()
    monkeypatch.setattr(gpudevices, "_NVIDIA", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(gpudevices, "_KFD", str(tmp_path / "kfd"))
    monkeypatch.setattr(gpudevices, "_RENDER", str(tmp_path / "renderD*"))
    return tmp_path


@pytest.fixture
def holder(dev: Path) -> Iterator[int]:
    """Has one GPU open, and what every program has that only looks at GPUs."""
    (dev / "kfd").touch()
    paths = [str(dev / name) for name in ("nvidia1", "nvidiactl", "kfd", "renderD128")]
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        yield child.pid
        child.kill()


def test_who_has_it_open_is_found_by_path(dev, holder):
    paths = [str(dev / name) for name in ("kfd", "nvidia1", "renderD128")]
    assert gpudevices.openers() == dict.fromkeys(paths, (holder,))


def test_a_render_node_alone_is_a_display_s(dev, holder):
    (dev / "kfd").unlink()
    assert gpudevices.openers() == {str(dev / "nvidia1"): (holder,)}


def test_without_device_files_nobody_is_looked_at(tmp_path, monkeypatch):
    for name in ("_NVIDIA", "_KFD", "_RENDER"):
        monkeypatch.setattr(gpudevices, name, str(tmp_path / "none"))
    monkeypatch.setattr(gpudevices, "_opened", lambda _pid: pytest.fail("looked"))
    assert gpudevices.openers() == {}
