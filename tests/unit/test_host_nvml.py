"""GPUs through the real nvidia-ml-py, against a stand-in of the driver's library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.nvml import library

READ = """
import dataclasses, json, sys
from supervise.host import nvml
reading = nvml.read(float(sys.argv[1]))
print(json.dumps(dataclasses.asdict(reading)))
"""
MIB = 2**20


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library.build(tmp_path_factory.mktemp("nvml"))


def read(built: Path, tmp_path: Path, *state: str, timeout_s: float = 10.0) -> dict[str, Any]:
    path = tmp_path / "state"
    path.write_text("\n".join(state))
    command = [sys.executable, "-c", READ, str(timeout_s)]
    done = subprocess.run(
        command, env=library.environment(built, path), capture_output=True, text=True, check=True, timeout=60
    )
    return dict(json.loads(done.stdout))


def test_reads_memory_and_holders_of_every_device(built, tmp_path):
    mine = os.getpid()
    found = read(built, tmp_path, "gpu GPU-a 1000 10", "gpu GPU-b 2000 0", f"proc 1 {mine} 500")
    assert (found["status"], found["error"]) == ("read", "")
    first, second = found["devices"]
    assert (first["index"], first["uuid"], first["total"], first["free"]) == (0, "GPU-a", 1000 * MIB, 990 * MIB)
    assert first["holders"] == []
    assert second["free"] == 1500 * MIB
    assert second["holders"] == [[mine, 500 * MIB]]


def test_memory_that_the_driver_does_not_tell_is_unknown_not_zero(built, tmp_path):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", "kept 0 99999999 -1")
    assert found["devices"][0]["holders"] == [[99999999, None]]


@pytest.mark.parametrize("call", ["init", "count", "handle", "uuid", "name", "memory", "compute"])
def test_a_failing_call_fails_the_reading_with_the_driver_s_words(built, tmp_path, call):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", f"fails {call} 15")
    assert (found["status"], found["error"], found["devices"]) == ("failed", "GPU is lost", [])


@pytest.mark.parametrize("call", ["init", "memory"])
def test_a_hanging_call_has_a_deadline(built, tmp_path, call):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", f"hangs {call}", timeout_s=0.2)
    assert (found["status"], found["error"]) == ("failed", "NVML did not answer in 0.2 s")


@pytest.mark.parametrize("code", [3, 4])
def test_holders_that_may_not_be_named_leave_the_memory_readable(built, tmp_path, code):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", f"proc 0 {os.getpid()} 100", f"fails compute {code}")
    assert found["status"] == "read"
    assert (found["devices"][0]["free"], found["devices"][0]["holders"]) == (890 * MIB, [])


def test_a_gpu_that_shares_the_host_s_memory_has_none_of_its_own(built, tmp_path):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", "fails memory 3")
    assert (found["status"], found["devices"][0]["total"]) == ("read", 0)


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="there is a driver here")
def test_a_library_without_a_driver_is_no_gpu(built, tmp_path):
    assert read(built, tmp_path, "fails init 9")["status"] == "absent"


def test_a_library_that_does_not_fit_the_driver_is_a_failure(built, tmp_path):
    found = read(built, tmp_path, "fails init 18")
    assert found["status"] == "failed"
    assert "version mismatch" in found["error"]
