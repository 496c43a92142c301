"""Files put back in one step: old or new, a copy before, nothing that is not proven."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise.host import putting_back, renaming
from supervise.host import saving as saving_module
from supervise.host.saving import NotPutBackError, Saving
from tests.support.launcher import NOBODY

OLD, NEW = b"import pdb\n", b"answer = 42\n"


@pytest.fixture
def saving(tmp_path: Path) -> Saving:
    return Saving(str(tmp_path / "saved/now"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "site/eng/run.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(OLD)
    path.chmod(0o640)
    return path


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path.parent))


def put(path: Path, saving: Saving, data: bytes = NEW) -> None:
    putting_back.put(str(path), data, saving)


def refused(path: Path, saving: Saving) -> str:
    with pytest.raises(NotPutBackError) as error:
        put(path, saving)
    return str(error.value)


def test_a_file_is_put_back_with_its_mode_and_what_was_there_is_kept(file: Path, saving: Saving) -> None:
    put(file, saving)
    assert file.read_bytes() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert Path(saving.place(str(file))).read_bytes() == OLD
    assert saving.kept == [str(file)]
    assert stat.S_IMODE(os.stat(saving.directory).st_mode) == 0o700
    assert names(file) == ["run.py"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0")
def test_its_owner_stays(file: Path, saving: Saving) -> None:
    os.chown(file, 65534, 65533)
    put(file, saving)
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65533)


def test_a_missing_file_comes_back_with_its_directories(file: Path, saving: Saving) -> None:
    path = file.parent / "core/deep/x.py"
    put(path, saving)
    assert path.read_bytes() == NEW
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    script = file.parent / "tool"
    put(script, saving, b"#!/bin/sh\n")
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert saving.kept == []


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_the_cache_of_an_installer_is_not_written_through(
    file: Path, saving: Saving, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    cached = tmp_path / "cached.py"
    file.rename(cached)
    link(cached, file)
    put(file, saving)
    assert file.read_bytes() == NEW
    assert not file.is_symlink()
    assert cached.read_bytes() == OLD


def test_no_link_is_followed_on_the_way(file: Path, saving: Saving, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x.py").write_bytes(OLD)
    (file.parent / "core").symlink_to(elsewhere)
    assert refused(file.parent / "core/x.py", saving)
    assert refused(file.parent / "core/new.py", saving)
    assert (elsewhere / "x.py").read_bytes() == OLD
    assert os.listdir(elsewhere) == ["x.py"]


def test_what_is_no_file_stays(file: Path, saving: Saving) -> None:
    file.unlink()
    os.mkfifo(file)
    assert refused(file, saving) == "there is something else than a file in its place"
    assert stat.S_ISFIFO(file.stat().st_mode)


@pytest.mark.parametrize(("module", "call"), [(os, "write"), (os, "fsync"), (renaming, "rename")])
def test_on_a_full_disk_it_stays_as_it_was(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch, module: object, call: str
) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, call, full)
        assert refused(file, saving) == "No space left on device"
    assert file.read_bytes() == OLD
    assert names(file) == ["run.py"]
    assert saving.kept == []
    assert not os.path.lexists(saving.place(str(file)))


def test_in_a_read_only_place_it_stays_as_it_was(file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: str, flags: int, *arguments: int, **more: int) -> int:
        if flags & os.O_CREAT and path == ".run.py.supervise":
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        assert refused(file, saving) == "Read-only file system"
    assert file.read_bytes() == OLD


def test_without_a_copy_nothing_is_overwritten(file: Path, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    saving = Saving(str(tmp_path / "occupied/saved"))
    assert refused(file, saving) == "Not a directory"
    assert file.read_bytes() == OLD


def test_an_edit_in_between_is_not_overwritten(file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def edit(fd: int) -> None:
        sync(fd)
        file.write_bytes(b"somebody's newest\n")

    monkeypatch.setattr(os, "fsync", edit)
    assert refused(file, saving) == "it is being changed by somebody else"
    assert file.read_bytes() == b"somebody's newest\n"
    assert names(file) == ["run.py"]


_KILLED = """
import os, signal, sys
from supervise.host import putting_back, renaming
from supervise.host.saving import Saving
call, path, saved = sys.argv[1:]
module = renaming if call == "rename" else os
real = getattr(module, call)
def die(*arguments, **more):
    if call != "write" or b"answer" in bytes(arguments[1]):
        if call == "write":
            real(arguments[0], bytes(arguments[1])[:5])
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **more)
setattr(module, call, die)
putting_back.put(path, b"answer = 42\\n", Saving(saved))
"""


@pytest.mark.parametrize("call", ["write", "fchmod", "rename"])
def test_whoever_kills_it_finds_old_or_new_and_the_next_one_clears_up(
    file: Path, saving: Saving, tmp_path: Path, call: str
) -> None:
    command = [sys.executable, "-c", _KILLED, call, str(file), str(tmp_path / "first")]
    assert subprocess.run(command, timeout=60, check=False).returncode == -signal.SIGKILL
    assert file.read_bytes() == OLD
    assert names(file) == [".run.py.supervise", "run.py"]
    put(file, saving)
    assert file.read_bytes() == NEW
    assert names(file) == ["run.py"]


def test_what_an_interrupted_one_left_beside_it_is_kept_and_out_of_the_way(file: Path, saving: Saving) -> None:
    beside = file.parent / ".run.py.supervise"
    beside.write_text("mine\n")
    put(file, saving)
    assert file.read_bytes() == NEW
    assert names(file) == ["run.py"]
    assert Path(saving.place(str(beside))).read_text() == "mine\n"


def test_what_was_beside_it_stays_kept_also_if_the_file_is_refused(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = file.parent / ".run.py.supervise"
    beside.write_text("mine\n")
    monkeypatch.setattr(putting_back, "_put", lambda *_: (_ for _ in ()).throw(NotPutBackError("no")))
    assert refused(file, saving) == "no"
    assert Path(saving.place(str(beside))).read_text() == "mine\n"
    assert saving.kept == [str(beside)]


def test_what_is_beside_it_and_no_file_stays(file: Path, saving: Saving) -> None:
    beside = file.parent / ".run.py.supervise"
    beside.mkdir()
    assert refused(file, saving) == ".run.py.supervise beside it is in the way"
    assert beside.is_dir()
    assert file.read_bytes() == OLD


def test_a_line_that_is_written_in_the_last_moment_is_kept(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = renaming.rename

    def append(directory: int, old: str, new: str, flag: int) -> None:
        with file.open("ab") as writer:
            writer.write(b"last = 1\n")
        rename(directory, old, new, flag)

    monkeypatch.setattr(renaming, "rename", append)
    put(file, saving)
    assert file.read_bytes() == NEW
    copy = Path(saving.place(str(file)))
    assert (copy.read_bytes(), copy.with_name("run.py~2").read_bytes()) == (OLD, OLD + b"last = 1\n")
    assert names(file) == ["run.py"]


def test_what_cannot_be_kept_in_the_last_moment_is_in_its_place_again(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, keep = renaming.rename, saving.keep

    def append(directory: int, old: str, new: str, flag: int) -> None:
        monkeypatch.setattr(renaming, "rename", rename)
        monkeypatch.setattr(saving, "keep", full)
        with file.open("ab") as writer:
            writer.write(b"last = 1\n")
        rename(directory, old, new, flag)

    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert keep
    monkeypatch.setattr(renaming, "rename", append)
    assert refused(file, saving) == "No space left on device"
    assert file.read_bytes() == OLD + b"last = 1\n"
    assert names(file) == ["run.py"]


def test_where_names_cannot_be_exchanged_it_is_replaced(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renaming, "_function", lambda: None)
    put(file, saving)
    put(file.parent / "new.py", saving)
    assert (file.read_bytes(), names(file)) == (NEW, ["new.py", "run.py"])


def test_one_that_appears_in_the_last_moment_is_not_overwritten(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, path = renaming.rename, file.parent / "new.py"

    def appear(directory: int, old: str, new: str, flag: int) -> None:
        path.write_bytes(b"somebody's\n")
        rename(directory, old, new, flag)

    monkeypatch.setattr(renaming, "rename", appear)
    assert refused(path, saving) == "it is being changed by somebody else"
    assert path.read_bytes() == b"somebody's\n"
    assert names(file) == ["new.py", "run.py"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0")
def test_a_missing_file_comes_back_also_where_its_group_cannot_be_given(
    file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    for path in (file.parent, file):
        os.chown(path, 0, NOBODY)
    monkeypatch.setattr(os, "fchown", refuse)
    put(file.parent / "gone.py", saving)
    assert (file.parent / "gone.py").read_bytes() == NEW
    assert refused(file, saving) == f"it belongs to uid 0, gid {NOBODY}"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs uid 0")
def test_root_forgets_bytecode_of_whoever_has_the_file(file: Path) -> None:
    cache = file.parent / "__pycache__"
    cache.mkdir()
    (cache / "run.cpython-311.pyc").write_text("")
    os.chown(cache / "run.cpython-311.pyc", NOBODY, NOBODY)
    assert putting_back.forget_bytecode(str(file)) == []
    assert os.listdir(cache) == []


def test_an_added_file_goes_if_it_is_what_was_recorded(file: Path, saving: Saving) -> None:
    with pytest.raises(NotPutBackError, match="not what was recorded"):
        putting_back.remove(str(file), hashlib.sha256(NEW).hexdigest(), saving)
    assert file.exists()
    assert (saving.kept, os.path.lexists(saving.directory)) == ([], False)
    putting_back.remove(str(file), hashlib.sha256(OLD).hexdigest(), saving)
    assert not file.exists()
    assert Path(saving.place(str(file))).read_bytes() == OLD
    putting_back.remove(str(file), hashlib.sha256(OLD).hexdigest(), saving)


def test_one_that_has_a_second_name_stays(file: Path, saving: Saving, tmp_path: Path) -> None:
    os.link(file, tmp_path / "other")
    with pytest.raises(NotPutBackError, match="second name"):
        putting_back.remove(str(file), hashlib.sha256(OLD).hexdigest(), saving)
    assert file.exists()


def test_only_its_own_bytecode_is_forgotten(file: Path, tmp_path: Path) -> None:
    cache = file.parent / "__pycache__"
    cache.mkdir()
    kept = ["runner.cpython-311.pyc", "run.cpython-311.txt", "xrun.cpython-311.pyc"]
    for name in ("run.cpython-311.pyc", "run.cpython-311.opt-1.pyc", *kept):
        (cache / name).write_text("")
    assert putting_back.forget_bytecode(str(file)) == []
    assert sorted(os.listdir(cache)) == sorted(kept)
    linked = cache / "run.cpython-312.pyc"
    linked.write_text("")
    os.link(linked, tmp_path / "conda")
    assert putting_back.forget_bytecode(str(file)) == [str(linked)]
    assert putting_back.forget_bytecode(str(file.with_suffix(".json"))) == []


def test_half_a_copy_is_not_kept(file: Path, saving: Saving, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(saving_module, "write_all", full)
    assert refused(file, saving) == "No space left on device"
    assert not os.path.lexists(saving.place(str(file)))
