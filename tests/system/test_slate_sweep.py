"""The clean slate on real leftovers: what goes, what stays, and that a second look finds nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervise.host import files, procfs, shm, signals
from supervise.model.litter import FileId
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need, Port
from supervise.model.process import Process, ProcessId
from supervise.model.slate import Ownership, SlateResult, Verdict
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, Record
from supervise.profiles.load import load_all
from supervise.slate import Host, SlateRequest, sweep, to_json
from supervise.slate.request import Host as Readers
from tests.support import orphanage
from tests.support.family import Family
from tests.support.waiting import wait_until

RUN = "vllm-test"
ID = "id-of-attempt-6"
SHM = Path(shm.DIRECTORY)
GIB = 2**30


def here() -> dict[int, Process]:
    """Only what this test has started, and our ancestors: the machine may be running others' engines."""
    everything = procfs.scan()
    mine = {process.pid for process in procfs.descendants(everything, os.getpid())} | procfs.lineage()
    return {pid: process for pid, process in everything.items() if pid in mine}


HOST = Readers(scan=here, gpus=lambda: Gpus(GpuStatus.ABSENT))


def clean(*, port: int | None = None, host: Host = HOST, records: tuple[Record, ...] = (), **more: Any) -> SlateResult:
    need = Need(
        profile="vllm",
        run=RUN,
        argv=(),
        program=(),
        ports=() if port is None else (Port(port, "127.0.0.1", "http", "--port"),),
        uds=more.pop("uds", None),
        devices=more.pop("devices", Devices(DeviceKind.NONE)),
        memory_fraction=0.9,
        memory_rule=MemoryRule.OF_TOTAL,
    )
    more.setdefault("deadline_s", 20.0)
    return sweep(SlateRequest(RUN, need, tuple(load_all().values()), records, **more), host)


def marker(run: str = RUN, attempt: int = 6, id_: str = ID) -> dict[str, str]:
    return {procfs.MARKER_RUN: run, procfs.MARKER_ATTEMPT: str(attempt), procfs.MARKER_ID: id_}


def record(**more: Any) -> Record:
    gone = ProcessId(2**22 - 1, 1)
    plain = Record(RUN, 6, ID, procfs.host_id(), supervisor=gone, keeper=gone, leader=None)
    return replace(plain, **more)


Orphans = Callable[..., Family]


@pytest.fixture
def orphans(family: Family) -> Iterator[Orphans]:
    """Starts an orphanage; all of it is ended at tear-down, its reaper last so that nothing is lost sight of."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*specs: dict[str, Any]) -> Family:
        command = [sys.executable, orphanage.__file__, "--tell", str(family.path), *map(json.dumps, specs)]
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
        return family.wait_ready()

    yield start
    for member in family.refresh().members.values():
        signals.send(member, signal.SIGKILL)
    for process in started:
        process.kill()
        process.wait(20)


@pytest.fixture
def segment() -> Iterator[Callable[[str], str]]:
    made: list[Path] = []

    def make(prefix: str = "psm_") -> str:
        made.append(SHM / f"{prefix}{uuid.uuid4().hex[:8]}")
        made[-1].write_bytes(bytes(4096))
        made[-1].chmod(0o600)
        return made[-1].name

    yield make
    for path in made:
        path.unlink(missing_ok=True)


def engine(role: str = "engine", title: str = "VLLM::EngineCore", **more: Any) -> dict[str, Any]:
    return {"role": role, "title": title, **more}


def identity(name: str) -> FileId:
    state = (SHM / name).stat()
    return FileId(state.st_dev, state.st_ino)


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("title", ["VLLM::EngineCore", "VLLM::EngineCore_DP1", "VLLM::Worker_TP0", "sglang::scheduler"])
def test_an_orphaned_engine_is_ended_and_a_second_look_finds_nothing(orphans, title):
    family = orphans(engine(title=title))
    result = clean()
    (outcome,) = result.outcomes
    assert (outcome.verdict, outcome.did, result.clean) == (Verdict.GONE, "ended", True)
    assert outcome.finding.subject == f"pid {family.members['engine'].pid} {title}"
    assert family.living == {"init"}
    again = clean()
    assert (again.outcomes, again.obstacles, again.clean) == ((), (), True)
    assert "no process of this run" in again.checks


def test_one_that_ignores_sigterm_is_killed(orphans):
    family = orphans(engine(ignore_term=True))
    assert clean().clean
    assert family.living == {"init"}


@pytest.mark.parametrize("hears", [False, True], ids=["all deaf", "one that hears"])
def test_nobody_is_waited_for_who_was_deaf_before_he_was_told(orphans, hears):
    """The sum of all waits, not a time that was measured."""
    waits = []
    patient = replace(HOST, sleep=lambda seconds: (waits.append(seconds), time.sleep(seconds))[1])
    family = orphans(engine(ignore_term=True), *([engine(role="other")] if hears else []))
    assert clean(host=patient).clean
    assert family.living == {"init"}
    assert (sum(waits) >= 3.0) is hears


def test_an_engine_whose_launcher_lives_is_left_alone(orphans):
    family = orphans(engine(stays=True))
    result = clean()
    assert (result.outcomes, result.clean) == ((), True)
    assert family.living == {"init", "engine", "launcher-of-engine"}


def test_an_orphan_that_serves_another_port_is_left_alone_and_told(orphans, port):
    family = orphans(engine(listen=[port]))
    result = clean()
    assert (result.outcomes, result.clean) == ((), True)
    assert f"serves port {port}" in result.remarks[0].evidence
    assert "engine" in family.living


def test_members_of_a_dead_attempt_go_by_marker_and_what_is_below_them_too(orphans):
    family = orphans(
        {"role": "leader", "env": marker(), "child": {"role": "child", "env": False, "ignore_term": True}},
        {"role": "stranger", "env": marker(id_="an id that nobody wrote down")},
    )
    result = clean(records=(record(),))
    assert result.clean
    assert family.living == {"init", "stranger"}


@pytest.mark.parametrize("at_work", [True, False])
def test_a_run_that_a_member_has_started_goes_with_it_only_if_nobody_is_at_work_on_it(orphans, at_work):
    child = {"role": "inner", "env": marker("inner", id_="inner-id"), "child": {"role": "below", "env": False}}
    family = orphans({"role": "leader", "env": marker(), "child": child})
    supervisor = procfs.self_id() if at_work else ProcessId(2**22 - 1, 1)
    inner = record(run="inner", marker_id="inner-id", supervisor=supervisor)
    assert clean(records=(record(), inner)).clean
    assert family.living == ({"init", "inner", "below"} if at_work else {"init"})


def test_a_member_goes_by_its_record_alone(orphans):
    family = orphans({"role": "leader", "env": False})
    leader = family.members["leader"]
    assert clean(records=(record(leader=leader._replace(ticks=leader.ticks + 1)),)).outcomes == ()
    assert "leader" in family.living
    result = clean(records=(record(leader=leader),))
    assert [outcome.verdict for outcome in result.outcomes] == [Verdict.GONE]
    assert family.living == {"init"}


def test_a_live_run_is_not_touched(orphans):
    family = orphans({"role": "member", "env": marker()})
    result = clean(records=(record(supervisor=family.members["init"]),))
    assert not result.clean
    assert [finding.ownership for finding in result.obstacles] == [Ownership.LIVE]
    assert result.obstacles[0].remedy == f"supervise stop {RUN}"
    assert "member" in family.living


def test_what_another_dead_run_left_is_told_and_not_touched(orphans):
    family = orphans({"role": "member", "env": marker("other", 2, "id-of-other")})
    other = record(run="other", attempt=2, marker_id="id-of-other")
    result = clean(records=(other,))
    assert (result.outcomes, result.clean) == ((), True)
    assert [finding.remedy for finding in result.remarks] == ["supervise clean --name other"]
    assert "member" in family.living


def test_a_dry_run_touches_nothing(orphans):
    family = orphans(engine())
    result = clean(dry_run=True)
    assert ([outcome.did for outcome in result.outcomes], result.clean) == (["would end"], False)
    assert family.living == {"init", "engine"}


def test_a_cancelled_sweep_touches_nothing(orphans):
    family = orphans(engine())
    assert not clean(cancelled=lambda: True).clean
    assert family.living == {"init", "engine"}


def test_decoys_survive_everything(orphans, tmp_path, port):
    (tmp_path / "vllm.log").touch()
    (tmp_path / "vllm.md").touch()
    (tmp_path / "bench.py").write_text("import signal\nsignal.pause()\n")
    tail, shell = shutil.which("tail"), shutil.which("bash") or "/bin/sh"
    decoys = [
        ([sys.executable, "bench.py", "--backend", "vllm"], sys.executable),
        (["tail", "-f", "vllm.log"], tail),
        (["vim", "-f", "vllm.md"], tail),
        (["less", "-f", "VLLM::EngineCore"], tail),
        ([shell, "-c", f"read x; : vllm serve /models/tiny --port {port}"], shell),
        ([shell, "-c", "read x; : python -m sglang.launch_server VLLM::Worker_TP0"], shell),
    ]
    (tmp_path / "VLLM::EngineCore").touch()
    family = orphans(engine(), engine("worker", "VLLM::Worker_TP0"))
    started = [
        subprocess.Popen(argv, executable=program, cwd=tmp_path, stdin=subprocess.PIPE, start_new_session=True)
        for argv, program in decoys
    ]
    try:
        assert clean(port=port, records=(record(),)).clean
        assert family.living == {"init"}
        assert [process.args for process in started if process.poll() is not None] == []
    finally:
        for process in started:
            process.kill()
            process.communicate()


# --- ports ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["bind", "listen"])
def test_a_port_of_an_orphan_is_free_once_it_is_ended(orphans, port, how):
    family = orphans(engine(**{how: [port]}))
    result = clean(port=port)
    assert result.clean
    assert f"port {port} bindable" in result.checks
    assert family.living == {"init"}


@pytest.mark.parametrize("how", ["bind", "listen"])
def test_a_port_of_a_stranger_is_an_obstacle_and_he_lives_on(orphans, port, how):
    family = orphans({"role": "stranger", how: [port]}, engine())
    result = clean(port=port)
    (obstacle,) = result.obstacles
    assert (obstacle.kind, result.clean) == ("port", False)
    assert "stranger" in family.living
    told = " ".join((*obstacle.evidence, obstacle.remedy))
    assert f"kill {family.members['stranger'].pid}" in told or "no holder is visible" in told
    if how == "listen":
        assert obstacle.ownership is Ownership.FOREIGN


def test_a_port_of_another_live_run_names_the_run(orphans, port):
    family = orphans({"role": "member", "env": marker("other", 2, "id-of-other"), "listen": [port]})
    other = record(run="other", attempt=2, marker_id="id-of-other", supervisor=family.members["init"])
    result = clean(port=port, records=(other,))
    assert [finding.ownership for finding in result.obstacles] == [Ownership.LIVE]
    assert result.obstacles[0].remedy.startswith("supervise stop other")
    assert "member" in family.living


# --- shared memory and files ------------------------------------------------------------------------------------------


def test_segments_go_with_the_orphan_that_mapped_them(orphans, segment):
    mine, model, nobody_s = segment(), segment("model-of-the-user-"), segment()
    orphans(engine(map=[mine, model]))
    result = clean()
    assert result.clean
    assert f"/dev/shm/{mine}" in [outcome.finding.subject for outcome in result.outcomes]
    assert [name for name in (mine, model, nobody_s) if (SHM / name).exists()] == [model, nobody_s]


def test_recorded_segments_go_unless_somebody_uses_them(orphans, segment):
    left, used, model, unrecorded = segment(), segment(), segment("model-"), segment()
    orphans({"role": "user", "map": [used]})
    written = tuple(map(identity, (left, used, model)))
    assert clean(records=(record(segments=written),)).clean
    assert [name for name in (left, used, model, unrecorded) if (SHM / name).exists()] == [used, model, unrecorded]


def test_segments_that_a_record_of_another_boot_names_are_not_touched(segment):
    left = segment()
    elsewhere = procfs.host_id()._replace(boot_id="another boot")
    assert clean(records=(record(segments=(identity(left),), host=elsewhere),)).outcomes == ()
    assert (SHM / left).exists()


def test_the_private_directory_goes_only_if_it_is_the_one():
    mine, other = files.private_directory(ID), files.private_directory("another id")
    try:
        (Path(mine) / "socket").touch()
        records = (record(runtime_dir=mine), record(attempt=5, runtime_dir=other))
        result = clean(records=records)
        assert {outcome.finding.subject: outcome.verdict for outcome in result.outcomes} == {
            mine: Verdict.GONE,
            other: Verdict.REMAINS,
        }
        assert (os.path.exists(mine), os.path.exists(other)) == (False, True)
    finally:
        shutil.rmtree(mine, ignore_errors=True)
        shutil.rmtree(other)


def test_a_socket_file_that_nobody_has_bound_is_removed(short_dir):
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    result = clean(uds=str(path))
    assert [outcome.verdict for outcome in result.outcomes] == [Verdict.GONE]
    assert not path.exists()


@pytest.mark.parametrize("listening", [True, False])
def test_a_socket_that_somebody_has_bound_is_an_obstacle(short_dir, listening):
    path = short_dir / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        if listening:
            server.listen()
        result = clean(uds=str(path))
    assert [finding.kind for finding in result.obstacles] == ["socket"]
    assert path.is_socket()


@pytest.mark.parametrize("what", ["file", "link", "directory"])
def test_what_is_no_socket_is_never_removed(short_dir, what):
    path, target = short_dir / "s", short_dir / "precious"
    target.write_text("x")
    {"file": path.touch, "directory": path.mkdir, "link": lambda: path.symlink_to(target)}[what]()
    result = clean(uds=str(path))
    assert [finding.ownership for finding in result.obstacles] == [Ownership.UNKNOWN]
    assert os.path.lexists(path)
    assert target.read_text() == "x"


# --- GPUs -------------------------------------------------------------------------------------------------------------


def gpu(free: int, *holders: int) -> Gpus:
    device = GpuReading(0, "GPU-0", "H200", 100 * GIB, free * GIB, tuple((pid, 50 * GIB) for pid in holders))
    return Gpus(GpuStatus.READ, (device,))


ONE = Devices(DeviceKind.LISTED, ("0",))


def test_memory_of_an_orphan_is_awaited_although_the_driver_lists_it_for_a_while(orphans):
    family = orphans(engine())
    pid = family.members["engine"].pid
    readings = iter([gpu(10, pid), gpu(10, pid), gpu(10), gpu(60)])
    result = clean(devices=ONE, host=replace(HOST, gpus=lambda: next(readings, gpu(95))))
    assert result.clean
    assert {outcome.did for outcome in result.outcomes} == {"ended", "awaited"}
    assert "GPU 0 free ≥ 90%" in result.checks


def test_memory_that_never_returns_is_an_obstacle_at_the_deadline():
    result = clean(devices=ONE, host=replace(HOST, gpus=lambda: gpu(10)), deadline_s=0.3)
    (obstacle,) = result.obstacles
    assert "no visible owner" in obstacle.evidence
    assert obstacle.evidence[-1].startswith("still there after")
    assert 0.3 <= result.seconds < 10


def test_a_holder_that_is_nobody_s_orphan_is_an_obstacle_at_once(orphans):
    family = orphans({"role": "training"})
    result = clean(devices=ONE, host=replace(HOST, gpus=lambda: gpu(10, family.members["training"].pid)))
    assert f"kill {family.members['training'].pid}" in result.obstacles[0].remedy
    assert "training" in family.living


def test_a_result_is_json(orphans):
    orphans(engine())
    told = json.loads(json.dumps(to_json(clean())))
    assert told["clean"] is True
    assert told["outcomes"][0]["verdict"] == "gone"
    assert told["outcomes"][0]["action"] == "EndProcesses"


def test_the_reaper_is_what_makes_an_orphan(orphans):
    """Negative control: were the parent not taken for a reaper, nothing would be found."""
    family = orphans(engine())
    reaper = family.members["init"]

    def unknown_reaper() -> dict[int, Process]:
        processes = here()
        return processes | {reaper.pid: replace(processes[reaper.pid], comm="python3")}

    assert clean(host=replace(HOST, scan=unknown_reaper)).outcomes == ()
    assert "engine" in wait_until(lambda: family.living)
