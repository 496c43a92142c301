"""The next start over what a real vLLM leaves behind: it comes up, and says what it removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.host import procfs, shm, signals
from supervise.model.litter import FileId
from supervise.model.process import ProcessId
from tests.real.server import START_S, RealVllm, Server
from tests.support import orphanage
from tests.support.family import Family
from tests.support.launcher import Supervise
from tests.support.waiting import wait_gone, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(900, func_only=True)]

Orphans = list[ProcessId]

STOP_S = 90.0
LOADED = "Starting vLLM server on"


@pytest.fixture
def orphans(real_vllm: RealVllm, supervise: Supervise, short_dir: Path, family: Family, port: int) -> Iterator[Orphans]:
    """What runs on when the API server of a vLLM that nobody supervised is killed."""
    log = short_dir / "bare.log"
    env = supervise.env | real_vllm.environment
    spec = {"role": "leader", "exec": real_vllm.command(port), "log": str(log), "env": env}
    command = [sys.executable, orphanage.__file__, "--tell", str(family.path), json.dumps(spec)]
    reaper = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=supervise.base)
    leader = family.wait_ready().members["leader"]
    wait_until(lambda: log.exists() and LOADED in log.read_text(errors="replace"), START_S, failure=log.read_text)
    below = [process.id for process in procfs.descendants(procfs.scan(), leader.pid)]
    signals.send(leader, signal.SIGKILL)
    wait_gone([leader])
    yield below
    for orphan in below:
        signals.send(orphan, signal.SIGKILL)
    reaper.kill()
    reaper.wait(20)


def test_each_start_comes_up_over_what_the_last_one_left(
    real_vllm: RealVllm, supervise: Supervise, orphans: Orphans, port: int
) -> None:
    assert any(signals.alive(orphan) for orphan in orphans)
    assert _sockets(supervise.tmp)
    first = _ready(Server(real_vllm, supervise, port))
    told = first.launched.stderr
    assert "VLLM::EngineCore  (orphan of vllm" in told, told
    assert not any(signals.alive(orphan) for orphan in orphans)
    assert not _sockets(supervise.tmp)

    mapped = _kill_with_resource_tracker(first)
    assert mapped & _segments()
    second = _ready(Server(real_vllm, supervise, port))
    assert "removed /dev/shm/psm_" in second.launched.stderr, second.launched.stderr
    assert not mapped & _segments()

    left = [member.id for member in second.group()]
    _kill_ours(second)
    assert any(signals.alive(member) for member in left)
    third = _ready(Server(real_vllm, supervise, port))
    assert "leader of attempt 2 by its record" in third.launched.stderr, third.launched.stderr
    assert not any(signals.alive(member) for member in left)
    assert third.get("/v1/models")["data"]

    third.launched.send(signal.SIGTERM)
    assert third.launched.wait(STOP_S) == -signal.SIGTERM
    assert supervise.run("clean", deadline_s=STOP_S).popen.returncode == 0


def _ready(server: Server) -> Server:
    """Started and serving, by its own words: run.json still has those of a start that was killed."""
    server.start().launched.wait_said("\nready", START_S)
    return server.wait_ready()


def _kill_with_resource_tracker(server: Server) -> set[FileId]:
    """Everybody at once, and those first who would clean up; the names that they had mapped in /dev/shm."""
    members = [member.id for member in server.group()]
    mapped = {file for member in members for file in shm.mapped_by(member.pid) or ()} & _segments()
    ours = [server.supervise.identity(role) for role in ("supervisor", "guard", "keeper")]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in (*ours, *members):
            signals.send(target, signum)
    server.launched.wait(STOP_S)
    wait_gone([*ours, *members])
    return mapped


def _kill_ours(server: Server) -> None:
    ours = [server.supervise.identity(role) for role in ("supervisor", "guard", "keeper")]
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for target in ours:
            signals.send(target, signum)
    server.launched.wait(STOP_S)
    wait_gone(ours)


def _segments() -> set[FileId]:
    return {segment.file for segment in shm.segments() if segment.uid == os.geteuid()}


def _sockets(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_socket()]
