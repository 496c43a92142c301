"""The preflight on real files: each defect is told, its twin is not, and only what is certain is refused."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervise.host import checkpoint, limits, memory, space
from supervise.host.within import within
from supervise.model.preflight import Check, Level
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus
from supervise.preflight import NAMES, check
from supervise.profiles import load, match
from supervise.profiles.derive import derive, environment
from tests.support.checkpoints import CONFIG, POINTER, install, make, safetensors

OK, WARNING, REFUSAL = Level.OK, Level.WARNING, Level.REFUSAL
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
ABSENT = Gpus(GpuStatus.ABSENT)
GIB = 2**30


def checked(
    *command: object,
    env: Mapping[str, str] | None = None,
    gpus: Gpus = ABSENT,
    skip: frozenset[str] = frozenset(),
    state_dir: str | None = None,
) -> tuple[Check, ...]:
    """The preflight of a command line, in an environment without any home."""
    seen = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "TMPDIR": os.environ["TMPDIR"], **(env or {})}
    matched = match.match([str(word) for word in command], load.load_all())

    def read_text(path: str) -> str:
        return Path(path).read_text()

    need = derive(matched, seen, read_text=read_text)
    return check(need, environment(matched, seen), gpus, skip, state_dir=state_dir)


def of(name: str, checks: tuple[Check, ...]) -> list[tuple[Level, str]]:
    """What one check told."""
    return [(check.level, check.text) for check in checks if check.name == name and check.level is not OK]


@pytest.fixture
def vllm(tmp_path: Path) -> str:
    return install(tmp_path / "venv")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make(tmp_path / "model")


def edit(path: Path, **changed: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


Break = Callable[[Path], object]
BROKEN: dict[str, tuple[Break, Level, str]] = {
    "a shard is missing": (
        lambda m: (m / SECOND).unlink(),
        REFUSAL,
        f"{SECOND} is missing; ",
    ),
    "a link to nothing": (
        lambda m: ((m / SECOND).unlink(), (m / SECOND).symlink_to("../blobs/0")),
        REFUSAL,
        f"{SECOND} is a link to nothing",
    ),
    "cut short": (lambda m: os.truncate(m / FIRST, 130), REFUSAL, f"{FIRST}: it is cut short"),
    "empty": (lambda m: os.truncate(m / FIRST, 0), REFUSAL, f"{FIRST}: it is empty"),
    "a pointer": (lambda m: (m / FIRST).write_bytes(POINTER), REFUSAL, f"{FIRST}: it is a Git LFS pointer"),
    "no config": (lambda m: (m / "config.json").unlink(), REFUSAL, "there is no config.json"),
    "a damaged config": (lambda m: (m / "config.json").write_text("{"), REFUSAL, "config.json: it is no JSON"),
    "a config that is a pointer": (
        lambda m: (m / "config.json").write_bytes(POINTER),
        REFUSAL,
        "config.json: it is a Git LFS pointer",
    ),
    "no weights": (
        lambda m: [(m / name).unlink() for name in (FIRST, SECOND, INDEX)],
        REFUSAL,
        "has no weights",
    ),
    "a damaged index": (lambda m: (m / INDEX).write_text("nonsense"), REFUSAL, f"{INDEX}: it is no JSON"),
    # The engine takes it, and serves garbage or fails much later: told, not refused.
    "a shard of another model": (
        lambda m: (m / SECOND).write_bytes(safetensors(other=64)),
        WARNING,
        "1 tensor of",
    ),
    "less than the index promises": (
        lambda m: edit(m / INDEX, metadata={"total_size": 1000}),
        WARNING,
        "holds 128 bytes of tensors",
    ),
    "a tokenizer that is a pointer": (
        lambda m: (m / "tokenizer.json").write_bytes(POINTER),
        WARNING,
        "tokenizer.json: it is a Git LFS pointer",
    ),
    "a shard that is no file": (
        lambda m: ((m / SECOND).unlink(), os.mkfifo(m / SECOND)),
        WARNING,
        "not checked: no regular file",
    ),
}
SOUND: dict[str, Break] = {
    "as it is": lambda m: None,
    "one file": lambda m: (shutil.rmtree(m), make(m, shards=1)),
    "a file that no index names": lambda m: (m / "extra.safetensors").write_bytes(b"garbage"),
    "an index of little more": lambda m: edit(m / INDEX, metadata={"total_size": 129}),
    "an index without a size": lambda m: edit(m / INDEX, metadata=None),
    "links to what is there": lambda m: ((m / FIRST).rename(m / "blob"), (m / FIRST).symlink_to("blob")),
    "a hidden file of another system": lambda m: (m / "._model.safetensors").write_bytes(b"garbage"),
    "a whole tokenizer": lambda m: (m / "tokenizer.json").write_text("{}"),
    "pickles": lambda m: (
        [(m / name).unlink() for name in (FIRST, SECOND, INDEX)],
        (m / "pytorch_model.bin").write_bytes(b"PK"),
    ),
    "a pipeline, which has another config": lambda m: (
        (m / "config.json").unlink(),
        (m / "model_index.json").write_text("{}"),
    ),
    "quantized in one file": lambda m: (
        [path.unlink() for path in m.iterdir()],
        (m / "model.gguf").write_bytes(b"GGUF"),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_model(name: str, vllm: str, model: Path) -> None:
    change, level, text = BROKEN[name]
    change(model)
    (told,) = of("model", checked(vllm, "serve", model))
    assert told[0] is level
    assert text in told[1]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_model(name: str, vllm: str, model: Path) -> None:
    SOUND[name](model)
    assert of("model", checked(vllm, "serve", model)) == []


@pytest.mark.parametrize("name", [name for name, row in BROKEN.items() if row[1] is REFUSAL])
def test_nothing_is_refused_that_is_not_certain(name: str, tmp_path: Path, model: Path) -> None:
    """A script may start the engine in a container, a wrapper elsewhere, a flag may have it read another way."""
    BROKEN[name][0](model)
    script = install(tmp_path / "script", line="#!/bin/sh")
    nobody = install(tmp_path / "nobody", engine="other").replace("other", "vllm")
    shutil.copy(tmp_path / "nobody/bin/other", nobody)
    vllm = install(tmp_path / "venv")
    config = tmp_path / "serve.yaml"
    config.write_text("hf-overrides:\n  num_attention_heads: 8\n")
    for words in (
        (script, "serve", model),
        (nobody, "serve", model),
        ("env", "-C", "/", vllm, "serve", model),
        ("uv", "run", "--directory", "/", vllm, "serve", model),
        (vllm, "serve", model, "--config", config),
    ):
        assert [level for level, _ in of("model", checked(*words))] == [WARNING], words
    for words in ((vllm, "serve", model, "--hf-config-path", "x"), (vllm, "serve", model, "--config-f", "x")):
        assert of("model", checked(*words)) == []
    assert of("model", checked(vllm, "serve", model, env={"VLLM_MODEL_REDIRECT_PATH": "/x"})) == []
    # With wrappers that change nothing of this, it is.
    assert [level for level, _ in of("model", checked("nice", "env", "A=1", vllm, "serve", model))] == [REFUSAL]


def test_weights_do_not_matter_to_whoever_does_not_load_them(vllm: str, model: Path) -> None:
    (model / SECOND).unlink()
    for words in (["--load-format", "dummy"], ["--load-format=tensorizer"], ["--load-fo", "dummy"]):
        assert of("model", checked(vllm, "serve", model, *words)) == []
    assert of("model", checked(vllm, "serve", model, "--load-format", "safetensors")) != []


@pytest.mark.parametrize("config", [{"model_type": "unheard-of"}, {"auto_map": {}}, {"text_config": CONFIG}])
def test_of_a_model_that_is_not_known_nothing_is_refused(config: dict[str, Any], vllm: str, model: Path) -> None:
    edit(model / "config.json", **config)
    (model / SECOND).unlink()
    told = checked(vllm, "serve", model, "-tp", 3, "--max-model-len", "1M")
    assert [level for level, _ in of("model", told)] == [WARNING]
    assert REFUSAL not in {check.level for check in told}


def test_sglang_loads_what_there_is(tmp_path: Path, model: Path) -> None:
    sglang = install(tmp_path / "venv", "sglang", "0.5.23")
    (model / SECOND).unlink()
    told = checked(sglang, "serve", "--model-path", model, "--tp", 3, "--context-length", 4096)
    assert {name: [level for level, _ in of(name, told)] for name in ("model", "heads", "length")} == {
        "model": [WARNING],
        "heads": [WARNING],
        "length": [WARNING],
    }
    (model / SECOND).write_bytes(b"")
    assert [level for level, _ in of("model", checked(sglang, "serve", "--model-path", model))] == [REFUSAL]


def test_an_older_vllm_loads_what_there_is_of_a_quantized_model(tmp_path: Path, model: Path) -> None:
    old = install(tmp_path / "old", version="0.9.2")
    (model / SECOND).unlink()
    assert [level for level, _ in of("model", checked(old, "serve", model))] == [REFUSAL]
    edit(model / "config.json", quantization_config={"quant_method": "fp8"})
    assert [level for level, _ in of("model", checked(old, "serve", model))] == [WARNING]


def test_a_path_that_leads_nowhere(vllm: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert of("model", checked(vllm, "serve", gone)) == [(REFUSAL, f"{gone} does not exist")]
    gone.symlink_to("nothing")
    assert of("model", checked(vllm, "serve", gone)) == [
        (REFUSAL, f"{gone} is a link to nothing, which does not exist")
    ]
    assert [level for level, _ in of("model", checked(vllm, "serve", "~/model"))] == [WARNING]
    for elsewhere in ("s3://bucket/model", "owner/name"):
        assert of("model", checked(vllm, "serve", elsewhere)) == []


def test_the_hubs_cache(vllm: str, tmp_path: Path) -> None:
    env = {"HF_HOME": str(tmp_path)}
    offline = env | {"HF_HUB_OFFLINE": "1"}
    assert of("model", checked(vllm, "serve", "owner/name", env=env)) == []
    ((level, text),) = of("model", checked(vllm, "serve", "owner/name", env=offline))
    assert (level, "HF_HUB_OFFLINE is set" in text) == (WARNING, True)

    base = tmp_path / "hub/models--owner--name"
    snapshot = make(base / "snapshots/abc")
    (base / "refs").mkdir()
    (base / "refs/main").write_text("abc")
    assert of("model", checked(vllm, "serve", "owner/name", env=offline)) == []
    (snapshot / SECOND).unlink()
    (snapshot / SECOND).symlink_to("../../blobs/lost")
    ((level, text),) = of("model", checked(vllm, "serve", "owner/name", env=offline))
    assert (level, "is a link to nothing" in text) == (WARNING, True)
    # On line the engine downloads it.
    assert of("model", checked(vllm, "serve", "owner/name", env=env)) == []


def test_which_of_two_models_counts_is_not_certain(vllm: str, model: Path, tmp_path: Path) -> None:
    """vLLM takes the first of two flags, and a flag before a word."""
    nowhere = tmp_path / "nowhere"
    told = [level for level, _ in of("model", checked(vllm, "serve", "--model", model, "--model", nowhere))]
    assert REFUSAL not in told
    assert [level for level, _ in of("model", checked(vllm, "serve", "--model", nowhere))] == [REFUSAL]


def test_what_is_no_port(vllm: str, model: Path) -> None:
    ((level, text),) = of("port", checked(vllm, "serve", model, "--port", 99999))
    assert (level, text) == (REFUSAL, "--port '99999' is not a port (1 to 65535)")
    assert of("port", checked(vllm, "serve", model, "--port", 9999)) == []


def test_heads(vllm: str, model: Path) -> None:
    def told(*words: object, env: Mapping[str, str] | None = None) -> list[tuple[Level, str]]:
        return of("heads", checked(vllm, "serve", model, *words, env=env))

    assert told() == told("-tp", 2) == told("-tp", 4) == []
    ((level, text),) = told("-tp", 3)
    assert (level, text) == (REFUSAL, "4 attention heads cannot be divided among a tensor parallel size of 3")
    assert told("-tp", 3, "--hf-overrides", "{}") == told("-tp", 3, "--hf-overrides.num_attention_heads", 6) == []
    edit(model / "config.json", num_attention_heads="4")
    assert told("-tp", 3) == []


def test_length(vllm: str, model: Path) -> None:
    def told(*words: object, env: Mapping[str, str] | None = None) -> list[Level]:
        return [level for level, _ in of("length", checked(vllm, "serve", model, *words, env=env))]

    assert told() == told("--max-model-len", 2048) == told("--max-model-len", "2k") == []
    assert told("--max-model-len", 2049) == told("--max-model-len", "8K") == [REFUSAL]
    assert told("--max-model-len", "auto") == told("--max-model-len", "-1") == []
    assert told("--max-model-len", 4096, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}) == []
    assert told("--max-model-len", 4096, "--rope-scaling", "{}") == []
    edit(model / "config.json", rope_scaling={"rope_type": "yarn", "factor": 2.0})
    assert told("--max-model-len", 4096) == []
    assert told("--max-model-len", 4097) == [WARNING]


def gpus(count: int, total: int = 80 * GIB) -> Gpus:
    return Gpus(GpuStatus.READ, tuple(GpuReading(i, f"GPU-{i}", "H", total, total) for i in range(count)))


def test_gpus(tmp_path: Path, model: Path, vllm: str) -> None:
    def told(*words: object, program: str = vllm, env: Mapping[str, str] | None = None) -> list[Level]:
        return [level for level, _ in of("gpus", checked(program, "serve", model, *words, gpus=gpus(2), env=env))]

    assert told() == told("-tp", 2) == []
    assert told("-tp", 4) == [REFUSAL]
    assert told("-tp", 2, env={"CUDA_VISIBLE_DEVICES": "1"}) == [REFUSAL]
    assert told("-tp", 4, "--distributed-executor-backend", "ray") == [WARNING]
    assert told("-tp", 4, "--nnodes", 2) == []
    assert told("-tp", 2, "-dp", 2) == [WARNING]
    assert told("-tp", 4, env={"CUDA_VISIBLE_DEVICES": ""}) == []
    # A build for the CPU runs any number of ranks beside a GPU.
    assert told("-tp", 4, program=install(tmp_path / "cpu", version="0.32.0+cpu")) == [WARNING]
    assert told("-tp", 4, program=install(tmp_path / "old", version="0.9.2")) == [WARNING]
    assert of("gpus", checked(vllm, "serve", model, "-tp", 4)) == []


def test_memory_is_an_estimate(vllm: str, tmp_path: Path) -> None:
    large = make(tmp_path / "large", size=2**20)

    def told(*words: object) -> list[tuple[Level, str]]:
        return of("memory", checked(vllm, "serve", large, *words, gpus=gpus(2, total=2 * 2**20)))

    ((level, text),) = told()
    assert level is WARNING
    assert text.startswith("an estimate: the weights take about 2 MiB of each GPU")
    assert told("-tp", 2) == told("--quantization", "fp8") == told("--load-format", "dummy") == []


def test_every_check_can_be_skipped(vllm: str, model: Path) -> None:
    (model / SECOND).unlink()
    assert {check.name for check in checked(vllm, "serve", model)} == set(NAMES)
    for name in NAMES:
        assert {check.name for check in checked(vllm, "serve", model, skip=frozenset([name]))} == {*NAMES} - {name}
    assert checked(vllm, "serve", model, skip=frozenset(["all"])) == ()
    # What is no engine has no model.
    assert {check.name for check in checked("sleep", "1")} == {"port", "disk"}


def test_it_takes_less_than_a_tenth_of_a_second(vllm: str, model: Path, tmp_path: Path) -> None:
    checked(vllm, "serve", model)
    begin = time.monotonic()
    told = checked(vllm, "serve", model, state_dir=str(tmp_path))
    assert time.monotonic() - begin < 0.1
    assert REFUSAL not in {check.level for check in told}


def test_a_large_model_is_read_as_far_as_time_allows(tmp_path: Path) -> None:
    many = make(tmp_path / "many", shards=40)
    found = checkpoint.read(str(many), 60.0)
    assert (len(found.headers), found.skipped, found.nbytes) == (40, 0, 40 * 64)
    late = checkpoint.read(str(many), -1.0)
    assert (len(late.headers), late.skipped, late.nbytes) == (0, 40, None)


def test_what_does_not_answer_is_a_warning(
    vllm: str, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A read that blocks, as on a dead mount: here of a fifo that nobody writes to."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def block(*_: object, **__: object) -> Any:
        with fifo.open("rb") as file:
            return file.read()

    monkeypatch.setattr(checkpoint, "read", block)
    monkeypatch.setattr("supervise.preflight.launch.MODEL_S", 0.05)
    told = checked(vllm, "serve", model, "-tp", 3)
    with fifo.open("wb"):
        pass  # lets the thread go
    assert of("model", told) == [(WARNING, "not checked: no answer in 0.1 s")]
    # Nothing passes that was not looked at.
    assert not {"heads", "length", "memory", "hostmemory"} & {check.name for check in told}


def test_within_hands_on_what_went_wrong() -> None:
    assert within(5.0, lambda: 7) == 7
    with pytest.raises(FileNotFoundError):
        within(5.0, lambda: os.stat("/nowhere"))


GARBAGE = st.binary(max_size=60) | st.sampled_from([POINTER, b"{}", b"[]", b"null", b"[" * 3000, b'{"weight_map":3}'])
NAMED = st.sampled_from(["config.json", INDEX, FIRST, SECOND, "pytorch_model.bin", "tokenizer.json", "params.json"])
ENTRIES = st.dictionaries(NAMED, GARBAGE | st.none(), max_size=7)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    entries=ENTRIES, weight_map=st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(), max_size=3)
)
def test_no_garbage_raises(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, bytes | None], weight_map: dict[str, Any]
) -> None:
    base = tmp_path_factory.mktemp("garbage")
    vllm = install(base / "venv")
    model = base / "model"
    model.mkdir()
    (model / INDEX).write_text(json.dumps({"weight_map": weight_map, "metadata": {"total_size": 10**400}}))
    for name, content in entries.items():
        (model / name).unlink(missing_ok=True)
        (model / name).mkdir() if content is None else (model / name).write_bytes(content)
    told = checked(vllm, "serve", model, "-tp", 3, "--max-model-len", "1M", gpus=gpus(1))
    assert all(check.text.isprintable() and check.text.encode() is not None for check in told)
    shutil.rmtree(base)


@pytest.fixture
def sleeper() -> Any:
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(9999)"],
        stdout=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2048)),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_soft_limits_are_raised_to_the_hard_ones(sleeper: int) -> None:
    core = resource.prlimit(sleeper, resource.RLIMIT_CORE)
    told = limits.raise_soft(sleeper)
    assert resource.prlimit(sleeper, resource.RLIMIT_NOFILE) == (2048, 2048)
    assert "open files (RLIMIT_NOFILE): 256 raised to 2048" in told
    for kind in (resource.RLIMIT_MEMLOCK, resource.RLIMIT_NPROC):
        soft, hard = resource.prlimit(sleeper, kind)
        assert soft == hard
    assert resource.prlimit(sleeper, resource.RLIMIT_CORE) == core
    assert limits.raise_soft(sleeper) == ()
    assert limits.raise_soft(2**22) == ()  # no such process


def test_limits_of_cgroups(tmp_path: Path) -> None:
    """All that are above count; a directory beside them does not."""
    leaf = tmp_path / "top/a/b"
    leaf.mkdir(parents=True)
    for directory, limit, used in ((leaf, "max", "5"), (leaf.parent, "100", "40"), (leaf.parent.parent, "80", "10")):
        (directory / "pids.max").write_text(f"{limit}\n")
        (directory / "pids.current").write_text(f"{used}\n")
    (tmp_path / "pids.max").write_text("1\n")
    found = memory.ceilings(str(leaf), str(tmp_path / "top"), "pids.max", "pids.current")
    assert [(ceiling.limit, ceiling.left) for ceiling in found] == [(100, 60), (80, 70)]
    (leaf / "pids.max").write_text(f"{2**63 - 4096}\n")  # as cgroup v1 says that there is none
    assert memory.ceilings(str(leaf), str(leaf), "pids.max", "pids.current") == ()


def test_this_hosts_memory_is_read() -> None:
    assert (memory.available() or 0) > 0
    for ceiling in (memory.memory_ceiling(), memory.process_ceiling()):
        assert ceiling is None or ceiling.limit > 0


def test_free_space_of_what_does_not_exist_yet(tmp_path: Path) -> None:
    found = space.free(str(tmp_path / "not/yet"))
    assert found.path == str(tmp_path)
    assert found.free is None or found.free > 0
    assert not found.read_only
    assert not space.is_full(str(tmp_path))
    assert os.listdir(tmp_path) == []


@pytest.mark.root
def test_a_full_state_directory_is_refused(tmp_path: Path, vllm: str, model: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", state], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        assert [level for level, _ in of("disk", checked("sleep", "1", state_dir=str(state)))] == [WARNING]
        (state / "fill").write_bytes(b"x" * 32768)
        told = of("disk", checked("sleep", "1", state_dir=str(state / "run")))
        assert told[0][0] is REFUSAL
        assert "no room for a log" in told[0][1]
    finally:
        subprocess.run(["umount", state], check=True)
