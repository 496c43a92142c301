"""Frames tell how far a process had come."""

from __future__ import annotations

import pytest

from supervise.diagnosis.stages import stage_of

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
