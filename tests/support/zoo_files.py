"""Exhibits that lie about: sockets, locks, stale bytecode, dumps."""

from __future__ import annotations

import os
import py_compile
import socket
import sys
import uuid
from pathlib import Path

from supervise.model.evict import Evict
from tests.support.zoo import Zoo, age, unique

# PROC_PID_INIT_INO of the kernel.
_FIRST_PID_NAMESPACE = 0xEFFFFFFC
DUMPS = "*_debug_*.pt"


def sockets(zoo: Zoo) -> None:
    """Socket files of ZMQ endpoints: those that nobody has bound any more, and what looks like them."""
    stale = [zoo.tmp / str(uuid.uuid4()) for _ in range(2)]
    stale += [zoo.tmp / f"sglang_trace_{zoo.dead_pid()}.sock", zoo.tmp / f"tmp{unique()}"]
    for path in stale:
        zoo.file("sockets", _unbound(path), Evict.STALE)
    bound = [zoo.tmp / str(uuid.uuid4()), zoo.tmp / f"tmp{unique()}"]
    zoo.animal("python3", "broker.py", unix=[str(path) for path in bound])
    for path in bound:
        zoo.file("sockets", path, None, f"{path.name} (bound)")
    regular, prefixed = zoo.tmp / str(uuid.uuid4()), zoo.tmp / f"db-{uuid.uuid4()}"
    regular.write_text("not a socket")
    zoo.file("sockets", regular, None, f"{regular.name} (a regular file)")
    zoo.file("sockets", _unbound(prefixed), None)


def _unbound(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as endpoint:
        endpoint.bind(str(path))
    return age(path)


def locks(zoo: Zoo) -> None:
    """Batons and soft locks of the dead, beside those of the living and beside flock(2)'s, which mean nothing."""
    extensions, hub = zoo.cache / "torch_extensions/py311_cu128", zoo.cache / "huggingface/hub/.locks/models--x"
    host = _filelock_host()
    batons = [_baton(extensions / name / "lock") for name in ("old", "other", "held")]
    holder, _ = zoo.animal("ninja", "-v", hold=[str(batons[2])])
    for baton in batons[:2]:
        zoo.file("locks", age(baton), Evict.STALE, "baton that nobody holds")
    zoo.file("locks", age(batons[2]), None, "baton that is held")
    for name, rest in (("dead1", ""), ("dead2", ""), ("dead3", "1700000000\n")):
        soft = _lock(hub / f"{name}.lock", f"{zoo.dead_pid()}\n{host}\n{rest}")
        zoo.file("locks", age(soft), Evict.STALE, "soft lock of a dead process")
    # A lock is younger than its owner.
    zoo.file("locks", _lock(hub / "live.lock", f"{holder.pid}\n{host}\n"), None, "soft lock of a live process")
    flocked = _lock(hub / "flocked.lock")
    zoo.animal("python3", "download.py", lock=[str(flocked)])
    zoo.file("locks", age(flocked), None, "flock file, locked")
    zoo.file("locks", age(_lock(hub / "empty.lock")), None, "flock file, not locked")
    zoo.file("locks", age(_lock(extensions / "newer/lock")), None, "flock file of a newer torch")


def _baton(path: Path) -> Path:
    """As torch makes it: without a mode, so that it may be executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    return path


def _lock(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _filelock_host() -> str:
    """This host as filelock writes it: in a container with the namespace, without which a pid means nothing."""
    namespace = os.stat("/proc/self/ns/pid").st_ino
    return os.uname().nodename + ("" if namespace == _FIRST_PID_NAMESPACE else f"?pidns-{namespace:x}")


def dumps(zoo: Zoo) -> None:
    """What a debugging session dumped: closed, open, and of another name."""
    closed = [_dump(zoo.tmp / f"layer{number}_debug_{unique()}.pt") for number in range(3)]
    opened = [_dump(zoo.tmp / f"layer{number}_debug_{unique()}.pt") for number in range(2)]
    zoo.animal("python3", "-m", "pdb", "train.py", hold=[str(opened[0])], map=[str(opened[1])])
    for path in closed:
        zoo.file("dumps", path, Evict.OWN)
    for path in opened:
        zoo.file("dumps", path, None, f"{path.name} (open)")
    zoo.file("dumps", _dump(zoo.tmp / f"weights_{unique()}.pt"), None)


def _dump(path: Path) -> Path:
    path.write_bytes(b"\0" * 4096)
    return age(path)


def bytecode(zoo: Zoo) -> Path:
    """A package: modules whose bytecode would be believed although they have changed, and modules like any other.

    Returns:
        The directory of the package.
    """
    package = zoo.site / f"patched_{unique()}"
    package.mkdir()
    for number in (0, 1):
        stale = _module(package / f"stale{number}.py", "answer = 41\n")
        state = stale.stat()
        stale.write_text("answer = 42\n")
        os.utime(stale, ns=(state.st_atime_ns, state.st_mtime_ns))
        zoo.file("bytecode", _compiled(stale), Evict.STALE, "same size and time, another source")
    fresh, touched = _module(package / "fresh.py", "answer = 41\n"), _module(package / "touched.py", "answer = 41\n")
    touched.write_text("answer = 4200\n")
    zoo.file("bytecode", _compiled(fresh), None, "of its source")
    zoo.file("bytecode", _compiled(touched), None, "outdated, and Python sees it")
    return package


def _module(path: Path, text: str) -> Path:
    path.write_text(text)
    py_compile.compile(str(path), cfile=str(_compiled(path)), doraise=True)
    return path


def _compiled(path: Path) -> Path:
    return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
