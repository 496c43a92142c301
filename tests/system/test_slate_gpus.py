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
from supervise.host import procfs
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need
from supervise.profiles.load import load_all
from supervise.slate import Host, SlateRequest, sweep, to_json

mine = set(map(int, sys.argv[2:])) | procfs.lineage()
scan = lambda: {pid: process for pid, process in procfs.scan().items() if pid in mine}
devices = Devices(DeviceKind.LISTED, tuple(sys.argv[1].split(",")))
need = Need("vllm", "r", (), (), devices=devices, memory_fraction=0.9, memory_rule=MemoryRule.OF_TOTAL)
request = SlateRequest("r", need, tuple(load_all().values()), deadline_s=5.0)
print(json.dumps(to_json(sweep(request, Host(scan=scan)))))
"""


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


def clean(built: Path, tmp_path: Path, members: dict[str, ProcessId], devices: str, *state: str) -> dict[str, Any]:
    path = tmp_path / "state"
    path.write_text("\n".join(("gpu GPU-aa 1000 10", "gpu GPU-bb 1000 10", *state)))
    command = [sys.executable, "-c", SWEEP, devices, *(str(member.pid) for member in members.values())]
    environment = library.environment(built, path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return dict(json.loads(done.stdout))


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
    assert f"pid {members['training'].pid}" in obstacle["evidence"][1]
    assert signals.alive(members["training"])


def test_a_device_that_is_not_wanted_does_not_matter(built, tmp_path, members):
    assert clean(built, tmp_path, members, "0", f"proc 1 {members['training'].pid} 800")["clean"] is True


def test_a_holder_of_another_namespace_is_said_to_be_one(built, tmp_path, members):
    told = clean(built, tmp_path, members, "0", "kept 0 99999999 -1", "kept 0 99999998 500")
    evidence = " ".join(told["obstacles"][0]["evidence"])
    assert "pid 99999999 of another PID namespace, holds an unknown amount" in evidence


@pytest.mark.parametrize("call", ["memory", "compute", "count"])
def test_a_driver_that_fails_is_never_clean(built, tmp_path, members, call):
    told = clean(built, tmp_path, members, "0", f"fails {call} 15")
    assert told["clean"] is False
    assert "GPU is lost" in told["obstacles"][0]["evidence"][0]
