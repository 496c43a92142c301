"""Files of ours: what is read is bounded and never waited for, and a private directory is ours alone or not there."""

from __future__ import annotations

import os
import resource
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import files, tree
from tests.support.readable import ROOT
from tests.support.waiting import DEADLINE_S

OWNER = "0123456789abcdef0123456789abcdef"
NAME = f"sv-{OWNER[:12]}"
MIB = 2**20


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short_dir: Path) -> Path:
    monkeypatch.setenv("TMPDIR", str(short_dir))
    return short_dir


@pytest.fixture
def ours(base: Path) -> Path:
    return Path(files.private_directory(OWNER))


# --- reading ----------------------------------------------------------------------------------------------------------


def special(directory: Path) -> Iterator[str]:
    """One of each that is no regular file."""
    os.mkfifo(directory / "fifo")
    yield str(directory / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "socket"))
    yield str(directory / "socket")
    yield "/dev/zero"
    yield "/dev/tty"


def test_what_is_no_regular_file_is_not_even_opened(short_dir: Path) -> None:
    for path in special(short_dir):
        with pytest.raises(OSError, match="is no regular file"):
            files.read_regular(path, MIB)
    with pytest.raises(IsADirectoryError):
        files.read_regular(str(short_dir), MIB)


def test_whoever_waits_for_a_reader_of_a_pipe_waits_on(short_dir: Path) -> None:
    """To open it would let him write to nobody."""
    path = str(short_dir / "fifo")
    os.mkfifo(path)
    opened = threading.Event()

    def write() -> None:
        os.close(os.open(path, os.O_WRONLY))
        opened.set()

    writer = threading.Thread(target=write)
    writer.start()
    with pytest.raises(OSError, match="is no regular file"):
        files.read_regular(path, MIB)
    assert not opened.wait(0.2)
    os.close(os.open(path, os.O_RDONLY))
    assert opened.wait(DEADLINE_S)
    writer.join(DEADLINE_S)


def test_a_file_is_read_up_to_its_limit_and_dev_null_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, MIB):
        path.write_bytes(b"x" * size)
        assert files.read_regular(str(path), MIB) == b"x" * size
    path.write_bytes(b"x" * (MIB + 1))
    with pytest.raises(OSError, match="has more than 1 MiB"):
        files.read_regular(str(path), MIB)
    assert files.read_regular("/dev/null", MIB) == b""


def test_a_file_without_an_end_takes_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="has more than 1 MiB"):
        files.read_regular(str(path), MIB)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "1" * 5000, '{"a": ', "[]", "\x00"])
def test_a_damaged_object_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    assert files.read_json(str(path)) is None
    path.write_text('{"a": 1}')
    assert files.read_json(str(path)) == {"a": 1}


def test_json_is_not_waited_for(short_dir: Path) -> None:
    os.mkfifo(short_dir / "x.json")
    assert files.read_json(str(short_dir / "x.json")) is None


# --- the private directory --------------------------------------------------------------------------------------------


def test_it_is_private_and_says_whose_it_is(ours: Path, base: Path) -> None:
    assert ours == base / NAME
    assert (ours.stat().st_mode & 0o777, (ours / ".supervise").read_text()) == (0o700, OWNER + "\n")


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Directories that take a directory and then not a byte."""
    found: list[str] = []
    write = files.write_atomic

    def refuse(path: str, text: str) -> None:
        if any(path.startswith(f"{directory}/") for directory in found):
            raise OSError(28, "No space left on device", path)
        write(path, text)

    monkeypatch.setattr(files, "write_atomic", refuse)
    return found


def test_a_full_tmpdir_is_left_as_it_was_for_tmp(base: Path, full: list[str]) -> None:
    full.append(str(base))
    made = files.private_directory(OWNER)
    assert made == f"/tmp/{NAME}"
    assert list(base.iterdir()) == []
    assert files.remove_private_directory(made, OWNER)


def test_if_both_are_full_nothing_is_left_and_the_path_is_told(base: Path, full: list[str]) -> None:
    full += [str(base), "/tmp"]
    with pytest.raises(OSError, match=f"No space left on device: '/tmp/{NAME}'"):
        files.private_directory(OWNER)
    assert not os.path.lexists(f"/tmp/{NAME}")
    assert list(base.iterdir()) == []


def test_removal_takes_all_that_is_in_it_and_nothing_that_links_lead_to(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("precious")
    for path in (ours / "a/b/c", ours / "a/d"):
        path.mkdir(parents=True)
        (path / "file").touch()
    (ours / "a/link").symlink_to(tmp_path)
    (ours / "dangling").symlink_to("nowhere")
    os.mkfifo(ours / "a/fifo")
    assert files.remove_private_directory(str(ours), OWNER)
    assert not ours.exists()
    assert (tmp_path / "canary").read_text() == "precious"


def test_removal_takes_a_tree_that_is_deeper_than_calls_descriptors_and_paths_go(ours: Path) -> None:
    deepest = max(sys.getrecursionlimit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0] % 10_000) + 1500
    fd = os.open(ours, os.O_PATH)
    for _ in range(deepest):
        os.mkdir("deep", dir_fd=fd)
        below = os.open("deep", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    assert files.remove_private_directory(str(ours), OWNER)
    assert not ours.exists()


@pytest.mark.parametrize("case", ["another's", "no proof", "proof is a pipe", "proof is a link", "is a link"])
def test_what_is_not_proven_ours_stays(ours: Path, base: Path, tmp_path: Path, case: str) -> None:
    (ours / "file").touch()
    proof, path, owner = ours / ".supervise", ours, OWNER
    if case == "another's":
        owner = "another id"
    elif case == "is a link":
        path = base / "link"
        path.symlink_to(ours)
    else:
        proof.rename(tmp_path / "proof")
    if case == "proof is a pipe":
        os.mkfifo(proof)
    if case == "proof is a link":
        proof.symlink_to(tmp_path / "proof")
    assert not files.remove_private_directory(str(path), owner)
    assert (ours / "file").exists()


@pytest.mark.parametrize("path", ["/tmp/a\0b", "/dev/null", "/dev/null/x"])
def test_what_is_no_directory_is_not_gone(path: str) -> None:
    assert not files.remove_private_directory(path, OWNER)


def test_what_is_not_there_is_gone(base: Path) -> None:
    assert files.remove_private_directory(str(base / NAME), OWNER)


def test_what_could_not_be_removed_keeps_its_proof(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ours / "stubborn").touch()
    (ours / "other").touch()
    unlink = os.unlink

    def refuse(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stubborn":
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert not files.remove_private_directory(str(ours), OWNER)
    assert {path.name for path in ours.iterdir()} == {"stubborn", ".supervise"}
    assert files.remove_private_directory(str(ours), OWNER)


# --- what is mounted in it --------------------------------------------------------------------------------------------

_REMOVE = """
import os, shutil, sys
sys.path.insert(0, sys.argv[1])
from supervise.host import files, tree
base, owner, by = sys.argv[2:5]
os.environ["TMPDIR"] = base
ours = files.private_directory(owner)
"""
_FINISH = """
if by == "blind":
    tree.mounts_at = lambda path: ()
if by == "rmtree":
    shutil.rmtree(ours, ignore_errors=True)
else:
    assert not files.remove_private_directory(ours, owner)
"""
_MOUNT = 'assert not os.system(f"mount {options} {at}")\n'
_SEE = 'print(sorted(os.listdir(at)) if os.path.isdir(at) else open(at).read(), os.path.exists(f"{ours}/other/file"))\n'


def _within(base: Path, what: str, by: str) -> str:
    """What is left of a private directory in which something is mounted, once it was removed: in a namespace of its
    own, where nothing but the files themselves outlives us."""
    target = {
        "bind": 'os.mkdir(at := f"{ours}/m a"); options = f"--bind {base}/precious"; at = at.replace(" ", "\\\\ ")',
        "tmpfs": 'os.mkdir(at := f"{ours}/m"); options = "-t tmpfs tmpfs"',
        "file": 'open(at := f"{ours}/m", "w").close(); options = f"--bind {base}/precious/canary"',
        "itself": 'at = ours; options = f"--bind {ours}"',
    }[what]
    (base / "precious").mkdir()
    (base / "precious/canary").write_text("canary")
    code = _REMOVE + 'os.makedirs(f"{ours}/other"); open(f"{ours}/other/file", "w").close()\n'
    code += f"{target}\n{_MOUNT}at = at.replace('\\\\', '')\n"
    if what == "tmpfs":
        code += 'open(f"{at}/canary", "w").close()\n'
    script = [sys.executable, "-B", "-c", code + _FINISH + _SEE, str(ROOT), str(base), OWNER, by]
    unshare = ["unshare", "--mount", "--propagation", "private", "--"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    done = subprocess.run([*unshare, *script], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.root
@pytest.mark.parametrize(
    ("what", "left"),
    [
        ("bind", "['canary'] True"),
        ("tmpfs", "['canary'] True"),
        ("file", "canary True"),
        ("itself", "['.supervise', 'other'] True"),
    ],
)
def test_where_something_is_mounted_nothing_is_removed(base: Path, what: str, left: str) -> None:
    assert _within(base, what, "us") == left
    assert (base / "precious/canary").read_text() == "canary"


@pytest.mark.root
@pytest.mark.parametrize("what", ["bind", "tmpfs", "file"])
def test_what_is_mounted_after_the_look_is_not_entered(base: Path, what: str) -> None:
    assert "canary" in _within(base, what, "blind")
    assert (base / "precious/canary").read_text() == "canary"


@pytest.mark.root
def test_a_plain_removal_would_have_taken_it(base: Path) -> None:
    """Negative control."""
    assert _within(base, "bind", "rmtree") == "[] False"
    assert not (base / "precious/canary").exists()


def test_mounts_are_found_by_their_whole_names() -> None:
    assert tree.mounts_at("/proc")[0] == "/proc"
    assert tree.mounts_at("/pro") == ()
    assert tree.mounts_at("/proc/../proc")[0] == "/proc"


def test_directories_of_ours_are_for_their_owner_alone(tmp_path):
    base = tmp_path / "home" / "supervise"
    files.make_private(str(base), "run", "attempts")
    files.make_private(str(base), "run", "attempts")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (base, base / "run", base / "run" / "attempts")]
    assert modes == [0o700] * 3
    assert stat.S_IMODE(base.parent.stat().st_mode) != 0o700


def test_a_file_where_a_directory_should_be_is_an_error(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(NotADirectoryError):
        files.make_private(str(tmp_path / "x"))
