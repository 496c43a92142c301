"""Two looks at the files that somebody works on tell whether one has changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervise.host.watched import look


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "models").mkdir(parents=True)
    (made / "models/llama.py").write_text("one")
    (made / "setup.py").write_text("two")
    return made


def test_what_is_there(work: Path) -> None:
    seen = look([str(work)])
    assert sorted(seen.files) == [str(work / "models/llama.py"), str(work / "setup.py")]
    assert not seen.cut
    assert look([str(work)]) == seen


@pytest.mark.parametrize("how", ["written", "touched", "replaced", "made", "removed"])
def test_a_change(work: Path, how: str) -> None:
    seen, path = look([str(work)]), work / "models/llama.py"
    os.utime(path, ns=(1, 1)) if how == "touched" else None
    path.write_text("longer") if how == "written" else None
    path.unlink() if how == "removed" else None
    (work / "new.py").touch() if how == "made" else None
    if how == "replaced":
        (work.parent / "other").write_text("one")
        state = path.stat()
        os.utime(work.parent / "other", ns=(state.st_atime_ns, state.st_mtime_ns))
        (work.parent / "other").rename(path)
    assert look([str(work)]) != seen


@pytest.mark.parametrize("name", [".git/index", "__pycache__/x.pyc", ".llama.py.swp", "models/.cache/x"])
def test_what_editors_and_interpreters_leave_is_no_change(work: Path, name: str) -> None:
    seen = look([str(work)])
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).touch()
    assert look([str(work)]) == seen
    # Named itself, it counts.
    assert str(work / name) in look([str(work / name)]).files


def test_our_own_records_are_no_change(work: Path) -> None:
    (work / "state").mkdir()
    seen = look([str(work)], but=str(work / "state"))
    (work / "state/server.log").touch()
    assert look([str(work)], but=str(work / "state")) == seen
    assert look([str(work)]) != seen


def test_it_is_bounded_and_ends(work: Path) -> None:
    (work / "models/loop").symlink_to(work)
    (work / "models/link.py").symlink_to(work / "setup.py")
    assert str(work / "models/link.py") in look([str(work)]).files
    for number in range(20):
        (work / f"{number}.py").touch()
    cut = look([str(work)], most=10)
    assert cut.cut
    assert len(cut.files) <= 10
    assert look([str(work)], most=10) == cut


def test_what_is_not_there(work: Path) -> None:
    assert look([str(work / "gone.py")]).files == {}
