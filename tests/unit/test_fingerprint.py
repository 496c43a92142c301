"""The identity of a failure: what must not change it, and what must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervise.diagnosis.essence import essence, place
from supervise.diagnosis.fingerprint import fingerprint
from tests.support.effort import is_slow
from tests.unit.test_corpus import cases

FRAMES = (
    ("/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", "run_engine_core"),
    ("/opt/venv/lib/python3.12/site-packages/vllm/v1/worker/gpu_worker.py", "load_model"),
    ("/opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/llama.py", "load_weights"),
)


def of(message: str, **more: Any) -> str:
    facts = {"exception": "ValueError", "frames": FRAMES, "signature": None, "phase": "weights", **more}
    return fingerprint(message=message, **facts)


SAME = [
    # processes, ranks, threads
    ("worker pid 4711 died", "worker pid 23 died"),
    ("(pid=4711) died", "(pid=9) died"),
    ("rank 0 failed", "rank 13 failed"),
    ("[rank0]: boom", "[rank7]: boom"),
    ("[rank3]: boom", "boom"),
    ("Worker_TP0 failed", "Worker_TP12 failed"),
    ("EngineCore_DP0 died", "EngineCore_DP3 died"),
    ("EngineCore_0 died", "EngineCore_1 died"),
    ("VllmWorkerProcess-3 died", "VllmWorkerProcess-11 died"),
    ("error in ThreadPoolExecutor-0_1", "error in ThreadPoolExecutor-4_0"),
    ("DP0 TP1 EP1 out of sync", "DP1 TP7 EP0 out of sync"),
    ("tensor on cuda:0", "tensor on cuda:5"),
    ("GPU 0 is lost", "GPU 7 is lost"),
    ("ranks [0, 1] are missing", "ranks [2, 3, 7] are missing"),
    # addresses and ids
    ("<Foo object at 0x7f1e9f0214e0>", "<Foo object at 0x55>"),
    ("request cmpl-1f0c8f1e9f0214e0 failed", "request cmpl-99a7b3c4d5e6f708 failed"),
    ("id 2f0c8f1e-9a4b-4c1d-8e2f-001122334455 lost", "id aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeee00 lost"),
    ("connect to tcp://10.0.0.1:29500 failed", "connect to tcp://head-0.ray.svc:40113 failed"),
    ("bind ('127.0.0.1', 30000): in use", "bind ('0.0.0.0', 8000): in use"),
    ("no answer from 10.1.2.3:8000", "no answer from 192.168.100.20:31999"),
    ("no answer from [fd00:12::1]:8000", "no answer from [fe80::ab:2]:9"),
    ("GET http://10.0.0.1:8000/health failed", "GET http://127.0.0.1:33679/health failed"),
    ("pod llm-7d9f8b6c5d-x2x4z gone", "pod llm-6c5b4a3988-qq9rt gone"),
    # sizes, counts, shares, spans
    ("needs 2.50 GiB", "needs 254 MiB"),
    ("needs 1073741824 bytes", "needs 5 bytes"),
    ("1,234,567 tokens", "99 tokens"),
    ("loss is 1.5e-07 now", "loss is -3 now"),
    ("at 92% of memory", "at 7.5% of memory"),
    ("late by 300.5s", "late by 1200 ms"),
    ("shape '[4096, 11008]' is invalid", "shape '[2, -1, 5]' is invalid"),
    ("shape 4096x1024 and 8x16", "shape 2x3 and 4x5"),
    ("retry 1 of 2", "retry 2 of 2"),
    ("line 17 column 3 (char 349)", "line 1 column 1 (char 0)"),
    ("max_model_len (131072) is greater than (max_position_embeddings=2048.0)",
     "max_model_len (999999) is greater than (max_position_embeddings=4096.0)"),
    # moments
    ("since 2025-11-30T05:00:00.123Z idle", "since 2024-01-02 23:59:59+02:00 idle"),
    ("since 11-30 05:00:00 idle", "since 01-02 03:04:05 idle"),
    ("since Sun Nov 30 05:00:00 2025", "since Mon Jan 1 23:10:59 2024"),
    # layers, experts, shards
    ("no parameter model.layers.0.mlp.experts.3.w1.weight", "no parameter model.layers.61.mlp.experts.127.w1.weight"),
    ("no parameter transformer.h.3.attn.weight", "no parameter transformer.h.31.attn.weight"),
    ("missing {'model.layers.1.norm.weight', 'model.layers.0.norm.weight'}", "missing {'model.layers.7.norm.weight'}"),
    ("missing {'a.bias', 'b.bias'}", "missing {'b.bias', 'a.bias'}"),
    ("cannot read model-00001-of-00004.safetensors", "cannot read model-00013-of-00163.safetensors"),
    # places
    ("cannot read '/home/ann/models/tiny/config.json'", "cannot read '/mnt/data/tiny/config.json'"),
    ("cannot read /root/.cache/huggingface/hub/models--a--b/snapshots/1f0c8f1e/config.json",
     "cannot read /data/hub/models--a--b/snapshots/77777777/config.json"),
    ("/a/lib/python3.10/site-packages/torch/lib/libx.so: too short",
     "/b/c/lib/python3.12/site-packages/torch/lib/libx.so: too short"),
    ("from 'vllm' (/x/vllm/utils/__init__.py)", "from 'vllm' (/y/z/vllm/utils/__init__.py)"),
    ("no space for /tmp/tmpab12cd3f", "no space for /tmp/tmp_9zzzzzz"),
    ("no space for '/dev/shm/psm_1a2b3c4d'", "no space for '/dev/shm/psm_99ffee00'"),
    ("no space for /dev/shm/nccl-AbC123", "no space for /dev/shm/nccl-zzZ9yy"),
    ("built for cpython-310", "built for cpython-312"),
    # what is quoted of the launch, of the GPU, of what would have been right
    ("bad [type=value_error, input_value={'a': 1}, input_type=dict]",
     "bad [type=value_error, input_value=Args((), {'model': 'x'}), input_type=Args]"),
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free. Process 17 has 3 GiB in use.",
     "CUDA out of memory. Tried to allocate 254.00 MiB. GPU 3 has 0 bytes free."),
    ("invalid choice: 'x' (choose from 'a', 'b')", "invalid choice: 'x' (choose from 'a', 'b', 'c')"),
    ("two   spaces", "two spaces"),
]  # fmt: skip

DIFFERENT = [
    ("boom", "bang"),
    ("no parameter model.layers.0.mlp.w1.weight", "no parameter model.layers.0.mlp.w2.weight"),
    ("no parameter w13_weight_scale", "no parameter w2_weight_scale"),
    ("no parameter model.layers.0.input_layernorm", "no parameter model.layers.0.post_layernorm"),
    ("no parameter block.ln_1.weight", "no parameter block.ln_2.weight"),
    ("no parameter q_proj.weight", "no parameter q_proj.bias"),
    ("missing {'a.bias', 'b.bias'}", "missing {'a.bias', 'c.bias'}"),
    ("missing ['a.bias']", "missing ['a.bias', 'b.bias']"),
    ("dtype float16 is not supported", "dtype float32 is not supported"),
    ("cannot load fp8", "cannot load fp4"),
    ("no kernel for sm_75", "no kernel for sm_90"),
    ("unknown model Qwen3-8B", "unknown model Qwen3-32B"),
    ("unknown model acme/Llama-3.1-8B", "unknown model acme/Llama-2-8B"),
    ("unknown model 'acme/one'", "unknown model 'acme/two'"),
    ("[Errno 98] failed", "[Errno 13] failed"),
    ("[Errno -2] failed", "[Errno -3] failed"),
    ("401 Client Error", "404 Client Error"),
    ("500 Internal Server Error", "503 Service Unavailable"),
    ("got HTTP 429", "got HTTP 500"),
    ("HTTP/1.1 404", "HTTP/1.1 429"),
    ("status code 401", "status code 403"),
    ("returned non-zero exit status 1.", "returned non-zero exit status 137."),
    ("exit code -9", "exit code -11"),
    ("exitcode: 1", "exitcode: 3"),
    ("killed by signal 9", "killed by signal 11"),
    ("died with SIGKILL", "died with SIGSEGV"),
    ("CUDA error 700", "CUDA error 710"),
    ("Xid (PCI:0000:65:00): 79, pid=1", "Xid (PCI:0000:65:00): 31, pid=1"),
    ("libcudart.so.12: cannot open", "libcublas.so.12: cannot open"),
    ("No module named 'vllm._C'", "No module named 'vllm._moe_C'"),
    ("unrecognized arguments: --max-modellen", "unrecognized arguments: --max-model-length"),
    ("argument --dtype: invalid choice: 'x'", "argument --dtype: invalid choice: 'y'"),
    ("argument --dtype: invalid choice: 'x'", "argument --device: invalid choice: 'x'"),
    ("cannot read '/models/a/config.json'", "cannot read '/models/a/tokenizer.json'"),
    ("no such path '/models/one'", "no such path '/models/two'"),
    ("no space for /dev/shm/psm_1a2b3c4d", "no space for /dev/shm/nccl-AbC123"),
    ("no space for '/tmp'", "no space for '/dev/shm'"),
    ("cannot get https://huggingface.co/a/b", "cannot get https://huggingface.co/a/c"),
    ("tcp://10.0.0.1:1 timed out", "ipc://10.0.0.1:1 timed out"),
    ("Connection refused", "Connection reset by peer"),
    ("undefined symbol: _ZN3c104cuda9SetDeviceEi", "undefined symbol: _ZN3c104cuda14ExchangeDeviceEi"),
    ("NCCL WARN system error", "NCCL WARN internal error"),
    ("expected True", "expected False"),
    ("got nan", "got inf"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_changes_from_run_to_run_does_not_count(one: str, other: str) -> None:
    assert essence(one) == essence(other)
    assert of(one) == of(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_says_what_went_wrong_counts(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_there_are_enough_pairs() -> None:
    assert len(SAME) >= 40
    assert len(DIFFERENT) >= 40


# --- frames -----------------------------------------------------------------------------------------------------------

SITE = "/opt/venv/lib/python3.12/site-packages"
CORE, WORKER, LLAMA = ("vllm/v1/engine/core.py", "run"), ("vllm/v1/worker.py", "load"), ("vllm/models/llama.py", "fill")


def at(root: str, *frames: tuple[str, str]) -> list[tuple[str, str]]:
    return [(f"{root}/{file}", function) for file, function in frames]


SAME_FRAMES = [
    (at(SITE, CORE, WORKER, LLAMA), at("/usr/lib/python3.10/site-packages", CORE, WORKER, LLAMA)),
    (at(SITE, CORE, WORKER, LLAMA), at("/usr/local/lib/python3.11/dist-packages", CORE, WORKER, LLAMA)),
    (at(SITE, CORE, WORKER, LLAMA), at("/workspace/vllm", CORE, WORKER, LLAMA)),
    (at(SITE, CORE, WORKER, LLAMA), at("/home/ann/src/my-vllm", CORE, WORKER, LLAMA)),
    (at(SITE, CORE, WORKER, LLAMA), at(SITE, ("vllm/cli.py", "main"), CORE, WORKER, LLAMA)),
    (at(SITE, CORE, WORKER, LLAMA), at(SITE, CORE, WORKER, ("torch/nn/module.py", "_call_impl"), LLAMA)),
    (at(SITE, CORE, LLAMA), [*at(SITE, CORE), ("/usr/lib/python3.12/asyncio/runners.py", "run"), *at(SITE, LLAMA)]),
    (at(SITE, CORE, LLAMA), [*at(SITE, CORE), ("<frozen importlib._bootstrap>", "_load"), *at(SITE, LLAMA)]),
    (at(SITE, CORE, LLAMA), [*at(SITE, CORE, LLAMA), ("/tmp/torchinductor_root/ab/cab.py", "call")]),
    (at(SITE, CORE, LLAMA), at(SITE, CORE, LLAMA, (LLAMA[0], "<listcomp>"))),
    ([("/home/ann/serve.py", "main")], [("/srv/app/serve.py", "main")]),
    (at(SITE, ("uvicorn/main.py", "bind")), at("/other/site-packages", ("uvicorn/main.py", "bind"))),
]
DIFFERENT_FRAMES = [
    (at(SITE, CORE, WORKER), at(SITE, CORE, LLAMA)),
    (at(SITE, CORE, LLAMA), at(SITE, CORE, (LLAMA[0], "other"))),
    (at(SITE, CORE, LLAMA), at(SITE, CORE, ("vllm/models/qwen.py", "fill"))),
    (at(SITE, ("sglang/srt/a.py", "f")), at(SITE, ("vllm/srt/a.py", "f"))),
    ([("/home/ann/serve.py", "main")], [("/home/ann/other.py", "main")]),
    (at(SITE, ("uvicorn/main.py", "bind")), at(SITE, ("uvicorn/main.py", "listen"))),
    (at(SITE, CORE), []),
]


@pytest.mark.parametrize(("one", "other"), SAME_FRAMES)
def test_frames_of_another_installation(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert of("boom", frames=one) == of("boom", frames=other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT_FRAMES)
def test_frames_of_another_failure(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> None:
    assert of("boom", frames=one) != of("boom", frames=other)


@pytest.mark.parametrize(
    ("exception", "message"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("MemoryError", ""),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 5 bytes."),
    ],
)
def test_where_it_is_seen_says_nothing_of_what_may_be_seen_anywhere(exception: str, message: str) -> None:
    one, other = (of(message, exception=exception, frames=at(SITE, CORE, frame)) for frame in (WORKER, LLAMA))
    assert one == other
    assert one != of(message, exception=exception, phase="graphs")


# --- the other parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [{"phase": "run"}, {"phase": None}, {"signature": "x"}, {"exception": "KeyError"}])
def test_every_part_counts(changed: dict[str, Any]) -> None:
    assert of("boom") != of("boom", **changed)


def test_parts_do_not_run_into_each_other() -> None:
    assert of("ab", signature="c") != of("a", signature="bc")


@pytest.mark.parametrize("name", ["torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError", "OutOfMemoryError"])
def test_the_module_of_a_type_moves(name: str) -> None:
    assert of(f"{name}: full", exception=name) == of("full", exception="OutOfMemoryError")


def test_its_shape_is_stable() -> None:
    """Ids are in tickets and in the records of earlier attempts: whoever changes them knows it here."""
    assert of("boom") == "c9467328dc63"
    assert of("") != of("boom")


def test_a_surrogate_is_no_obstacle() -> None:
    assert len(of("\udcff broken")) == 12


@pytest.mark.parametrize(
    ("path", "placed"),
    [
        (f"{SITE}/vllm/a.py", "vllm/a.py"),
        ("/usr/lib/python3.12/asyncio/base.py", "asyncio/base.py"),
        ("/work/sglang/python/sglang/srt/a.py", "sglang/srt/a.py"),
        ("/models/vllm/tiny", "tiny"),
        ("/models/tiny/", "tiny"),
        ("/tmp/tmpab12cd3f", "<temporary>tmp"),
        ("/tmp/tmpab12cd3f/config.json", "config.json"),
        ("/tmp/model", "<temporary>model"),
        ("/dev/shm/psm_1a2b", "<temporary>psm"),
        ("relative/run.py", "run.py"),
        ("<stdin>", "<stdin>"),
    ],
)
def test_place(path: str, placed: str) -> None:
    assert place(path) == placed


# --- whatever the numbers ---------------------------------------------------------------------------------------------

number = st.integers(0, 10**9).map(str)
digits = st.text("0123456789", min_size=1, max_size=7)
address = st.integers(0, 2**48).map(hex)
size = st.tuples(st.floats(0, 10**6), st.sampled_from(["KiB", "MiB", "GiB", "GB", "bytes"])).map(
    lambda both: f"{both[0]:.2f} {both[1]}"
)
address4 = st.tuples(*[st.integers(0, 255)] * 4).map(lambda octets: ".".join(map(str, octets)))
uuid = st.uuids().map(str)
moment = st.datetimes().map(lambda when: f"{when:%Y-%m-%d %H:%M:%S}".rjust(19, "0"))
directory = st.lists(st.text("abcdefghijklmnop_", min_size=1, max_size=8), min_size=1, max_size=4).map("/".join)
temporary = st.text("abcdefghijklmnopqrstuvwxyz0123456789_", min_size=8, max_size=8)

TEMPLATES = (
    ("worker pid {} of rank {} at {} died", (number, digits, address)),
    ("CUDA out of memory. Tried to allocate {}. GPU {} has {} free", (size, digits, size)),
    ("bind ('{}', {}) failed after {}.5 s", (address4, number, number)),
    ("request {} since {} waits", (uuid, moment)),
    ("no parameter model.layers.{}.mlp.experts.{}.w2_weight in cuda:{}", (digits, digits, digits)),
    ("cannot map '/{}/python3.12/site-packages/vllm/_C.so': {}", (directory, size)),
    ("cannot read /{}/config.json, copied to /tmp/tmp{}", (directory, temporary)),
    ("Worker_TP{} sees {}% of {} on tcp://{}:{}", (digits, number, size, address4, number)),
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_number_address_or_path_changes_it(data: st.DataObject) -> None:
    template, kinds = data.draw(st.sampled_from(TEMPLATES))
    one, other = (template.format(*map(data.draw, kinds)) for _ in range(2))
    assert essence(one) == essence(other)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.text(max_size=60))
def test_it_takes_any_text(message: str, file: str) -> None:
    assert len(essence(message)) <= 400
    assert len(of(message, frames=[(file, "f")])) == 12


@pytest.mark.parametrize(
    "piece",
    ["1,", "1.", "a" * 8, "0x", "'/", "['a', ", "{'", "http://@", "/vllm", "rank1", "1:", ":1", "- ", "#, ", "Mon ",
     "1-1", "HTTP ", "error (", "a.py/vllm/", "\\", "exit ", "/lib/python3", "[[", "1e1", "0f-", "tmp/", "\t "],
)  # fmt: skip
def test_it_is_quick_with_whatever_somebody_repeats(piece: str) -> None:
    def work(size: int) -> str:
        message = piece * (size // len(piece))
        return of(message, frames=[(message, "f")])

    assert not is_slow(work, 5_000, 0.03)


# --- the corpus -------------------------------------------------------------------------------------------------------


def test_different_failures_of_the_corpus_differ() -> None:
    """Where two logs share a fingerprint, the same known failure was printed in the same words but for numbers."""
    seen: dict[str, tuple[str | None, str]] = {}
    for case in cases():
        diagnosis = case.told.diagnosis
        if diagnosis.fingerprint is None:
            continue
        words = (diagnosis.signature, essence(diagnosis.text or "").replace("torch.cuda.", "torch."))
        assert seen.setdefault(diagnosis.fingerprint, words) == words, case.name
    assert len(seen) >= 20


def test_a_corpus_without_the_message_would_not_differ() -> None:
    """The control: frames, type and phase alone are not enough."""
    causes = [case.told.diagnosis for case in cases() if case.told.diagnosis.text]
    assert len({(each.phase, each.signature) for each in causes}) < len({each.fingerprint for each in causes})
