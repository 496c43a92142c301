"""The archive of what files were when they were published."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from supervise.host import copying, distribution, originals
from supervise.host.distribution import Distribution
from supervise.host.originals import Originals
from supervise.model.sources import Base, Root
from tests.support.wheels import MODEL, Wheel


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path / "venv")


@pytest.fixture
def kept(tmp_path: Path) -> Originals:
    return Originals(str(tmp_path / "state/.originals"))


def installed(wheel: Wheel) -> Distribution:
    (found,) = distribution.installed(str(wheel.site))
    return found


def keep(kept: Originals, wheel: Wheel) -> None:
    kept.keep(installed(wheel), installed(wheel).record())


def root(wheel: Wheel, version: str = "9.9") -> Root:
    return Root("vllm", str(wheel.site), Base.WHEEL, version)


def archives(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state/.originals").glob("*"))


def test_an_edited_file_has_its_original(kept: Originals, wheel: Wheel) -> None:
    assert kept.original(root(wheel), "vllm/model.py") is None
    keep(kept, wheel)
    wheel.model.write_text("raise SystemExit\n")
    assert kept.original(root(wheel), "vllm/model.py") == MODEL.encode()
    assert kept.original(root(wheel), "vllm/other.py") is None
    assert kept.original(root(wheel, "9.8"), "vllm/model.py") is None
    assert kept.original(Root("vllm", str(wheel.site), Base.NONE), "vllm/model.py") is None


def test_an_edited_file_is_never_taken_for_an_original(kept: Originals, wheel: Wheel) -> None:
    wheel.model.write_text(MODEL.replace("42", "43"))
    keep(kept, wheel)
    assert kept.original(root(wheel), "vllm/model.py") is None
    assert kept.original(root(wheel), "vllm/extra.py") == b"extra = True\n"
    wheel.model.write_text(MODEL)  # reinstalled
    keep(kept, wheel)
    wheel.model.unlink()
    assert kept.original(root(wheel), "vllm/model.py") == MODEL.encode()
    assert kept.original(root(wheel), "vllm/extra.py") == b"extra = True\n"


def test_it_is_written_once(kept: Originals, wheel: Wheel, tmp_path: Path) -> None:
    keep(kept, wheel)
    (archive,) = archives(tmp_path)
    before = archive.stat().st_ino
    keep(kept, wheel)
    assert [path.stat().st_ino for path in archives(tmp_path)] == [before]
    assert archive.stat().st_mode & 0o077 == 0


def test_what_somebody_put_into_the_archive_is_not_believed(kept: Originals, wheel: Wheel, tmp_path: Path) -> None:
    keep(kept, wheel)
    (path,) = archives(tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["vllm/model.py"] = b"evil\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    assert kept.original(root(wheel), "vllm/model.py") is None
    assert kept.original(root(wheel), "vllm/extra.py") == b"extra = True\n"


@pytest.mark.parametrize("content", [b"", b"PK\x05\x06" + b"\0" * 18, b"nonsense"])
def test_a_damaged_one_is_made_again(kept: Originals, wheel: Wheel, tmp_path: Path, content: bytes) -> None:
    keep(kept, wheel)
    (path,) = archives(tmp_path)
    whole = path.read_bytes()
    for damaged in (content, whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert kept.original(root(wheel), "vllm/model.py") is None
        keep(kept, wheel)
        assert kept.original(root(wheel), "vllm/model.py") == MODEL.encode()


def test_two_builds_of_one_version_leave_it_unknown(kept: Originals, wheel: Wheel) -> None:
    keep(kept, wheel)
    record = wheel.site / "vllm-9.9.dist-info/RECORD"
    wheel.model.write_text("def answer():\n    return 41\n")
    data = wheel.model.read_bytes()
    line = f"vllm/model.py,{copying.read(str(wheel.model), 'sha256', 1e12).digest},{len(data)}"
    lines = [line if old.startswith("vllm/model.py,") else old for old in record.read_text().splitlines()]
    record.write_text("\n".join([*lines, ""]))
    keep(kept, wheel)
    assert kept.original(root(wheel), "vllm/model.py") is None
    assert kept.original(root(wheel), "vllm/extra.py") == b"extra = True\n"


def list_too(wheel: Wheel, path: str) -> None:
    """Another RECORD is another build."""
    record = wheel.site / "vllm-9.9.dist-info/RECORD"
    record.write_text(f"{record.read_text()}{path},,\n")


def test_those_of_distributions_that_are_gone_are_pruned(kept: Originals, tmp_path: Path) -> None:
    for number in range(6):
        wheel = Wheel(tmp_path / f"venv{number}")
        list_too(wheel, f"vllm/gone{number}.py")
        keep(kept, wheel)
        found = max(archives(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(found, (number, number))
        if number < 5:
            assert len(archives(tmp_path)) <= originals._GONE_KEPT + 2
            shutil.rmtree(tmp_path / f"venv{number}")
    assert len(archives(tmp_path)) == originals._GONE_KEPT + 1
    stale = tmp_path / "state/.originals/x.zip.1.tmp"
    stale.touch()
    os.utime(stale, (0, 0))
    wheel = Wheel(tmp_path / "more")
    list_too(wheel, "vllm/more.py")
    keep(kept, wheel)
    assert not stale.exists()


def test_where_nothing_can_be_written_nothing_happens(wheel: Wheel) -> None:
    nowhere = Originals("/proc/nowhere")
    keep(nowhere, wheel)
    assert nowhere.original(root(wheel), "vllm/model.py") is None


def test_of_a_working_tree_it_is_the_commits(kept: Originals, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    content = b"crlf\r\nand \xff\0 bytes"
    (tree / "a.bin").write_bytes(content)
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")

    def git(*words: str) -> str:
        done = subprocess.run(["git", *identity, "-C", tree, *words], check=True, capture_output=True, timeout=30)
        return done.stdout.decode().strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    head = git("rev-parse", "--short", "HEAD")
    (tree / "a.bin").write_bytes(b"later")
    git("commit", "-qam", "two")
    assert kept.original(Root("t", str(tree), Base.GIT, head), "a.bin") == content
    assert kept.original(Root("t", str(tree), Base.GIT, head), "b.bin") is None
    assert kept.original(Root("t", str(tree), Base.GIT, "HEAD"), "a.bin") is None


def test_an_archive_is_opened_once_for_all_its_files(
    kept: Originals, wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(kept, wheel)
    opened = []

    class Counted(zipfile.ZipFile):
        def __init__(self, *arguments: object, **more: object) -> None:
            opened.append(arguments)
            super().__init__(*arguments, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(zipfile, "ZipFile", Counted)
    paths = ("vllm/model.py", "vllm/extra.py", "vllm/data.json", "vllm/__init__.py")
    assert all(kept.original(root(wheel), path) for path in paths * 3)
    # What it is, and what it has.
    assert len(opened) == 2
