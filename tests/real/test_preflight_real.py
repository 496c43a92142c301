"""The preflight beside the real vLLM: what is refused fails there, for this reason; what is not refused is accepted.

The engine's own configuration and loader are asked, not a whole server: they are what would have failed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from supervise.model.preflight import Level
from supervise.model.snapshot import Gpus, GpuStatus
from supervise.preflight import check
from supervise.profiles import load, match
from supervise.profiles.derive import derive
from tests.real.server import RealVllm

pytestmark = [pytest.mark.real, pytest.mark.timeout(300, func_only=True)]

_ENGINE_S = 240.0
_INDEX = "model.safetensors.index.json"
_CONFIGURE = """
import sys
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
if __name__ == "__main__":
    given = EngineArgs.add_cli_args(FlexibleArgumentParser()).parse_args(sys.argv[1:])
    config = EngineArgs.from_cli_args(given).create_engine_config()
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
    loader = get_model_loader(config.load_config)
    if isinstance(loader, DefaultModelLoader):
        source = DefaultModelLoader.Source(config.model_config.model, None)
        print("tensors", len(list(loader._get_weights_iterator(source))))
    print("accepted")
"""


def refusals(vllm: RealVllm, model: Path, *flags: str) -> list[str]:
    """What the preflight refuses of `vllm serve`."""
    matched = match.match([str(vllm.program), "serve", str(model), *flags], load.load_all())
    need = derive(matched, os.environ, read_text=lambda path: Path(path).read_text())
    told = check(need, {**os.environ, **vllm.environment}, Gpus(GpuStatus.ABSENT), frozenset())
    return [found.text for found in told if found.level is Level.REFUSAL]


def engine(vllm: RealVllm, cwd: Path, model: Path, *flags: str) -> tuple[bool, str]:
    """Whether the engine accepts the model with these flags, and what it says; in an empty directory of its own."""
    cwd.mkdir()
    asked = subprocess.run(
        [vllm.program.parent / "python", "-c", _CONFIGURE, "--model", model, "--dtype", "float32", *flags],
        cwd=cwd,
        env={**os.environ, **vllm.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_ENGINE_S,
        check=False,
    )
    return asked.returncode == 0 and "accepted" in asked.stdout, asked.stdout


def sharded(vllm: RealVllm, target: Path) -> Path:
    """The tiny model with an index, and a second file that it names."""
    shutil.copytree(vllm.models / "tiny", target)
    weights = (target / "model.safetensors").read_bytes()
    header = json.loads(weights[8 : 8 + int.from_bytes(weights[:8], "little")])
    names = dict.fromkeys(set(header) - {"__metadata__"}, "model.safetensors")
    second = b'{"extra":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
    (target / "second.safetensors").write_bytes(len(second).to_bytes(8, "little") + second + b"\0" * 4)
    (target / _INDEX).write_text(json.dumps({"weight_map": names | {"extra": "second.safetensors"}}))
    return target


def test_a_missing_shard(real_vllm: RealVllm, tmp_path: Path) -> None:
    model = sharded(real_vllm, tmp_path / "model")
    assert refusals(real_vllm, model) == []
    accepted, said = engine(real_vllm, tmp_path / "whole", model)
    assert accepted, said

    (model / "second.safetensors").unlink()
    assert len(refusals(real_vllm, model)) == 1
    accepted, said = engine(real_vllm, tmp_path / "broken", model)
    assert not accepted
    assert "second.safetensors" in said
    # Whoever loads no weights misses none.
    assert refusals(real_vllm, model, "--load-format", "dummy") == []
    accepted, said = engine(real_vllm, tmp_path / "dummy", model, "--load-format", "dummy")
    assert accepted, said


def test_heads(real_vllm: RealVllm, tmp_path: Path) -> None:
    model = real_vllm.models / "tiny"
    for ranks in (2, 4):
        assert refusals(real_vllm, model, "-tp", str(ranks)) == []
    accepted, said = engine(real_vllm, tmp_path / "two", model, "-tp", "2")
    assert accepted, said

    assert len(refusals(real_vllm, model, "-tp", "3")) == 1
    accepted, said = engine(real_vllm, tmp_path / "three", model, "-tp", "3")
    assert not accepted
    assert "must be divisible by tensor parallel size" in said


def test_length(real_vllm: RealVllm, tmp_path: Path) -> None:
    model = real_vllm.models / "tiny"
    assert refusals(real_vllm, model, "--max-model-len", "2k") == []
    accepted, said = engine(real_vllm, tmp_path / "fits", model, "--max-model-len", "2k")
    assert accepted, said

    assert len(refusals(real_vllm, model, "--max-model-len", "2049")) == 1
    accepted, said = engine(real_vllm, tmp_path / "long", model, "--max-model-len", "2049")
    assert not accepted
    assert "is greater than the derived max_model_len" in said


def test_a_file_cut_short(real_vllm: RealVllm, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(real_vllm.models / "tiny", model)
    os.truncate(model / "model.safetensors", 300_000)
    assert len(refusals(real_vllm, model)) == 1
    accepted, said = engine(real_vllm, tmp_path / "cwd", model)
    assert not accepted
    assert "Error while deserializing header" in said


@pytest.mark.parametrize("name", ["tiny", "tiny-moe", "missing-norm"])
def test_nothing_is_refused_of_what_is_whole(name: str, real_vllm: RealVllm) -> None:
    assert refusals(real_vllm, real_vllm.models / name) == []
