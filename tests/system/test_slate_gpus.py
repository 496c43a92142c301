"""The clean slate and GPU memory, through the real nvidia-ml-py against a stand-in of the driver's library."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.host import signals
from supervise.model.process import ProcessId
from tests.support import orphanage
from tests.support.family import Family
from tests.support.nvml import library

# Looks at nothing but the family it is told: the machine may be running others' engines.
SWEEP = """
import json, sys
from supervise.host import nvml, procfs
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need
from supervise.profiles.load import load_all
from supervise.slate import Host, SlateRequest, sweep, to_json
import pynvml

told = json.loads(sys.argv[1])
mine = set(told["pids"]) | procfs.lineage()
scan = lambda: {pid: process for pid, process in procfs.scan().items() if pid in mine}
here = procfs.host_id()
host = Host(
    scan=scan,
    host_id=lambda: here._replace(pid_namespace=told["namespace"] or here.pid_namespace),
    namespace=lambda pid: told["namespace"] or procfs.pid_namespace(pid),
    gpus=lambda: nvml.read(told["timeout_s"]),
)
devices = Devices(DeviceKind.LISTED, tuple(told["devices"].split(",")))
need = Need("vllm", "r", (), (), devices=devices, memory_fraction=0.9, memory_rule=MemoryRule(told["rule"]))
request = SlateRequest("r", need, tuple(load_all().values()), deadline_s=told["deadline_s"])
print(json.dumps(to_json(sweep(request, host))))
"""
A_CONTAINER_S = 4026539999


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def members(family: Family) -> Iterator[dict[str, ProcessId]]:
    """An orphaned engine and somebody's training, below a reaper."""
    specs = [{"role": "engine", "title": "VLLM::EngineCore"}, {"role": "training"}]
    command = [sys.executable, orphanage.__file__, "--tell", str(family.path), *map(json.dumps, specs)]
    reaper = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    yield family.wait_ready().members
    for member in family.members.values():
        signals.send(member, 9)
    reaper.kill()
    reaper.wait(20)


def clean(
    built: Path, tmp_path: Path, members: dict[str, ProcessId], devices: str, *state: str, **more: Any
) -> dict[str, Any]:
    """One sweep; a line of the state that describes a device replaces the two usual ones."""
    usual = () if state and state[0].startswith("gpu ") else ("gpu GPU-aa 1000 10", "gpu GPU-bb 1000 10")
    path = tmp_path / "state"
    path.write_text("\n".join((*usual, *state)))
    told = {"devices": devices, "pids": [member.pid for member in members.values()]}
    told |= {"rule": "of-total", "deadline_s": 5.0, "timeout_s": 10.0, "namespace": None} | more
    command = [sys.executable, "-c", SWEEP, json.dumps(told)]
    environment = library.environment(built, path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=110)
    assert done.stderr == ""
    return dict(json.loads(done.stdout))


def about(told: dict[str, Any], subject: str) -> dict[str, Any]:
    """The one outcome about a subject."""
    (outcome,) = (outcome for outcome in told["outcomes"] if outcome["subject"] == subject)
    return dict(outcome)


def history(evidence: str) -> list[float]:
    """The points of the history of a device's free memory."""
    points, unit = evidence.split(" of ")
    assert unit.endswith("GiB free")
    return [float(point) for point in points.split(" → ")]


def test_memory_comes_back_with_the_end_of_its_orphan(built, tmp_path, members):
    told = clean(built, tmp_path, members, "0,1", f"proc 0 {members['engine'].pid} 800")
    assert told["clean"] is True
    assert {outcome["subject"] for outcome in told["outcomes"]} == {
        f"pid {members['engine'].pid} VLLM::EngineCore",
        "GPU 0",
    }
    assert "GPU 0,1 free ≥ 90%" in told["checks"]
    assert signals.alive(members["training"])


def test_a_holder_who_is_none_of_ours_is_named_and_lives_on(built, tmp_path, members):
    told = clean(built, tmp_path, members, "GPU-bb", f"proc 1 {members['training'].pid} 800")
    (obstacle,) = told["obstacles"]
    assert (obstacle["subject"], obstacle["ownership"]) == ("GPU 1", "foreign")
    assert f"pid {members['training'].pid}" in " ".join(obstacle["evidence"])
    assert signals.alive(members["training"])


def test_a_device_that_is_not_wanted_does_not_matter(built, tmp_path, members):
    assert clean(built, tmp_path, members, "0", f"proc 1 {members['training'].pid} 800")["clean"] is True


def test_a_holder_of_another_namespace_is_said_to_be_one(built, tmp_path, members):
    state = ("kept 0 99999999 -1", "kept 0 99999998 500")
    told = clean(built, tmp_path, members, "0", *state, namespace=A_CONTAINER_S, pids=[])
    evidence = " ".join(told["obstacles"][0]["evidence"])
    assert "pid 99999999 of another PID namespace, holds an unknown amount" in evidence
    assert told["seconds"] < 4, "waiting for it was no use"


# --- waiting ----------------------------------------------------------------------------------------------------------

GIB = 1024


@pytest.mark.parametrize("seconds", [3, 20])
def test_memory_that_returns_slowly_is_awaited_with_its_history(built, tmp_path, members, seconds):
    engine = members["engine"]
    gpus = (f"gpu GPU-aa {80 * GIB} 800", f"gpu GPU-bb {80 * GIB} 800")
    state = (*gpus, f"slow 0 {engine.pid} {76 * GIB} {seconds}", f"slow 1 {engine.pid} {40 * GIB} {seconds}")
    told = clean(built, tmp_path, members, "0,1", *state, deadline_s=seconds + 30.0)
    assert told["clean"] is True
    for subject, least in (("GPU 0", 4), ("GPU 1", 40)):
        outcome = about(told, subject)
        assert (outcome["did"], outcome["verdict"]) == ("awaited", "gone")
        points = history(outcome["evidence"][0])
        assert points == sorted(points)
        assert points[0] < least
        assert points[-1] > 79 - 5, "the last reading is that with which the wait ended"
        assert 4 <= len(points) <= 8
        assert seconds - 1.5 < outcome["seconds"] < seconds + 10
    assert signals.alive(members["training"])


def test_a_killed_pid_that_is_still_listed_is_awaited_although_there_is_enough(built, tmp_path, members):
    told = clean(built, tmp_path, members, "0", f"slow 0 {members['engine'].pid} 50 3")
    assert told["clean"] is True
    outcome = about(told, "GPU 0")
    assert (outcome["did"], outcome["verdict"]) == ("awaited", "gone")
    assert outcome["seconds"] > 1
    assert f"pid {members['engine'].pid} ended, still listed by the driver" in outcome["evidence"]


def test_memory_that_never_returns_is_said_to_need_a_reset(built, tmp_path, members):
    state = (f"slow 0 {members['engine'].pid} 500 1", "gpu GPU-cc 1000 0")
    told = clean(built, tmp_path, members, "0", "gpu GPU-aa 1000 400", *state, deadline_s=4.0)
    assert told["clean"] is False
    (obstacle,) = told["obstacles"]
    assert "only a driver reset" in obstacle["remedy"]
    assert "supervise never resets a GPU" in obstacle["remedy"]
    assert obstacle["evidence"][-1].startswith("still there after")
    points = history(obstacle["evidence"][0])
    assert points[0] < points[-1] < 0.9
    assert about(told, "GPU 0")["verdict"] == "remains"


def test_a_pid_that_the_driver_never_lets_go_of_is_no_clean_slate(built, tmp_path, members):
    told = clean(built, tmp_path, members, "0", f"kept 0 {members['engine'].pid} 50", deadline_s=2.0)
    assert told["clean"] is False
    (obstacle,) = told["obstacles"]
    assert f"pid {members['engine'].pid} ended, still listed by the driver" in obstacle["evidence"]
    assert "only a driver reset" in obstacle["remedy"]


# --- instances --------------------------------------------------------------------------------------------------------

INSTANCES = ("gpu GPU-aa 1000 10", "mig 0 MIG-full 400 5", "mig 0 - 0 0", "mig 0 MIG-free 400 5")


def test_an_instance_with_enough_is_clean_beside_one_that_is_full(built, tmp_path, members):
    state = (*INSTANCES, f"proc 1 {members['training'].pid} 390")
    told = clean(built, tmp_path, members, "MIG-free", *state)
    assert told["clean"] is True
    assert "GPU 0 MIG 2 free ≥ 90%" in told["checks"]
    told = clean(built, tmp_path, members, "MIG-full", *state)
    (obstacle,) = told["obstacles"]
    assert obstacle["subject"] == "GPU 0 MIG 0"
    assert f"pid {members['training'].pid}" in " ".join(obstacle["evidence"])


def test_a_name_of_an_instance_that_matches_nothing_is_not_clean(built, tmp_path, members):
    told = clean(built, tmp_path, members, "MIG-gone", *INSTANCES)
    assert [(each["subject"], each["ownership"]) for each in told["obstacles"]] == [("MIG-gone", "unknown")]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("call", "rule"), [("init", "of-total"), ("count", "of-free")])
@pytest.mark.parametrize(("how", "error"), [("fails {} 15", "GPU is lost"), ("hangs {}", "NVML did not answer in 1 s")])
def test_a_driver_that_fails_is_never_clean(built, tmp_path, members, how, error, call, rule):
    told = clean(built, tmp_path, members, "0", how.format(call), timeout_s=1.0, rule=rule, pids=[])
    assert told["clean"] is False
    assert error in told["obstacles"][0]["evidence"][0]


@pytest.mark.parametrize("call", ["handle", "uuid", "name", "memory", "compute"])
@pytest.mark.parametrize(("how", "error"), [("fails {} 15", "GPU is lost"), ("hangs {}", "NVML did not answer in 1 s")])
def test_a_device_that_fails_is_never_clean_and_the_other_is_usable(built, tmp_path, members, how, error, call):
    for device, is_clean in (("0", False), ("0,1", False), ("GPU-bb", True)):
        told = clean(built, tmp_path, members, device, f"{how.format(call)} 0", timeout_s=1.0, pids=[])
        assert told["clean"] is is_clean, device
        if device == "0":
            assert error in told["obstacles"][0]["evidence"][0]


def test_what_we_ended_is_awaited_under_whatever_pid_another_namespace_gives_it(built, tmp_path, members):
    """Seen from a container the driver lists pids of the host; only their memory tells that they have gone."""
    state = ("kept 0 99999999 500",)
    told = clean(built, tmp_path, members, "0", *state, namespace=A_CONTAINER_S, deadline_s=2.0)
    (obstacle,) = told["obstacles"]
    assert "pid 99999999 of another PID namespace" in " ".join(obstacle["evidence"])
    assert obstacle["evidence"][-1].startswith("still there after")
