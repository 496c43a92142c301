"""The door through which files of installed packages are written back: each is the old one or the new one, never half.

A file is written beside its place, synced and renamed (rename(2)): whoever reads it, and whoever kills us, finds one of
the two. A name that leads into the cache of an installer (a hard link of conda, a symbolic link of uv) is replaced, the
cache is not written to. Before anything is overwritten or removed a copy is kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from supervise.host import removal, renaming
from supervise.host.compiled import identity
from supervise.host.saving import CHANGING, PIECE, READING, WRITING, NotPutBackError, Saving, closing, digest, write_all
from supervise.model.litter import FileId, FileType
from supervise.model.slate import Verdict


def put(path: str, data: bytes, saving: Saving) -> None:
    """Have a file contain this and nothing else, with the mode and the owner of the one that was there.

    Args:
        path: absolute and normal, without links in its directories; missing ones are made.
        data: its content.
        saving: takes what was there.

    Raises:
        NotPutBackError: it is as it was.
    """
    try:
        _make_directories(os.path.dirname(path))
        with removal.opened_directory(os.path.dirname(path)) as directory:
            _clear(directory, path, data, saving)
            with saving.unless_refused():
                _put(directory, path, data, saving)
    except OSError as error:
        raise NotPutBackError(_phrase(error)) from None
    except ValueError as error:
        raise NotPutBackError(str(error)) from None


def remove(path: str, wanted: str, saving: Saving) -> None:
    """Remove a file, if it is what was recorded and nobody uses it.

    Args:
        path: absolute and normal, without links in its directories.
        wanted: the sha256 that its content must have, in hex.
        saving: takes a copy first.

    Raises:
        NotPutBackError: it is as it was.
    """
    try:
        with saving.unless_refused():
            _remove(path, wanted, saving)
    except OSError as error:
        raise NotPutBackError(_phrase(error)) from None
    except ValueError as error:
        raise NotPutBackError(str(error)) from None


def _remove(path: str, wanted: str, saving: Saving) -> None:
    with removal.opened_directory(os.path.dirname(path)) as directory:
        state = _state(directory, os.path.basename(path))
        if state is None:
            return
        if not stat.S_ISREG(state.st_mode):
            raise NotPutBackError("it is no regular file")
        if saving.keep(directory, path, state) != wanted:
            raise NotPutBackError("it is not what was recorded")
        _expect_same(directory, os.path.basename(path), state)
    verdict = removal.remove(path, FileId(state.st_dev, state.st_ino), FileType.REGULAR, os.geteuid())
    if verdict is not Verdict.GONE:
        raise NotPutBackError("it is in use, has a second name, or is somebody else's")


def forget_bytecode(path: str, prefix: str = "") -> list[str]:
    """Remove what was compiled of a source that has just been put back or removed.

    Args:
        path: of the source, absolute; of anything else there is no bytecode.
        prefix: of PYTHONPYCACHEPREFIX, where bytecode then is.

    Returns:
        Bytecode that is still there: of another user, in use, or with a second name.
    """
    directory, name = os.path.split(path)
    if not name.endswith(".py"):
        return []
    cache = os.path.realpath(prefix + directory if prefix else f"{directory}/__pycache__")
    compiled = re.compile(re.escape(name[:-3]) + r"\.[a-z]+-\d+[a-z]*(\.opt-[12])?\.pyc")
    try:
        found = [entry for entry in os.scandir(cache) if compiled.fullmatch(entry.name)]
    except OSError:
        return []
    return [entry.path for entry in found if not _forgotten(entry)]


def _forgotten(entry: os.DirEntry[str]) -> bool:
    try:
        state = entry.stat(follow_symlinks=False)
    except OSError:
        return True
    file = FileId(state.st_dev, state.st_ino)
    # Root puts back whose ever file it is; what was compiled of it goes as well.
    whose = os.geteuid() or state.st_uid
    return removal.remove(entry.path, file, removal.file_type(state.st_mode), whose) is Verdict.GONE


def _put(directory: int, path: str, data: bytes, saving: Saving) -> None:
    name = os.path.basename(path)
    before, saved = _state(directory, name), ""
    if before is not None:
        if not stat.S_ISREG(before.st_mode) and not stat.S_ISLNK(before.st_mode):
            raise NotPutBackError("there is something else than a file in its place")
        saved = saving.keep(directory, path, before)
    beside = _beside(path)
    fd = os.open(beside, WRITING, 0o600, dir_fd=directory)
    try:
        with closing(fd):
            write_all(fd, data)
            _give(fd, directory, name, before, data)
            os.fsync(fd)
        _expect_same(directory, name, before)
        swapped = _swap(directory, beside, name, missing=before is None)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=directory)
        raise
    if swapped:
        _second_look(directory, path, saved, saving)
    _sync(os.path.dirname(path))


def _swap(directory: int, beside: str, name: str, *, missing: bool) -> bool:
    """Put a file in its place; whether what was there is beside it now, because this file system can exchange them.

    Raises:
        OSError, NotPutBackError: all is as it was.
    """
    try:
        renaming.rename(directory, beside, name, renaming.NOREPLACE if missing else renaming.EXCHANGE)
    except (FileExistsError, FileNotFoundError):
        raise NotPutBackError(CHANGING) from None
    except OSError as error:
        if error.errno not in renaming.UNSUPPORTED:
            raise
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
        return False
    return not missing


def _second_look(directory: int, path: str, saved: str, saving: Saving) -> None:
    """Remove what was swapped out; if somebody has written to it since it was copied, it is copied once more.

    Raises:
        OSError, NotPutBackError: it could not be copied, and is in its place again.
    """
    name, beside = os.path.basename(path), _beside(path)
    try:
        state = os.stat(beside, dir_fd=directory, follow_symlinks=False)
        if digest(directory, beside, state) != saved:
            saving.keep(directory, path, state, beside)
    except (OSError, NotPutBackError):
        renaming.rename(directory, beside, name, renaming.EXCHANGE)
        os.unlink(beside, dir_fd=directory)
        raise
    os.unlink(beside, dir_fd=directory)


def _beside(path: str) -> str:
    return f".{os.path.basename(path)}.supervise"


def _clear(directory: int, path: str, data: bytes, saving: Saving) -> None:
    """Take away what one of us left who was killed; what is no beginning of what is written is kept before."""
    beside = _beside(path)
    state = _state(directory, beside)
    if state is None:
        return
    if not stat.S_ISREG(state.st_mode) and not stat.S_ISLNK(state.st_mode):
        raise NotPutBackError(f"{beside} beside it is in the way")
    left = None
    if stat.S_ISREG(state.st_mode) and state.st_size <= len(data):
        with closing(os.open(beside, READING, dir_fd=directory)) as fd:
            left = b"".join(iter(lambda: os.read(fd, PIECE), b""))
    if left is None or not data.startswith(left):
        saving.keep(directory, os.path.join(os.path.dirname(path), beside), state)
        _expect_same(directory, beside, state)
    os.unlink(beside, dir_fd=directory)


def _give(fd: int, directory: int, name: str, before: os.stat_result | None, data: bytes) -> None:
    """Mode and owner: of the file that was there, of what a link leads to; of a new one those of its directory."""
    if before is not None and stat.S_ISLNK(before.st_mode):
        with contextlib.suppress(OSError):
            before = os.stat(name, dir_fd=directory)
    if before is None or stat.S_ISLNK(before.st_mode):
        above, mode = os.stat(".", dir_fd=directory), 0o755 if data.startswith(b"#!") else 0o644
        owner = (above.st_uid, above.st_gid)
    else:
        owner, mode = (before.st_uid, before.st_gid), stat.S_IMODE(before.st_mode) & 0o777
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != owner:
        try:
            os.fchown(fd, *owner)
        except PermissionError:
            # A new one has the group that the kernel gives to new ones there.
            if before is not None or now.st_uid != owner[0]:
                raise NotPutBackError(f"it belongs to uid {owner[0]}, gid {owner[1]}") from None
    os.fchmod(fd, mode)


def _make_directories(path: str) -> None:
    """Make those that are missing, with the owner of the one that they are in."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with removal.opened_directory(os.path.dirname(each)) as above:
            os.mkdir(os.path.basename(each), 0o755, dir_fd=above)
            owner, now = os.stat(".", dir_fd=above), os.stat(os.path.basename(each), dir_fd=above)
            if owner.st_uid != now.st_uid:
                os.chown(os.path.basename(each), owner.st_uid, owner.st_gid, dir_fd=above, follow_symlinks=False)


def _state(directory: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _expect_same(directory: int, name: str, before: os.stat_result | None) -> None:
    now = _state(directory, name)
    if (now and identity(now)) != (before and identity(before)):
        raise NotPutBackError(CHANGING)


def _sync(directory: str) -> None:
    """A rename is only as lasting as its directory; a file system that cannot sync one has done what it can."""
    with contextlib.suppress(OSError), closing(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        os.fsync(fd)


def _phrase(error: OSError) -> str:
    return error.strerror or str(error)
