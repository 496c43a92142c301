"""The leak check must see leaks: a check that cannot fail would hide every other defect."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.family import Family
from tests.support.launcher import hydra
from tests.support.leaks import no_leaks
from tests.support.waiting import wait_until


def test_sees_and_ends_processes_that_got_away(family: Family) -> None:
    with pytest.raises(AssertionError, match=r"left behind: process \d+"), no_leaks():  # noqa: PT012 - it is a context
        popen = subprocess.Popen(hydra("double-fork", "setsid", pids=family.path))
        family.wait_ready()
        popen.kill()
        popen.wait()
        assert family.living == {"double-fork", "setsid"}
    assert family.living == set()


def test_sees_descriptors() -> None:
    opened: list[int] = []
    with pytest.raises(AssertionError, match="left behind: descriptor"), no_leaks():
        opened.extend(os.pipe())
    for fd in opened:
        os.close(fd)


def test_sees_segments_that_nobody_uses() -> None:
    path = Path(f"/dev/shm/supervise-test-{os.getpid()}")
    try:
        with pytest.raises(AssertionError, match=f"left behind: segment {path.name}"), no_leaks():
            path.write_bytes(b"x")
    finally:
        path.unlink()


def test_sees_temporary_files(short_dir: Path) -> None:
    path = short_dir.parent / "left"
    with pytest.raises(AssertionError, match="left behind: file left"), no_leaks():
        path.mkdir()
    path.rmdir()


def test_lets_a_clean_test_pass(family: Family) -> None:
    with no_leaks():
        popen = subprocess.Popen(hydra("plain", pids=family.path))
        family.wait_ready()
        family.kill()
        popen.wait()
        wait_until(lambda: not family.living)
    assert popen.returncode in (0, -signal.SIGKILL)
