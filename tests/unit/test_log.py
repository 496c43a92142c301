"""The bounded log: no byte lost, whoever reads it, on a file system that collapses and on one that cannot."""

import gzip
import os
import subprocess
import sys
import threading

import pytest

from supervise.attempts.log import Bound, Follower, LogFile

BOUND = Bound(limit=256 * 1024)


@pytest.fixture(params=["disk", "tmpfs"])
def path(request, tmp_path):
    """A log on this disk, where blocks can be collapsed, and on tmpfs, where they can only be punched out."""
    if request.param == "disk":
        where = tmp_path / "server.log"
        where.touch()
        yield str(where)
        return
    name = f"/dev/shm/supervise-test-{os.getpid()}.log"
    with open(name, "x"):
        pass
    yield name
    for each in (name, f"{name}.gz", f"{name}.map"):
        if os.path.exists(each):
            os.unlink(each)


def drain(log: LogFile) -> bytes:
    read = b""
    while True:
        data = log.read()
        trimmed = log.trim()
        if not data and not trimmed:
            return read
        read += data


def whole(path: str) -> bytes:
    follower = Follower(path)
    try:
        pieces = list(follower.archived())
        while piece := follower.read():
            pieces.append(piece)
    finally:
        follower.close()
    return b"".join(pieces)


def allocated(path: str) -> int:
    return os.stat(path).st_blocks * 512


def test_a_log_beyond_its_bound_keeps_every_byte(path):
    lines = b"".join(b"line %08d\n" % n for n in range(120_000))
    log = LogFile(path, BOUND)
    read = b""
    with open(path, "ab", buffering=0) as writer:
        for start in range(0, len(lines), 65536):
            writer.write(lines[start : start + 65536])
            read += drain(log)
    assert read == lines
    assert allocated(path) <= BOUND.limit + 128 * 1024
    assert os.path.getsize(f"{path}.gz") > 0
    assert whole(path) == lines
    log.close()


def test_without_trimming_the_same_log_outgrows_its_bound(path):
    """Negative control."""
    log = LogFile(path, BOUND)
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"x" * 1024 * 1024)
    while log.read():
        pass
    assert allocated(path) > BOUND.limit
    log.close()


def test_a_live_writer_never_loses_a_line_while_its_head_is_taken_away(path):
    count = 60_000
    program = f"import sys\nfor n in range({count}): sys.stdout.write('%08d\\n' % n); sys.stdout.flush()"
    with open(path, "ab") as output:
        writer = subprocess.Popen([sys.executable, "-c", program], stdout=output)
    log = LogFile(path, Bound(limit=64 * 1024))
    read = b""
    while writer.poll() is None:
        read += drain(log)
    read += drain(log)
    assert read.split() == [b"%08d" % n for n in range(count)]
    assert whole(path) == read
    log.close()


def test_a_follower_in_another_process_sees_each_line_once(path):
    log = LogFile(path, BOUND)
    follower = Follower(path)
    seen: list[bytes] = []
    stop = threading.Event()

    def follow() -> None:
        while not stop.is_set() or (piece := follower.read()):
            seen.append(piece if stop.is_set() else follower.read())

    reader = threading.Thread(target=follow)
    reader.start()
    written = b""
    with open(path, "ab", buffering=0) as writer:
        for n in range(400):
            piece = b"".join(b"%06d-%04d\n" % (n, k) for k in range(100))
            written += piece
            writer.write(piece)
            drain(log)
    stop.set()
    reader.join(20)
    follower.close()
    log.close()
    got = b"".join(seen).split()
    assert got == sorted(set(got)), "a line came twice or out of order"
    assert set(got) <= set(written.split())
    assert got[-1] == written.split()[-1]


def test_a_disk_that_refuses_the_archive_leaves_the_log_whole(path):
    log = LogFile(path, BOUND)
    os.mkdir(f"{path}.gz")
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"y" * 1024 * 1024)
    assert len(drain(log)) == 1024 * 1024
    os.rmdir(f"{path}.gz")
    assert os.path.getsize(path) == 1024 * 1024
    log.close()


def test_the_archive_is_ordinary_gzip(path):
    log = LogFile(path, BOUND)
    with open(path, "ab", buffering=0) as writer:
        writer.write(b"z" * 1024 * 1024)
    drain(log)
    log.close()
    with gzip.open(f"{path}.gz") as archive:
        assert set(archive.read()) == {ord("z")}
