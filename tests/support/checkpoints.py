"""Models as they lie on a disk, without a tensor worth the name, and an engine's installation that holds nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_attention_heads": 4,
    "max_position_embeddings": 2048,
}


def safetensors(**tensors: int) -> bytes:
    """A sound file with tensors of so many bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * end


def make(directory: Path, shards: int = 2, size: int = 64, **config: Any) -> Path:
    """A whole model: one tensor to a shard, and an index if there are several."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | config))
    names = [f"model-{number:05}-of-{shards:05}.safetensors" for number in range(1, shards + 1)]
    names = names if shards > 1 else ["model.safetensors"]
    for number, name in enumerate(names):
        (directory / name).write_bytes(safetensors(**{f"weight{number}": size}))
    if shards > 1:
        weight_map = {f"weight{number}": name for number, name in enumerate(names)}
        index = {"metadata": {"total_size": shards * size}, "weight_map": weight_map}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def install(prefix: Path, engine: str = "vllm", version: str = "0.32.0", *, line: str = "") -> str:
    """The look of an engine that is installed in an environment of its own; its program, which nobody starts."""
    library = "lib/python{}.{}/site-packages".format(*sys.version_info)
    (prefix / library / f"{engine}-{version}.dist-info").mkdir(parents=True)
    python = prefix / "bin/python"
    python.parent.mkdir(exist_ok=True)
    if not python.exists():
        python.symlink_to(sys.executable)
        (prefix / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).parent}\n")
    program = prefix / "bin" / engine
    program.write_text(f"{line or f'#!{python}'}\n")
    program.chmod(0o755)
    return str(program)
