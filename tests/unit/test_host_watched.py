"""Two looks at the files that somebody works on tell whether one has changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from supervise.host.watched import LARGEST, counts, digest, look


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
    assert look([str(work)]).files == seen.files


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
    assert look([str(work)]).files != seen.files


@pytest.mark.parametrize("name", [".git/index", "__pycache__/x.pyc", ".llama.py.swp", "models/.cache/x"])
def test_what_editors_and_interpreters_leave_is_no_change(work: Path, name: str) -> None:
    seen = look([str(work)])
    (work / name).parent.mkdir(exist_ok=True)
    (work / name).touch()
    assert look([str(work)]).files == seen.files
    # Named itself, it counts.
    assert str(work / name) in look([str(work / name)]).files


@pytest.mark.parametrize(
    "name", ["llama.py", "kernels.so", "configs/E=8.json", "serve.yaml", "pyproject.toml", "chat.jinja", "moe.cu"]
)
def test_what_somebody_works_on_counts(name: str) -> None:
    assert counts(os.path.basename(name))


@pytest.mark.parametrize(
    "name",
    [
        "llama.pyc",
        "server.log",
        "4913",
        "llama.py~",
        "#llama.py#",
        ".#llama.py",
        ".llama.py.swp",
        "flycheck_llama.py",
        "llama_flymake.py",
        "llama.py___jb_tmp___",
        "llama.py.tmp.4711",
        "model.safetensors",
        "notes.txt",
    ],
)
def test_what_editors_and_servers_write_does_not(work: Path, name: str) -> None:
    assert not counts(name)
    (work / name).touch()
    assert str(work / name) not in look([str(work)]).files
    assert str(work / name) in look([str(work / name)]).files


def test_content_tells_more_than_a_state(work: Path) -> None:
    path = str(work / "setup.py")
    before = look([path]).files[path]
    os.utime(path, ns=(1, 1))
    after = look([path]).files[path]
    assert before != after
    assert digest(path, before) is None
    assert digest(path, after) == digest(path, look([path]).files[path])
    (work / "setup.py").write_text("tow")
    assert digest(path, look([path]).files[path]) not in (None, digest(path, after))


def test_of_what_is_too_large_or_no_file_nothing_is_read(work: Path) -> None:
    os.truncate(work / "setup.py", LARGEST + 1)
    os.mkfifo(work / "pipe.py")
    seen = look([str(work)]).files
    assert digest(str(work / "setup.py"), seen[str(work / "setup.py")]) is None
    assert digest(str(work / "pipe.py"), seen[str(work / "pipe.py")]) is None


def test_a_file_that_has_just_changed_may_change_again_within_a_tick(work: Path) -> None:
    path = str(work / "setup.py")
    assert path in look([path]).fresh
    deadline = time.monotonic() + 10
    while path in look([path]).fresh:
        assert time.monotonic() < deadline


def test_our_own_records_are_no_change(work: Path) -> None:
    (work / "state").mkdir()
    seen = look([str(work)], but=str(work / "state"))
    (work / "state/run.json").touch()
    assert look([str(work)], but=str(work / "state")).files == seen.files
    assert look([str(work)]).files != seen.files


def test_it_is_bounded_and_ends(work: Path) -> None:
    (work / "models/loop").symlink_to(work)
    (work / "models/link.py").symlink_to(work / "setup.py")
    assert str(work / "models/link.py") in look([str(work)]).files
    for number in range(20):
        (work / f"{number}.py").touch()
    cut = look([str(work)], most=10)
    assert cut.cut
    assert len(cut.files) <= 10
    assert look([str(work)], most=10).files == cut.files


def test_what_is_not_there(work: Path) -> None:
    assert look([str(work / "gone.py")]).files == {}
