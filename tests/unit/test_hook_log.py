"""What a command has written: its beginning and its end are kept, whatever lies between."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervise.group.hook_log import HookLog
from supervise.runner.trial import _last_lines

KEPT = 64 * 1024


def written(path: Path, *pieces: bytes, how: str = "exit status 1") -> list[bytes]:
    log = HookLog(str(path))
    log.begin("probe")
    for piece in pieces:
        log.write(piece)
    log.end(how)
    return path.read_bytes().splitlines()


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_the_first_and_the_last_of_it_are_kept(tmp_path: Path, size: int) -> None:
    noise = b"".join(b"line %06d\n" % number for number in range(20_000))
    said = b"first\n" + noise + b"ValueError: the reason\n"
    lines = written(tmp_path / "log", *(said[at : at + size] for at in range(0, len(said), size)))
    assert lines[1] == b"first"
    assert lines[-2:] == [b"ValueError: the reason", b"=== exit status 1"]
    (left_out,) = (line for line in lines if line.endswith(b"were not kept here"))
    assert int(left_out.split()[1]) == len(said) - KEPT
    assert KEPT < (tmp_path / "log").stat().st_size < KEPT + 512


def test_what_fits_is_kept_as_it_is(tmp_path: Path) -> None:
    said = b"x" * (KEPT - 5) + b"\nend\n"
    path = tmp_path / "log"
    lines = written(path, said)
    assert said in path.read_bytes()
    assert b"not kept" not in path.read_bytes()
    assert lines[-1] == b"=== exit status 1"


def test_the_next_one_has_its_own_beginning_and_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = HookLog(str(path))
    for name, size in ((b"a", KEPT * 2), (b"b", 2)):
        log.begin(name.decode())
        log.write(name * size)
        log.end("exit status 0")
    lines = path.read_bytes().splitlines()
    assert lines[-2:] == [b"bb", b"=== exit status 0"]
    assert lines[-3].endswith(b" b")
    assert sum(b"not kept" in line for line in lines) == 1


def test_the_last_lines_are_the_users(tmp_path: Path) -> None:
    path = tmp_path / "log"
    written(path, b"=== 1 failed in 0.2s ===\n")
    assert _last_lines(str(path)) == ["=== 1 failed in 0.2s ==="]
    path.unlink()
    written(path, b"noise\n" * KEPT, b"the reason")
    assert _last_lines(str(path)) == ["noise"] * 4 + ["the reason"]
    path.unlink()
    written(path)
    assert _last_lines(str(path)) == []
