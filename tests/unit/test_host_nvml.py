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

# The bindings first: their import is no part of the time that the driver is given.
READ = """
import contextlib, dataclasses, json, sys
with contextlib.suppress(RuntimeError):
    import pynvml
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


@pytest.mark.parametrize("call", ["init", "count"])
def test_a_failing_call_about_the_whole_fails_the_reading_with_the_driver_s_words(built, tmp_path, call):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", f"fails {call} 15")
    assert (found["status"], found["error"], found["devices"]) == ("failed", "GPU is lost", [])


@pytest.mark.parametrize("call", ["init", "count"])
def test_a_hanging_call_about_the_whole_has_a_deadline(built, tmp_path, call):
    found = read(built, tmp_path, "gpu GPU-a 1000 10", f"hangs {call}", timeout_s=0.2)
    assert (found["status"], found["error"]) == ("failed", "NVML did not answer in 0.2 s")


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("call", ["handle", "uuid", "name", "migmode", "memory", "compute", "graphics"])
@pytest.mark.parametrize(
    ("how", "error"), [("fails {} 15", "GPU is lost"), ("hangs {}", "NVML did not answer in 0.5 s")]
)
def test_a_call_that_fails_for_one_device_does_not_spoil_the_other(built, tmp_path, how, error, call, index):
    other = 1 - index
    state = (f"proc {other} {os.getpid()} 100", f"{how.format(call)} {index}")
    found = read(built, tmp_path, "gpu GPU-a 1000 10", "gpu GPU-b 1000 10", *state, timeout_s=0.5)
    assert found["status"] == "read"
    assert [device["index"] for device in found["devices"]] == [0, 1]
    broken, sound = found["devices"][index], found["devices"][other]
    assert (broken["error"], broken["total"], broken["free"], broken["holders"]) == (error, 0, 0, [])
    assert (sound["error"], sound["free"], sound["holders"]) == ("", 890 * MIB, [[os.getpid(), 100 * MIB]])


def test_what_was_told_before_the_failure_is_known(built, tmp_path):
    """The launch may name the device by its UUID: it must then be found, not missed."""
    found = read(built, tmp_path, "gpu GPU-a 1000 10", "fails memory 15 0")
    assert found["devices"][0]["uuid"] == "GPU-a"


AGAIN = """
import os, sys, time
from pathlib import Path
import pynvml
from supervise.host import nvml

state = Path(os.environ["NVML_STANDIN"])
def threads():
    # Those that have come back take a moment to end.
    until = time.monotonic() + 5
    while len(os.listdir("/proc/self/task")) > 2 and time.monotonic() < until:
        time.sleep(0.01)
    return len(os.listdir("/proc/self/task"))

def look(timeout_s):
    begun = time.monotonic()
    reading = nvml.read(timeout_s)
    errors = [reading.error, *(device.error for device in reading.devices)]
    print(time.monotonic() - begun < 5, threads(), *(error or "-" for error in errors), sep="|")
look(0.3)
look(60.0)
look(60.0)
state.write_text("gpu GPU-a 1000 10\\ngpu GPU-b 1000 10")
look(60.0)
"""
EARLIER = "NVML has not answered an earlier question yet"


@pytest.mark.parametrize(
    ("call", "first", "later"),
    [
        ("init", ["NVML did not answer in 0.3 s"], [EARLIER]),
        ("memory 1", ["-", "-", "NVML did not answer in 0.3 s"], ["-", "-", EARLIER]),
    ],
)
def test_while_a_call_hangs_nobody_waits_for_it_again(built, tmp_path, call, first, later):
    path = tmp_path / "state"
    path.write_text(f"gpu GPU-a 1000 10\ngpu GPU-b 1000 10\nhangs {call}")
    command = [sys.executable, "-c", AGAIN]
    done = subprocess.run(
        command, env=library.environment(built, path), capture_output=True, text=True, check=True, timeout=60
    )
    readings = [line.split("|") for line in done.stdout.splitlines()]
    assert readings == [["True", "2", *told] for told in (first, later, later, later)]
    assert done.stderr == ""


def test_what_is_no_error_of_the_driver_s_is_told_without_a_traceback(built, tmp_path):
    """A library too old for the bindings, say."""
    path = tmp_path / "state"
    path.write_text("gpu GPU-a 1000 10")
    (tmp_path / "pynvml.py").write_text("raise RuntimeError('broken bindings')")
    environment = library.environment(built, path) | {"PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    command = [sys.executable, "-c", READ, "5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    assert (found["status"], found["error"], done.stderr) == ("failed", "broken bindings", "")


def test_an_instance_has_memory_and_holders_of_its_own(built, tmp_path):
    mine = os.getpid()
    state = ("gpu GPU-a 1000 10", "mig 0 MIG-x 400 5", "mig 0 - 0 0", "mig 0 MIG-y 200 0", f"proc 3 {mine} 50")
    gpu, first, second = read(built, tmp_path, *state)["devices"]
    assert (gpu["uuid"], gpu["mig"], gpu["parent"], gpu["total"]) == ("GPU-a", True, None, 0)
    assert (first["uuid"], first["index"], first["parent"], first["total"]) == ("MIG-x", 0, 0, 400 * MIB)
    assert (first["free"], first["holders"]) == (395 * MIB, [])
    assert (second["uuid"], second["index"], second["free"]) == ("MIG-y", 2, 150 * MIB)
    assert second["holders"] == [[mine, 50 * MIB]]


def test_an_instance_that_fails_does_not_spoil_the_other(built, tmp_path):
    state = ("gpu GPU-a 1000 10", "mig 0 MIG-x 400 5", "mig 0 MIG-y 200 0", "fails memory 15 1")
    _, first, second = read(built, tmp_path, *state)["devices"]
    assert (first["uuid"], first["error"], first["free"]) == ("MIG-x", "GPU is lost", 0)
    assert (second["uuid"], second["error"], second["free"]) == ("MIG-y", "", 200 * MIB)


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
