"""The `model` check: its files are there, and whole. Pure, but for what the launch reads."""

from __future__ import annotations

import os
from collections.abc import Iterator

from supervise.host.checkpoint import CONFIG, INDEX, Checkpoint
from supervise.host.safetensors import Damage, Header, Unread
from supervise.model.preflight import Check, Level
from supervise.preflight import configs
from supervise.preflight.launch import VLLM, Launch
from supervise.preflight.place import Kind, offline
from supervise.text import plural

NAME = "model"
_PARTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_OTHER_CONFIGS = ("params.json", "model_index.json", "adapter_config.json")
_AGAIN = "download it again"
_PULL = "run `git lfs pull` there, or download it again"
_SHOWN = 3
# An index that was not brought up to date is off by a little.
_SHORT_OF = 0.99


def check(launch: Launch) -> Iterator[Check]:
    """Judge the model.

    Raises:
        TimeoutError: its files do not answer.
        OSError: they cannot be read.
    """
    where = launch.place
    if where.kind is Kind.MISSING:
        yield _missing(launch)
    elif where.kind is Kind.HUB:
        yield from _hub(launch)
    elif where.kind in (Kind.LOCAL, Kind.CACHED):
        files = launch.checkpoint
        if files is not None:
            yield from _directory(launch, files)


def _missing(launch: Launch) -> Check:
    path = launch.need.model or ""
    text = f"{path} does not exist"
    fix = "correct the path"
    if path.startswith("~"):
        return Check(NAME, Level.WARNING, text, "the engine takes ~ literally: write the whole path")
    # Every part of a name must exist for the next one to be looked up, save what a mount may bring.
    sure = launch.unusual is None and path.startswith(("/", "./", "../"))
    if os.path.islink(path):
        text = f"{path} is a link to {os.readlink(path)}, which does not exist"
    return Check(NAME, launch.worst(sure=sure), text, fix)


def _hub(launch: Launch) -> Iterator[Check]:
    variable = offline(launch.env)
    if variable is not None and launch.unusual is None:
        text = f"{launch.need.model} is neither a directory here nor in the cache of the hub, and {variable} is set"
        yield Check(NAME, Level.WARNING, text, f"download it first, or unset {variable}")


def _directory(launch: Launch, files: Checkpoint) -> Iterator[Check]:
    if launch.place.kind is Kind.CACHED and offline(launch.env) is None:
        # The engine asks the hub, and downloads what is missing.
        return
    if launch.unusual is None:
        yield from _config(launch, files)
    if launch.unusual is None and launch.plain_weights:
        yield from _weights(launch, files)
    for name in sorted(files.pointers):
        if name.startswith("tokenizer"):
            yield Check(
                NAME, Level.WARNING, f"{_path(files, name)}: it is a Git LFS pointer, not the file itself", _PULL
            )


def _config(launch: Launch, files: Checkpoint) -> Iterator[Check]:
    config = files.config
    local = launch.place.kind is Kind.LOCAL
    if config.missing:
        if any(name in files.sizes for name in _OTHER_CONFIGS) or files.named(".gguf"):
            return
        sure = local and launch.profile == VLLM
        why = f"its {CONFIG} is a link to nothing" if CONFIG in files.dangling else f"there is no {CONFIG} in it"
        yield Check(NAME, launch.worst(sure=sure), f"{files.directory} is no model: {why}", _AGAIN)
    elif config.error:
        # With a params.json beside it, vLLM may not read this one at all.
        sure = local and config.damaged and "params.json" not in files.sizes
        fix = _PULL if "LFS" in config.error else _AGAIN
        yield Check(NAME, launch.worst(sure=sure), f"{_path(files, CONFIG)}: {config.error}", fix)


def _weights(launch: Launch, files: Checkpoint) -> Iterator[Check]:
    sure = _is_certain(launch, files)
    if not files.named(*_PARTS):
        if files.config.missing:
            return
        level = launch.worst(sure=sure and launch.profile == VLLM)
        yield Check(NAME, level, f"{files.directory} has no weights", "complete the download")
    elif files.named(".safetensors"):
        yield from _shards(launch, files, sure)
    else:
        yield from _pickles(launch, files, sure)


def _is_certain(launch: Launch, files: Checkpoint) -> bool:
    """Whether the engine is sure to open just these files: of a mistral model both forms may lie side by side."""
    own_form = any(name.startswith("consolidated") for name in files.named(*_PARTS))
    return launch.place.kind is Kind.LOCAL and configs.is_plain(files.config.table) and not own_form


def _shards(launch: Launch, files: Checkpoint, sure: bool) -> Iterator[Check]:
    yield from _index(launch, files, sure)
    for name, header in files.headers.items():
        if isinstance(header, Damage):
            fix = _PULL if header.pointer else _AGAIN
            yield Check(NAME, launch.worst(sure=sure), f"{_path(files, name)}: {header.text}", fix)
        elif isinstance(header, Unread):
            yield Check(NAME, Level.WARNING, f"{_path(files, name)} was not checked: {header.text}")
    if files.skipped:
        text = f"{plural(files.skipped, 'file')} of {files.directory} not checked: reading took too long"
        yield Check(NAME, Level.WARNING, text)


def _index(launch: Launch, files: Checkpoint, sure: bool) -> Iterator[Check]:
    if files.index.error and not files.index.missing:
        level = launch.worst(sure=sure and files.index.damaged)
        yield Check(NAME, level, f"{_path(files, INDEX)}: {files.index.error}", _AGAIN)
    absent = [name for name in files.shards if name not in files.sizes]
    if absent:
        # vLLM of today looks for every file of its index first; before, it missed tensors of a model that is not
        # quantized. SGLang loads what there is.
        seen = launch.profile == VLLM and (launch.is_new() or not _quantized(launch, files))
        certain = (bool(files.indexed) and seen) or any(name in files.dangling for name in absent)
        level = launch.worst(sure=sure and certain and not any("/" in name for name in absent))
        yield Check(NAME, level, _absent(files, absent), "complete the download")
    elif not files.skipped and all(isinstance(header, Header) for header in files.headers.values()):
        yield from _against_index(files)


def _absent(files: Checkpoint, absent: list[str]) -> str:
    links = " is a link to nothing" if absent[0] in files.dangling else " is missing"
    more = f", and {len(absent) - 1} more" if len(absent) > 1 else ""
    of = f"; {INDEX} names {plural(len(files.shards), 'file')}" if files.indexed else ""
    return f"{_path(files, absent[0])}{links}{more}{of}"


def _quantized(launch: Launch, files: Checkpoint) -> bool:
    in_config = any(key in files.config.table for key in ("quantization_config", "compression_config"))
    return in_config or launch.mentions("--quantization") or launch.mentions("-q")


def _against_index(files: Checkpoint) -> Iterator[Check]:
    """What no engine looks for: an index that promises more than its files hold."""
    held = {name: header.tensors for name, header in files.headers.items() if isinstance(header, Header)}
    lost = sorted(name for name, file in files.indexed.items() if name not in held.get(file, frozenset()))
    metadata = files.index.table.get("metadata")
    promised = configs.whole(metadata.get("total_size")) if isinstance(metadata, dict) else None
    if lost:
        named = ", ".join(lost[:_SHOWN])
        text = f"{plural(len(lost), 'tensor')} of {_path(files, INDEX)} not in the files that it names: {named}"
        yield Check(NAME, Level.WARNING, text, _AGAIN)
    elif promised is not None and files.nbytes is not None and files.nbytes < promised * _SHORT_OF:
        text = f"{files.directory} holds {files.nbytes} bytes of tensors where {INDEX} promises {promised}"
        yield Check(NAME, Level.WARNING, text, _AGAIN)


def _pickles(launch: Launch, files: Checkpoint, sure: bool) -> Iterator[Check]:
    pickles = files.named(".bin") or files.named(".pt")
    for name in pickles:
        if name in files.pointers:
            text = f"{_path(files, name)}: it is a Git LFS pointer, not the file itself"
            yield Check(NAME, launch.worst(sure=sure), text, _PULL)
        elif name in files.dangling or files.sizes.get(name) == 0:
            what = "is a link to nothing" if name in files.dangling else "is empty"
            yield Check(NAME, Level.WARNING, f"{_path(files, name)} {what}", _AGAIN)


def _path(files: Checkpoint, name: str) -> str:
    return os.path.join(files.directory, name)
