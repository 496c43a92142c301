"""Who uses a file, on the real kernel: by mapping, by descriptor, of another user, and what cannot be told."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise.host import usage
from supervise.model.litter import FileId
from tests.support.launcher import NOBODY, readable_copy, readable_python

HOLD = """
import mmap, os, sys
how, path = sys.argv[1:3]
fd = os.open(path, os.O_RDONLY if how == "reads" else os.O_RDWR)
if how == "maps":
    held = mmap.mmap(fd, 4096)
    os.close(fd)
if len(sys.argv) > 3:
    os.setuid(int(sys.argv[3]))
print("ready", flush=True)
sys.stdin.read()
"""


def identity(path: Path) -> FileId:
    state = path.stat()
    return FileId(state.st_dev, state.st_ino)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "segment"
    path.write_bytes(bytes(4096))
    path.chmod(0o600)
    return path


@contextmanager
def holder(how: str, path: Path, *uid: str) -> Iterator[int]:
    """Another process that uses a file, as that user from then on."""
    command = [sys.executable, "-c", HOLD, how, str(path), *uid]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            yield child.pid
        finally:
            child.kill()


def users(path: Path) -> tuple[int, ...]:
    return usage.read({identity(path): str(path)}).users.get(identity(path), ())


@pytest.mark.parametrize("how", ["opens", "reads", "maps"])
def test_a_process_that_opens_or_maps_it_uses_it(file, how):
    with holder(how, file) as pid:
        assert users(file) == (pid,)
    assert users(file) == ()


@pytest.mark.root
@pytest.mark.parametrize("how", ["opens", "maps"])
def test_a_process_of_another_user_uses_it(file, how):
    with holder(how, file, str(NOBODY)) as pid:
        assert users(file) == (pid,)


def test_another_file_of_the_same_name_is_not_used(file):
    with holder("opens", file):
        file.rename(file.with_name("moved"))
        file.write_bytes(b"")
        assert users(file) == ()


def test_what_is_used_under_a_name_that_is_gone_is_used(file):
    linked = file.with_name("linked")
    linked.hardlink_to(file)
    with holder("maps", file) as pid:
        file.unlink()
        assert users(linked) == (pid,)


def test_many_files_are_told_apart_in_one_look(file):
    others = [file.with_name(f"other{i}") for i in range(50)]
    for other in others:
        other.write_bytes(bytes(4096))
    with open(others[7], "r+b") as opened, mmap.mmap(opened.fileno(), 0):
        found = usage.read({identity(path): str(path) for path in (file, *others)})
    assert found.users == {identity(others[7]): (os.getpid(),)}


def test_nothing_asked_is_nothing_found_and_all_of_it_known():
    assert usage.read({}) == usage.Usage({}, frozenset())
    assert usage.users({}) == ({}, True)


def test_of_an_unreadable_process_only_what_is_closed_to_it_is_known(file, monkeypatch):
    """As an ordinary user sees root's processes."""
    other = file.with_name("other")
    other.write_bytes(b"")
    files = {identity(path): str(path) for path in (file, other)}
    with holder("opens", file) as pid:
        real = usage._used_by
        monkeypatch.setattr(usage, "_used_by", lambda p, *more: None if p == pid else real(p, *more))
        monkeypatch.setattr(usage, "may_use", lambda p, *, private: not private)
        # Where the kernel cannot be asked: over the network, say.
        monkeypatch.setattr(usage, "_free", lambda path, file: None)
        found = usage.read(files, closed={identity(file)})
        assert found.known == {identity(file)}
        assert usage.users(files)[1] is False
        assert usage.users(files, private=True)[1] is True


ASK = """
import sys
from supervise.host import usage
from supervise.model.litter import FileId
closed, other = (FileId(int(dev), int(ino)) for dev, ino in (word.split(":") for word in sys.argv[1:3]))
found = usage.read({closed: "/closed", other: "/other"}, closed={closed})
print(closed in found.known, other in found.known)
"""


@pytest.mark.root
def test_an_ordinary_user_knows_the_users_only_of_what_is_closed_to_others(file):
    other = file.with_name("other")
    other.write_bytes(b"")
    with holder("opens", other):
        asked = subprocess.run(
            [readable_python(), "-c", ASK, *(f"{f.dev}:{f.ino}" for f in map(identity, (file, other)))],
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
    assert asked.stdout.split() == ["True", "False"]
