"""/dev/shm on the real kernel: what lies there, who uses it, and what is never removed."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervise.host import removal, shm, usage
from supervise.model.litter import FileId, FileType
from supervise.model.slate import Verdict
from tests.support.launcher import NOBODY, readable_copy, readable_python

SHM = Path(shm.DIRECTORY)


class Made:
    """Segments of one test; those that are left are removed at its end."""

    def __init__(self) -> None:
        self.paths: list[Path] = []
        self.stack = ExitStack()

    def segment(self, size: int = 4096, mode: int = 0o600) -> tuple[str, FileId]:
        path = SHM / f"psm_test_{uuid.uuid4().hex[:8]}"
        path.write_bytes(bytes(size))
        path.chmod(mode)
        self.paths.append(path)
        return path.name, identity(path)

    def mapped(self, name: str) -> mmap.mmap:
        with open(SHM / name, "r+b") as file:
            return self.stack.enter_context(mmap.mmap(file.fileno(), 0))


def unlink(name: str, file: FileId) -> Verdict:
    return removal.remove(f"{shm.DIRECTORY}/{name}", file, FileType.REGULAR, os.geteuid())


def identity(path: Path) -> FileId:
    state = path.lstat()
    return FileId(state.st_dev, state.st_ino)


@pytest.fixture
def made() -> Iterator[Made]:
    made = Made()
    yield made
    made.stack.close()
    for path in made.paths:
        path.unlink(missing_ok=True)


def test_all_regular_files_are_segments_and_nothing_else_is(made):
    name, file = made.segment(8192)
    link = SHM / f"psm_link_{uuid.uuid4().hex[:8]}"
    link.symlink_to(SHM / name)
    made.paths.append(link)
    found = {segment.name: segment for segment in shm.segments()}
    assert link.name not in found
    told = found[name]
    assert (told.file, told.size, told.uid, told.private) == (file, 8192, os.geteuid(), True)
    assert 0 <= told.age_s < 60


def test_a_segment_open_to_others_is_not_private(made):
    name, _ = made.segment(mode=0o644)
    assert not next(segment for segment in shm.segments() if segment.name == name).private


def test_mapped_or_held_open_is_used(made):
    (mapped, file), (free, unused) = made.segment(), made.segment()
    held, held_file = made.segment()
    made.mapped(mapped)
    with open(SHM / held, "rb"):
        mine = shm.mapped_by(os.getpid())
        files = {file: str(SHM / mapped), held_file: str(SHM / held), unused: str(SHM / free)}
        used, known = usage.users(files, private=True)
    assert {file, held_file} <= mine
    assert unused not in mine
    assert used == {file: (os.getpid(),), held_file: (os.getpid(),)}
    assert known


def test_a_file_is_used_although_it_is_mapped_under_another_name(made):
    """As a live `sem.mp-*` is: linked into place after it was opened under a temporary name, which is gone."""
    name, file = made.segment()
    made.mapped(name)
    linked = SHM / f"sem.mp-test-{uuid.uuid4().hex[:8]}"
    linked.hardlink_to(SHM / name)
    made.paths.append(linked)
    (SHM / name).unlink()
    maps = Path("/proc/self/maps").read_text()
    assert f"/dev/shm/{name} (deleted)" in maps
    assert linked.name not in maps
    assert file in shm.mapped_by(os.getpid())
    assert unlink(linked.name, file) is Verdict.REMAINS
    assert linked.exists()


def test_nobody_s_process_has_no_segments():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert shm.mapped_by(child.pid) == frozenset()
    finally:
        child.communicate()
    assert shm.mapped_by(child.pid) is None


def test_unused_is_removed(made):
    name, file = made.segment()
    assert unlink(name, file) is Verdict.GONE
    assert not (SHM / name).exists()


def test_removing_what_is_gone_is_done(made):
    name, file = made.segment()
    (SHM / name).unlink()
    assert unlink(name, file) is Verdict.GONE


def test_used_stays(made):
    name, file = made.segment()
    made.mapped(name)
    assert unlink(name, file) is Verdict.REMAINS
    assert (SHM / name).exists()


def test_another_file_of_that_name_stays(made):
    name, file = made.segment()
    assert unlink(name, file._replace(ino=file.ino + 1)) is Verdict.GONE
    assert (SHM / name).exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../etc/passwd"])
def test_what_is_no_name_in_the_directory_is_not_touched(name):
    assert unlink(name, FileId(1, 1)) is Verdict.UNKNOWN


def test_a_link_is_never_followed_and_never_removed(made, tmp_path):
    target = tmp_path / "precious"
    target.write_text("x")
    link = SHM / f"psm_link_{uuid.uuid4().hex[:8]}"
    link.symlink_to(target)
    made.paths.append(link)
    assert unlink(link.name, identity(target)) is Verdict.GONE
    assert unlink(link.name, identity(link)) is Verdict.REMAINS
    assert link.is_symlink()
    assert target.exists()


def test_a_directory_stays(made):
    directory = SHM / f"psm_dir_{uuid.uuid4().hex[:8]}"
    directory.mkdir()
    try:
        assert unlink(directory.name, identity(directory)) is Verdict.REMAINS
        assert directory.exists()
    finally:
        directory.rmdir()


@pytest.mark.root
def test_another_user_s_segment_stays(made):
    name, file = made.segment()
    os.chown(SHM / name, NOBODY, NOBODY)
    assert unlink(name, file) is Verdict.REMAINS


UNLINK = """
import os, sys
from supervise.host import removal, shm
from supervise.model.litter import FileId, FileType
name, dev, ino = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
path = f"{shm.DIRECTORY}/{name}"
print(removal.remove(path, FileId(dev, ino), FileType.REGULAR, os.geteuid()).value)
"""


@pytest.mark.root
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_an_ordinary_user_removes_his_own_unless_somebody_whose_maps_are_hidden_from_him_uses_it(made, mode, mapped):
    name, file = made.segment(mode=mode)
    os.chown(SHM / name, NOBODY, NOBODY)
    with ExitStack() as stack:
        if mapped:
            opened = stack.enter_context((SHM / name).open("r+b"))
            stack.enter_context(mmap.mmap(opened.fileno(), 0))
        done = _unlink_as_nobody(name, file)
    assert (done == "gone") is not mapped, done
    assert (SHM / name).exists() is mapped


def _unlink_as_nobody(name, file):
    done = subprocess.run(
        [readable_python(), "-c", UNLINK, name, str(file.dev), str(file.ino)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env={"PYTHONPATH": str(readable_copy()), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("pid", "ipc", "hidden"),
    [
        (0xEFFFFFFC, 0xEFFFFFFF, False),
        (0xEFFFFFFC, 0xF0000001, False),
        (0xF0000000, 0xF0000001, False),
        (0xF0000000, 0xEFFFFFFF, True),
        (None, 0xEFFFFFFF, True),
    ],
    ids=["the host", "another IPC namespace", "a container", "docker run --ipc=host", "unreadable"],
)
def test_users_are_hidden_only_where_the_host_s_dev_shm_is_seen_without_its_processes(monkeypatch, pid, ipc, hidden):
    def state(path: str):
        inode = {"/proc/self/ns/pid": pid, "/proc/self/ns/ipc": ipc}[path]
        if inode is None:
            raise FileNotFoundError(path)
        return SimpleNamespace(st_ino=inode)

    monkeypatch.setattr(shm.os, "stat", state)
    told = shm.users_hidden()
    monkeypatch.undo()
    assert told is hidden
