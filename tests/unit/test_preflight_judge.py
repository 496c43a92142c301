"""What the checks make of what was read: pure tables."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.host.limits import UNLIMITED, Limit, Limits
from supervise.host.memory import Ceiling
from supervise.host.space import Space
from supervise.model.need import DeviceKind, Devices, Need, Port
from supervise.model.preflight import Check, Level
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus
from supervise.preflight import checks, configs, devices, disk, length, limits, memory, place, ports, shm

GIB = 2**30
MIB = 2**20


def levels(checks: Any) -> list[Level]:
    found = list(checks)
    assert all(isinstance(check, Check) and check.text for check in found)
    return [check.level for check in found]


WARNED = [Level.WARNING]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("4096", 4096),
        ("8k", 8000),
        ("8K", 8192),
        ("1M", 2**20),
        ("1m", 10**6),
        ("25.6k", 25600),
        (" 2g ", 2 * 10**9),
        # Not for us to understand: the engine says what is wrong with it.
        ("25.6K", None),
        ("1.5", None),
        ("auto", None),
        ("-1", None),
        ("", None),
        ("8kk", None),
        ("9" * 5000, None),
    ],
)
def test_lengths_as_vllm_reads_them(text: str, tokens: int | None) -> None:
    assert length.tokens(text) == tokens


LLAMA = {"model_type": "llama", "max_position_embeddings": 2048}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, (2048, True)),
        # As of transformers 5: a kind that scales nothing.
        (LLAMA | {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}, (2048, True)),
        (LLAMA | {"rope_scaling": {"type": "linear", "factor": 4.0}}, (8192, True)),
        (LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 2}}, (4096, True)),
        # Versions differ in whether the factor is in the number already: the most generous reading, and no certainty.
        (LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, (8192, False)),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, (16384, False)),
        (LLAMA | {"original_max_position_embeddings": 4096}, (4096, False)),
        (LLAMA | {"rope_parameters": {"full": {"rope_type": "linear", "factor": 8.0}}}, (16384, False)),
        (LLAMA | {"model_max_length": 8192}, (8192, True)),
        (LLAMA | {"auto_map": {"AutoConfig": "x"}}, (2048, False)),
        ({"model_type": "unheard-of", "max_position_embeddings": 2048}, (2048, False)),
        ({"model_type": "llava", "text_config": LLAMA}, (2048, False)),
        ({"model_type": "llama"}, None),
        ({"model_type": "llama", "max_position_embeddings": "2048"}, None),
        ({}, None),
    ],
)
def test_the_longest_context_of_a_config(config: dict[str, Any], expected: tuple[int, bool] | None) -> None:
    found = length.longest(config)
    assert (None if found is None else (found.tokens, found.sure)) == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(
    ["model_type", "text_config", "num_attention_heads", "auto_map", *length.KEYS]
) | st.sampled_from(["rope_scaling", "rope_parameters", "original_max_position_embeddings", "factor", "rope_type"])
CONFIGS = st.recursive(JSON, lambda inner: st.dictionaries(KEYS, inner | JSON, max_size=6), max_leaves=12)


@given(st.dictionaries(KEYS, CONFIGS, max_size=8))
def test_no_config_raises(config: dict[str, Any]) -> None:
    length.longest(config)
    configs.is_plain(config)
    configs.whole(configs.language_model(config).get("num_attention_heads"))


def gpu(index: int, total: int = 80 * GIB, free: int = 79 * GIB) -> GpuReading:
    return GpuReading(index, f"GPU-{index:04}", "H", total, free)


def need(found: Devices) -> Need:
    return Need("vllm", "run", (), (), devices=found)


@pytest.mark.parametrize(
    ("wanted", "status", "seen"),
    [
        (Devices(DeviceKind.ALL), GpuStatus.READ, 2),
        (Devices(DeviceKind.LISTED, ("0", "1", "2")), GpuStatus.READ, 3),
        (Devices(DeviceKind.LISTED, ("MIG-a",)), GpuStatus.READ, 1),
        (Devices(DeviceKind.NONE), GpuStatus.READ, None),
        (Devices(DeviceKind.ALL), GpuStatus.ABSENT, None),
        (Devices(DeviceKind.ALL), GpuStatus.FAILED, None),
    ],
)
def test_how_many_gpus_are_seen(wanted: Devices, status: GpuStatus, seen: int | None) -> None:
    assert devices.visible(need(wanted), Gpus(status, (gpu(0), gpu(1)))) == seen


def test_the_hosts_memory() -> None:
    tight, wide = Ceiling(4 * GIB, 0, "/c/memory.max"), Ceiling(64 * GIB, 0, "/c/memory.max")
    assert levels(memory.judge_host(8 * GIB, tight, 100 * GIB)) == WARNED
    assert levels(memory.judge_host(8 * GIB, wide, 4 * GIB)) == WARNED
    assert levels(memory.judge_host(8 * GIB, wide, 100 * GIB)) == []
    assert levels(memory.judge_host(8 * GIB, None, None)) == []


def room(free: int | None, *, path: str = "/dev/shm", files: int | None = 10**6, read_only: bool = False) -> Space:
    return Space(path, 1, free, files, read_only)


@pytest.mark.parametrize(
    ("found", "ranks", "expected"),
    [
        (room(64 * MIB), 2, WARNED),  # what a container gets by default
        (room(64 * MIB), 1, []),
        (room(8 * MIB), 1, WARNED),
        (room(GIB), 8, []),
        (room(None), 8, []),
        (room(GIB, files=3), 1, WARNED),
        (room(GIB, path="/dev"), 1, WARNED),
    ],
)
def test_shared_memory(found: Space, ranks: int, expected: list[Level]) -> None:
    assert levels(shm.judge(found, ranks)) == expected


def test_disks() -> None:
    use = disk.Use("/x/y", "the log", 512 * MIB)
    assert levels(disk.judge(use, room(GIB))) == []
    assert levels(disk.judge(use, room(None, files=None))) == []
    assert levels(disk.judge(use, room(MIB))) == WARNED
    assert levels(disk.judge(use, room(GIB, files=5))) == WARNED
    assert levels(disk.judge(use, room(GIB, read_only=True))) == WARNED


FINE = Limit(1024, 1_048_576)


@pytest.mark.parametrize(
    ("changed", "tasks", "flags", "names"),
    [
        ({}, None, {}, []),
        ({"files": Limit(1024, 4096)}, None, {}, ["NOFILE"]),
        ({"files": Limit(1024, UNLIMITED)}, None, {}, []),
        ({"processes": Limit(100, 100)}, None, {}, ["NPROC"]),
        ({"processes": Limit(100, 100)}, None, {"root": True}, []),
        ({"locked": Limit(65536, 65536)}, None, {"fabric": True}, ["MEMLOCK"]),
        ({"locked": Limit(65536, 65536)}, None, {}, []),
        ({}, Ceiling(2000, 1900, "/c/pids.max"), {}, ["pids.max"]),
        ({}, Ceiling(20000, 1900, "/c/pids.max"), {}, []),
    ],
)
def test_limits(changed: dict[str, Limit], tasks: Ceiling | None, flags: dict[str, bool], names: list[str]) -> None:
    found = Limits(FINE, Limit(UNLIMITED, UNLIMITED), FINE, Limit(0, 0))._replace(**changed)
    told = list(limits.judge(found, tasks, **({"fabric": False, "root": False} | flags)))
    assert len(told) == len(names)
    for check, name in zip(told, names, strict=True):
        assert name in check.text
        assert check.level is Level.WARNING


def test_core_files() -> None:
    assert levels(limits.judge_core("core", Limit(UNLIMITED, UNLIMITED))) == WARNED
    assert levels(limits.judge_core("/var/core.%p", Limit(1, 1))) == WARNED
    assert levels(limits.judge_core("core", Limit(0, UNLIMITED))) == []
    assert levels(limits.judge_core("|/usr/lib/systemd-coredump %P", Limit(UNLIMITED, UNLIMITED))) == []
    assert levels(limits.judge_core("", Limit(UNLIMITED, UNLIMITED))) == []


def test_privileged_ports() -> None:
    def judged(number: int, start: int) -> list[Level]:
        return levels(ports.judge([Port(number, "", "http", "--port")], start, Level.WARNING))

    assert judged(80, 1024) == WARNED
    assert judged(1023, 1024) == WARNED
    assert judged(1024, 1024) == []
    assert judged(80, 0) == []
    assert judged(0, 1024) == []  # the kernel chooses


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (None, "none"),
        ("", "none"),
        ("/nowhere/at/all", "missing"),
        ("./nowhere", "missing"),
        ("~/nowhere", "missing"),
        ("a/b/c", "missing"),
        ("nowhere", "hub"),
        ("meta-llama/Llama-3.1-8B", "hub"),
        ("owner/name:Q4_K_M", "hub"),
        ("owner/name/file.gguf", "hub"),
        ("s3://bucket/model", "remote"),
        ("gs://bucket/model", "remote"),
        ("/", "local"),
        ("/proc/self/status", "file"),
    ],
)
def test_where_a_model_is(model: str | None, kind: str) -> None:
    assert place.find(model, {"HF_HUB_CACHE": "/nowhere"}, (), "main").kind == kind


@given(st.text(max_size=40), st.text(max_size=20))
def test_no_name_of_a_model_raises(model: str, revision: str) -> None:
    place.find(model, {"HF_HUB_CACHE": "/nowhere"}, (), revision)


def test_every_check_has_a_name_that_can_be_skipped():
    assert tuple(checks._of_engines() | checks._OF_ANY) == checks.NAMES
