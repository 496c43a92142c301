"""Profile files: what ours hold, and what is said about a damaged one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supervise.profiles import data_dir, load
from supervise.profiles.errors import ProfileError
from supervise.profiles.titles import in_environment

MINIMAL = 'summary = "s"\ngrace_s = 1\nlinger_s = 2\n'

DAMAGE = [
    ("summary =", ": is not TOML: Invalid value (at end of document); allowed: a TOML document in UTF-8"),
    ("grace_s = 1\nlinger_s = 2", ": summary: is missing; allowed: a non-empty string"),
    ('summary = ""\ngrace_s = 1\nlinger_s = 2', ": summary: is empty; allowed: a non-empty string"),
    ("summary = 1\ngrace_s = 1\nlinger_s = 2", ": summary: is a number; allowed: a string"),
    ('summary = "s"\nlinger_s = 2', ": grace_s: is missing; allowed: seconds, 0 to 86400"),
    ('summary = "s"\ngrace_s = -1\nlinger_s = 2', ": grace_s: is -1; allowed: seconds, 0 to 86400"),
    ('summary = "s"\ngrace_s = true\nlinger_s = 2', ": grace_s: is True; allowed: seconds, 0 to 86400"),
    (
        MINIMAL + "grace = 1",
        (
            ": grace: is not a known key; allowed: launch, gpus, titles, values, summary, ports, environment, phases, "
            "percents, ready, signatures, leftovers, packages, grace_s, linger_s, patience, parts, liveness, "
            "settings"
        ),
    ),
    (MINIMAL + "launch = 1", ": launch: is a number; allowed: a table"),
    (MINIMAL + "signatures = 'python'", ": signatures: is a string; allowed: a list of strings"),
    (MINIMAL + "signatures = ['a', 1]", ": signatures[1]: is a number; allowed: a string"),
    (MINIMAL + "phases = [1]", ": phases[0]: is a number; allowed: a table"),
    (MINIMAL + "phases = 2020-01-01", ": phases: is a date or time; allowed: a list of tables"),
    (
        MINIMAL + "[[phases]]\nname = 'a'\nbegins = '('",
        (
            ": phases[0].begins: is no regular expression: missing ), unterminated subpattern at position 0; allowed: "
            "a Python regular expression"
        ),
    ),
    (MINIMAL + "[[phases]]\nname = 'a'", ": phases[0].begins: is missing; allowed: a non-empty string"),
    (
        MINIMAL + "[[phases]]\nname = 'a'\nbegins = 'a'\nends = 'b'",
        ": phases[0].ends: is not a known key; allowed: name, begins",
    ),
    (
        MINIMAL + "percents = ['(?P<desc>a)']",
        ": percents[0]: lacks the group 'pct'; allowed: a pattern with (?P<pct>…)",
    ),
    (
        MINIMAL + "[ready]\nhtml = '/'",
        ": ready.html: is not a known key; allowed: lines, http, models, resolves, timeout_s, every_s",
    ),
    (
        MINIMAL + "[launch]\nforms = [{ program = 'a', module = 'b' }]",
        ": launch.forms[0].program: must stand alone or be replaced by module; allowed: one of program, module",
    ),
    (
        MINIMAL + "[launch]\nconfig_flags = ['--a_b']",
        ": launch.config_flags[0]: is '--a_b'; allowed: a flag spelled with dashes, such as \"--tp-size\"",
    ),
    (
        MINIMAL + "[launch]\nswitches = '--a b'",
        ": launch.switches[1]: is 'b'; allowed: a flag spelled with dashes, such as \"--tp-size\"",
    ),
    (
        MINIMAL + "[launch]\nform = []",
        ": launch.form: is not a known key; allowed: forms, switches, one_way, lists, config_flags",
    ),
    (
        MINIMAL + "[values]\nport = { flag = ['--port'] }",
        ": values.port.flag: is not a known key; allowed: flags, env, positional, fallback, default",
    ),
    (
        MINIMAL + "[values]\nmodel = { positional = -1 }",
        ": values.model.positional: is -1; allowed: a whole number of 0 or more",
    ),
    (MINIMAL + "[values]\ntp = { fallback = 'dp' }", ": values.tp.fallback: is 'dp'; allowed: tp"),
    (
        MINIMAL + "[values]\ntls = {}\n[[ports]]\nrole = 'a'",
        ": ports[0].value: is missing; allowed: a non-empty string",
    ),
    (MINIMAL + "[values]\ntls = {}\n[[ports]]\nvalue = 'port'", ": ports[0].value: is 'port'; allowed: tls"),
    (
        MINIMAL + "[values]\ntls = {}\n[[ports]]\nrole = 'a'\nvalue = 'tls'\nwhen = ['x']",
        ": ports[0].when[0]: is 'x'; allowed: tls",
    ),
    (
        MINIMAL + "[values]\ntls = {}\n[[ports]]\nrole = 'a'\nvalue = 'tls'\nfirst_node = 1",
        ": ports[0].first_node: is a number; allowed: true or false",
    ),
    (MINIMAL + "[gpus]\nmemory_rule = 'half'", ": gpus.memory_rule: is 'half'; allowed: of-total, of-free"),
    (
        MINIMAL + "[values]\ntp = {}\n[gpus.unless]\ndp = 'tp'",
        ": gpus.unless.dp: is not a value of this profile; allowed: tp",
    ),
    (MINIMAL + "[titles.prefix]\nenv = 'A'", ": titles.prefix.default: is missing; allowed: a non-empty string"),
    (MINIMAL + "[environment]\nA = '{run}'", ": environment.A: uses {run}; allowed: {dir}, {tmp}, {user}"),
    (
        MINIMAL + "[environment]\nA = '{'",
        ": environment.A: is no template: Single '{' encountered in format string; allowed: {dir}, {tmp}, {user}",
    ),
]


@pytest.mark.parametrize(("text", "complaint"), DAMAGE, ids=[complaint for _, complaint in DAMAGE])
def test_a_damaged_file_is_refused_in_one_clear_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ProfileError) as refused:
        load.load_file(file)

    assert str(refused.value) == f"{file}{complaint}"


def test_an_unknown_value_names_those_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL + "[values]\nprot = {}", encoding="utf-8")

    with pytest.raises(ProfileError, match=r"values\.prot: is not a known value; allowed: host, port, uds, .*"):
        load.load_file(file)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    with pytest.raises(ProfileError, match="cannot be read: No such file or directory; allowed: a readable file"):
        load.load_file(tmp_path / "none.toml")
    with pytest.raises(ProfileError, match="is not TOML: 'utf-8' codec can't decode"):
        load.load_file(binary)


def test_a_minimal_file_is_enough_and_is_named_after_its_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL, encoding="utf-8")
    profile = load.load_file(file)

    assert (profile.name, profile.source, profile.grace_s, profile.linger_s) == ("mine", str(file), 1.0, 2.0)
    assert (profile.forms, profile.values, profile.ready.http, profile.titles) == ((), {}, None, ())


def test_a_profile_that_there_is_not_names_those_that_there_are() -> None:
    with pytest.raises(ProfileError) as refused:
        load.load("tgi")

    assert str(refused.value) == f"{data_dir()}: has no profile 'tgi'; allowed: generic, sglang, vllm"


def test_ours_are_all_there() -> None:
    assert load.names() == tuple(load.load_all()) == ("generic", "sglang", "vllm")
    assert load.load("vllm") == load.load_all()["vllm"]


TITLES = [
    ("vllm", "VLLM::EngineCore"),
    ("vllm", "VLLM::EngineCore_DP0"),
    ("vllm", "VLLM::Worker"),
    ("vllm", "VLLM::Worker_TP0"),
    ("vllm", "VLLM::Worker_DP0_PP1_PCP0_TP3_DCP1_EP7"),
    ("vllm", "VLLM::APIServer_1"),
    ("vllm", "VLLM::APIServer_DP3"),
    ("vllm", "VLLM::DPCoordinator"),
    ("sglang", "sglang::scheduler"),
    ("sglang", "sglang::scheduler_DP0_PP1_ATTN_CP0_MOE_DP1_TP3_EP7"),
    ("sglang", "sglang::detokenizer"),
    ("sglang", "sglang::detokenizer_router"),
    ("sglang", "sglang::tokenizer_worker:4711"),
    ("sglang", "sglang::data_parallel_controller"),
    ("sglang", "sgl_diffusion::scheduler_0"),
    (None, "VLLM::EngineCore.md"),
    (None, "less VLLM::EngineCore"),
    (None, "vllm serve M"),
    (None, "python -m sglang.launch_server"),
    (None, "supervise sglang serve"),
    (None, "acme::EngineCore"),
]


@pytest.mark.parametrize(("engine", "title"), TITLES)
def test_titles_are_matched_whole(engine: str | None, title: str) -> None:
    found = [p.name for p in load.load_all().values() if any(t.fullmatch(title) for t in p.titles)]

    assert found == ([] if engine is None else [engine])


def test_a_prefix_of_the_users_counts_as_well() -> None:
    vllm = load.load("vllm")
    renamed = in_environment(vllm, {"VLLM_PROCESS_NAME_PREFIX": "a.c"})

    def known(title: str) -> bool:
        return any(pattern.fullmatch(title) for pattern in renamed.titles)

    assert known("a.c::Worker_TP0")
    assert known("VLLM::Worker_TP0")
    assert not known("abc::Worker_TP0")
    assert in_environment(vllm, {}) is vllm
    assert in_environment(vllm, {"VLLM_PROCESS_NAME_PREFIX": ""}) is vllm
    assert in_environment(load.load("sglang"), {"VLLM_PROCESS_NAME_PREFIX": "a"}) is load.load("sglang")


@pytest.mark.parametrize(
    "title",
    [
        "nvidia-cuda-mps-server",
        "/usr/bin/nvidia-cuda-mps-control -d",
        "/usr/bin/nvidia-persistenced --user nvpd",
        "/v/bin/python /v/bin/vllm preload M",
        "python -m sglang.srt.weight_cache.daemon --x",
        "/x/raylet --raylet_socket_name=a",
    ],
)
def test_what_is_kept_on_purpose_is_protected(title: str) -> None:
    assert any(pattern.search(title) for p in load.load_all().values() for pattern in p.protected)


@pytest.mark.parametrize(
    "title", ["VLLM::EngineCore", "vllm serve preload", "sglang::scheduler", "python raylet_test.py"]
)
def test_what_is_not_kept_is_not(title: str) -> None:
    assert not any(pattern.search(title) for p in load.load_all().values() for pattern in p.protected)


BARS = [
    ("vllm", "Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01,  1.9it/s]", 50, "2", "4"),
    ("vllm", "Multi-thread loading shards: 100% Completed | 4/4 [00:01<00:00]", 100, "4", "4"),
    (
        "vllm",
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 14/35 [00:00<00:01]",
        40,
        "14",
        "35",
    ),
    ("vllm", "Fetching 12 files:  25%|██▌       | 3/12 [00:01<00:04]", 25, None, None),
    ("sglang", "Capturing batches (bs=8 avail_mem=12.34 GB):  40%|████      | 4/10 [00:00<00:01]", 40, "4", "10"),
]


@pytest.mark.parametrize(("engine", "line", "percent", "done", "total"), BARS)
def test_progress_bars(engine: str, line: str, percent: int, done: str | None, total: str | None) -> None:
    found = next(m for pattern in load.load(engine).percents if (m := pattern.search(line)))
    groups = found.groupdict()

    assert (int(groups["pct"]), groups.get("n"), groups.get("tot")) == (percent, done, total)


STARTUP = {
    "vllm": [
        "non-default args: {'model': 'M'}",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='M'",
        "Starting to load model /tmp/M...",
        "Model loading took 1.2 GiB memory and 3 seconds",
        "Dynamo bytecode transform time: 4.1 s",
        "Available KV cache memory: 3.4 GiB",
        "Capturing CUDA graphs (decode, FULL):   0%|          | 0/35",
        "init engine (profile, create kv cache, warmup model) took 58.37 s",
    ],
    "sglang": [
        "server_args=ServerArgs(model_path='M')",
        "Init torch distributed begin.",
        "Load weight begin. avail mem=78.6 GB",
        "Load weight end. elapsed=1.2 s",
        "Capture target decode CUDA graph begin. backend=full",
        "max_total_num_tokens=1000, chunked_prefill_size=8192",
        "Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
    ],
}


@pytest.mark.parametrize("engine", STARTUP)
def test_every_phase_begins_with_its_line_and_no_other(engine: str) -> None:
    phases = load.load(engine).phases

    found = [[phase.name for phase in phases if phase.begins.search(line)] for line in STARTUP[engine]]
    assert found == [[phase.name] for phase in phases]


@pytest.mark.parametrize(
    ("engine", "line", "ready"),
    [
        ("vllm", "INFO:     Application startup complete.", True),
        ("vllm", "Starting vLLM server on http://0.0.0.0:8000", False),
        ("sglang", "The server is fired up and ready to roll!", True),
        ("sglang", "Uvicorn running on http://127.0.0.1:30000", False),
        ("sglang", "INFO:     Application startup complete.", False),
    ],
)
def test_only_the_right_line_means_ready(engine: str, line: str, ready: bool) -> None:
    assert any(pattern.search(line) for pattern in load.load(engine).ready.lines) is ready


def test_no_flag_is_both_a_switch_and_one_with_a_value() -> None:
    # A presence is all that these values are.
    presences = {"headless", "multi_port", "dp_attention", "grpc"}
    for profile in load.load_all().values():
        valued = {f for name, spec in profile.values.items() if name not in presences for f in spec.flags}
        assert not valued & profile.switches
        assert not profile.lists & profile.switches
        assert {f for name in presences & set(profile.values) for f in profile.values[name].flags} <= profile.switches


def test_a_private_directory_never_takes_compiled_kernels_along() -> None:
    for engine in ("vllm", "sglang"):
        environment = load.load(engine).environment
        assert environment["TMPDIR"] == "{dir}"
        assert environment["TORCHINDUCTOR_CACHE_DIR"] == "{tmp}/torchinductor_{user}"


def test_launching_reads_no_signature_file_and_no_yaml() -> None:
    import subprocess
    import sys

    script = (
        "import sys; opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "from supervise.profiles import load, match\n"
        "from supervise.profiles.derive import derive\n"
        "derive(match.match(['vllm', 'serve', 'M'], load.load_all()), {}, read_text=str)\n"
        "print(sorted({'yaml', 'psutil', 'supervise.profiles.signatures'} & set(sys.modules)))\n"
        "print([name for name in opened if 'signatures' in name])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert re.split(r"\n", done.stdout.strip()) == ["[]", "[]"]
