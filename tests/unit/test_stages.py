"""Frames tell how far a process had come."""

from __future__ import annotations

import pytest

from supervise.diagnosis.stages import stage_around, stage_of

SITE = "/usr/local/lib/python3.12/dist-packages/vllm/v1/"


@pytest.mark.parametrize(
    ("frame", "phase"),
    [
        (f'  File "{SITE}worker/gpu_worker.py", line 3, in load_model', "weights"),
        (f'  File "{SITE}worker/gpu_worker.py", line 3, in determine_available_memory', "profile"),
        (f'  File "{SITE}worker/gpu_model_runner.py", line 3, in capture_model', "graphs"),
        (f'  File "{SITE}engine/core.py", line 3, in run_busy_loop', "run"),
        ('File "/x/vllm/worker/worker.py", line 3, in init_device', "engine"),
        ('  File "/x/torch/distributed/c10d.py", line 3, in init_process_group', "distributed"),
        ('  File "/x/torch/nn/modules/module.py", line 3, in forward', None),
        ("    self.load_model()", None),
        ('they said File "/x.py", line 3, in load_model', None),
        ('  File "/x.py", line 3, in load_model_or_not', None),
    ],
)
def test_stage(frame: str, phase: str | None) -> None:
    assert stage_of(frame) == phase


def test_a_stack_that_begins_inside_tells_the_inner_phase() -> None:
    inner = '  File "/x/vllm/pynccl_wrapper.py", line 350 in ncclCommInitRank'
    outer = '  File "/x/vllm/v1/worker/gpu_worker.py", line 138 in init_device'
    assert stage_around(outer, stage_around(inner)) == "distributed"
    assert stage_around(inner, stage_around(outer)) == "engine"


def test_what_is_called_while_serving_is_of_serving() -> None:
    inner = '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 3 in initialize_kv_cache'
    outer = '  File "/x/vllm/v1/engine/core.py", line 709 in run_busy_loop'
    assert stage_around(outer, stage_around(inner)) == "run"
    assert stage_around("    x = 1", "weights") == "weights"
