"""What a launch wants of the host, derived from argv, environment and the engine's own YAML."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from supervise.model.need import DeviceKind, MemoryRule, Need, Port
from supervise.profiles import load, match
from supervise.profiles.derive import derive, safe_name
from supervise.runner import plan

KNOWN = load.load_all()
ALL, NONE, LISTED = DeviceKind.ALL, DeviceKind.NONE, DeviceKind.LISTED


def need(line: str, env: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None) -> Need:
    def read_text(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return (files or {})[path]

    return derive(match.match(shlex.split(line), KNOWN), env or {}, read_text=read_text)


def addresses(found: Need) -> list[tuple[str, str, int]]:
    return [(port.role, port.host, port.number) for port in found.ports]


PORTS = [
    ("vllm serve M", [("http", "0.0.0.0", 8000)]),
    ("vllm serve M --port 8001", [("http", "0.0.0.0", 8001)]),
    ("vllm serve M --port=8001 --host=127.0.0.1", [("http", "127.0.0.1", 8001)]),
    ("vllm serve M --port 1 --port 2", [("http", "0.0.0.0", 2)]),
    ("vllm serve M --por 8001 --hos ::1", [("http", "::1", 8001)]),
    ("vllm serve M --host --port 8001", [("http", "0.0.0.0", 8001)]),
    ("vllm serve M -- --port 8001", [("http", "0.0.0.0", 8000)]),
    ("vllm serve M --uds /run/v.sock --port 8001", []),
    ("vllm serve M --headless", []),
    ("vllm serve M --nnodes 2", [("http", "0.0.0.0", 8000), ("rendezvous", "0.0.0.0", 29501)]),
    ("vllm serve M -n2 -r1", [("http", "0.0.0.0", 8000)]),
    ("vllm serve M --nnodes=2 --master-port 5", [("http", "0.0.0.0", 8000), ("rendezvous", "0.0.0.0", 5)]),
    ("vllm serve M --master-port 5", [("http", "0.0.0.0", 8000)]),
    ("vllm serve M -dp 2", [("http", "0.0.0.0", 8000)]),
    (
        "vllm serve M -dp 4 -dpl 2 -dpm --host h",
        [("http", "h", 8000), ("http", "h", 8001), ("supervisor", "h", 9256)],
    ),
    (
        "vllm serve M -dp 1 --data_parallel_multi_port_external_lb --data-parallel-supervisor-port 7",
        [("http", "0.0.0.0", 8000), ("supervisor", "0.0.0.0", 7)],
    ),
    ("vllm serve M --grpc-port 50", [("http", "0.0.0.0", 8000), ("grpc", "0.0.0.0", 50)]),
    ("sglang serve", [("http", "127.0.0.1", 30000)]),
    ("python -m sglang.launch_server --host 0.0.0.0 --port 1", [("http", "0.0.0.0", 1)]),
    ("sglang serve --nccl-port 9", [("http", "127.0.0.1", 30000), ("nccl", "0.0.0.0", 9)]),
    ("sglang serve --dist-init-addr h:9", [("http", "127.0.0.1", 30000), ("rendezvous", "0.0.0.0", 9)]),
    ("sglang serve --nccl-init-addr [::1]:9", [("http", "127.0.0.1", 30000), ("rendezvous", "0.0.0.0", 9)]),
    ("sglang serve --dist-init-addr h:9 --nnodes 2 --node-rank 1", [("http", "127.0.0.1", 30000)]),
    ("vllm serve M --grpc --port 50", [("grpc", "0.0.0.0", 50)]),
    (
        "sglang serve --enable-dp-attention",
        [("http", "127.0.0.1", 30000), *(("internal", "127.0.0.1", number) for number in range(30233, 30239))],
    ),
    (
        "sglang serve --enable-dp-attention --port 65500",
        [("http", "127.0.0.1", 65500), *(("internal", "127.0.0.1", number) for number in range(65267, 65273))],
    ),
    (
        "sglang serve --enable-dp-attention --dist-init-addr h:9",
        [
            ("http", "127.0.0.1", 30000),
            ("rendezvous", "0.0.0.0", 9),
            *(("internal", "0.0.0.0", number) for number in range(10, 15)),
        ],
    ),
    (
        "sglang serve --enable-dp-attention --dist-init-addr h:9 --nnodes 2 --node-rank 1",
        [("http", "127.0.0.1", 30000)],
    ),
    ("vllm serve M --grpc --headless", [("grpc", "0.0.0.0", 8000)]),
    ("sglang serve --smg-grpc-mode", [("grpc", "127.0.0.1", 40000)]),
    ("sglang serve --grpc-mode --port 5 --grpc-port 6", [("grpc", "127.0.0.1", 6)]),
    ("sglang serve --grpc-port 6", [("http", "127.0.0.1", 30000), ("grpc", "127.0.0.1", 6)]),
    ("my-server", []),
    ("my-server --port 5 --host h", [("http", "h", 5)]),
    ("my-server -p 5", []),
]


@pytest.mark.parametrize(("line", "expected"), PORTS, ids=[line for line, _ in PORTS])
def test_ports(line: str, expected: list[tuple[str, str, int]]) -> None:
    assert addresses(need(line)) == expected


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("vllm serve M --port abc", "--port 'abc' is not a port (1 to 65535)"),
        ("vllm serve M --port 65536", "--port '65536' is not a port (1 to 65535)"),
        ("vllm serve M --port=-1", "--port '-1' is not a port (1 to 65535)"),
        ("vllm serve M --port ١٢", "--port '١٢' is not a port (1 to 65535)"),
        ("vllm serve M --port 0", "--port 0: the kernel chooses the port, so that it is not known beforehand"),
        ("vllm serve M --port", "--port has no value"),
        ("vllm serve M -tp two", "-tp 'two' is not a number"),
        ("vllm serve M --gpu-memory-utilization 90", "--gpu-memory-utilization '90' is not a fraction of 1"),
        ("vllm serve M --gpu-memory-utilization=nan", "--gpu-memory-utilization 'nan' is not a fraction of 1"),
        ("vllm serve M --config=a.yaml", "--config=… is not read: write its file as a word of its own"),
        ("vllm serve M --config", "--config names no file"),
    ],
)
def test_what_cannot_be_derived_is_said_once(line: str, note: str) -> None:
    assert need(line).notes == (note,)


DEVICES = [
    ("vllm serve M", None, ALL, (), 1),
    ("vllm serve M", "0,1", LISTED, ("0", "1"), 1),
    ("vllm serve M -tp 2", " 2 , 3", LISTED, ("2", "3"), 2),
    ("vllm serve M", "GPU-8932f937,MIG-abc", LISTED, ("GPU-8932f937", "MIG-abc"), 1),
    ("vllm serve M", "", NONE, (), None),
    ("vllm serve M", "-1", NONE, (), None),
    ("vllm serve M", "NoDevFiles", NONE, (), None),
    ("vllm serve M", "1,-1,2", LISTED, ("1",), 1),
    ("env CUDA_VISIBLE_DEVICES=3 vllm serve M", "0", LISTED, ("3",), 1),
    ("env -u CUDA_VISIBLE_DEVICES vllm serve M", "0", ALL, (), 1),
    ("env -i vllm serve M", "0", ALL, (), 1),
    ("vllm serve M --device cpu", "0", NONE, (), None),
    ("vllm serve M --device cuda", None, ALL, (), 1),
    ("vllm serve M --device-ids 1,2 -tp 2", None, LISTED, ("1", "2"), 2),
    ("vllm serve M --device-ids '[1, 2]'", None, LISTED, ("1", "2"), 1),
    ("vllm serve M --device-ids 1", "4,5", LISTED, ("5",), 1),
    ("vllm serve M --device-ids GPU-1", "4,5", LISTED, ("GPU-1",), 1),
    ("vllm serve M -tp 2 -pp 3 -pcp 2 -dp 2", None, ALL, (), 24),
    ("vllm serve M -tp=2 -dp 4 -dpl 1", None, ALL, (), 2),
    ("vllm serve M -tp 2 -dp 8 -dpn 3", None, ALL, (), 2),
    ("vllm serve M --tensor_parallel_size 8 --nnodes 2", None, ALL, (), 4),
    ("vllm serve M -tp 3 --nnodes 2", None, ALL, (), None),
    ("vllm serve M -tp 0", None, ALL, (), None),
    ("sglang serve --tp 4 --dp 2", None, ALL, (), 8),
    ("sglang serve --tp 4 --dp-size 2 --enable-dp-attention", None, ALL, (), 4),
    ("sglang serve --base-gpu-id 2 --tp 2", None, LISTED, ("2", "3"), 2),
    ("sglang serve --gpu-id-step 2 --tp 2", None, LISTED, ("0", "2"), 2),
    ("sglang serve --base-gpu-id 1 --tp 2", "4,5,6", LISTED, ("5", "6"), 2),
    ("sglang serve --device cpu", None, NONE, (), None),
    ("my-server", "1", LISTED, ("1",), None),
    ("my-server", None, ALL, (), None),
]


@pytest.mark.parametrize(("line", "visible", "kind", "ids", "count"), DEVICES)
def test_devices(line: str, visible: str | None, kind: DeviceKind, ids: tuple[str, ...], count: int | None) -> None:
    found = need(line, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}).devices

    assert (found.kind, found.ids, found.count) == (kind, ids, count)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("sglang serve --base-gpu-id 1 --tp 2", "--base-gpu-id goes beyond the visible devices"),
        ("vllm serve M --device-ids 0,7", "--device-ids 7 is not among the visible devices"),
    ],
)
def test_devices_beyond_the_visible_ones_are_said(line: str, note: str) -> None:
    assert need(line, {"CUDA_VISIBLE_DEVICES": "4,5"}).notes == (note,)


MODELS = [
    ("vllm serve M", "M", ("M",)),
    ("vllm serve --model M", "M", ("M",)),
    ("vllm serve --enforce-eager M", "M", ("M",)),
    ("vllm serve -O3 M", "M", ("M",)),
    ("vllm serve --no-enable-lora M", "M", ("M",)),
    ("vllm serve --max-model-len 5 M", "M", ("M",)),
    ("vllm serve M --served-model-name a b --port 1", "M", ("a", "b")),
    ("vllm serve M --served_model_name=a", "M", ("a",)),
    ("vllm serve", None, ()),
    ("sglang serve --model-path M", "M", ("M",)),
    ("sglang serve --model M --served-model-name a", "M", ("a",)),
    ("my-server M", None, ()),
]


@pytest.mark.parametrize(("line", "model", "served"), MODELS, ids=[line for line, *_ in MODELS])
def test_model_and_the_names_it_is_served_under(line: str, model: str | None, served: tuple[str, ...]) -> None:
    found = need(line)

    assert (found.model, found.served_names) == (model, served)


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("vllm serve M", "vllm-8000"),
        ("vllm serve M --port 8001", "vllm-8001"),
        ("vllm serve M --uds /run/a/v1.sock", "vllm-uds-v1"),
        ("vllm serve M --uds '/run/a b/x y.sock'", "vllm-uds-x-y"),
        ("vllm serve M --headless", "vllm"),
        ("vllm serve M --grpc --port 50", "vllm-50"),
        ("sglang serve", "sglang-30000"),
        ("my-server.sh", "my-server"),
        ("python /a/serve.py x", "serve"),
        ("nice /a/serve.py", "serve"),
        ("my-server --port 5", "generic-5"),
    ],
)
def test_a_run_is_named_by_what_it_binds(line: str, run: str) -> None:
    assert need(line).run == run


@given(st.text())
def test_a_run_name_is_a_safe_file_name(text: str) -> None:
    name = safe_name(text)

    assert 0 < len(name) <= 80
    assert not name.startswith(("-", "."))
    assert all(char.isascii() and (char.isalnum() or char in "._-") for char in name)
    assert safe_name(name) == name


def test_a_name_given_by_the_user_is_kept() -> None:
    found = derive(match.match(["vllm", "serve"], KNOWN), {}, read_text=str, run="prod")

    assert found.run == "prod"


@pytest.mark.parametrize(
    ("line", "fraction", "rule"),
    [
        ("vllm serve M", 0.92, MemoryRule.OF_TOTAL),
        ("vllm serve M --gpu-memory-utilization 0.5", 0.5, MemoryRule.OF_TOTAL),
        ("vllm serve M --gpu_memory_util .5", 0.5, MemoryRule.OF_TOTAL),
        ("sglang serve", None, MemoryRule.OF_FREE),
        ("sglang serve --mem-fraction-static 0.8", 0.8, MemoryRule.OF_FREE),
        ("my-server", None, None),
    ],
)
def test_memory(line: str, fraction: float | None, rule: MemoryRule | None) -> None:
    found = need(line)

    assert (found.memory_fraction, found.memory_rule) == (fraction, rule)


@pytest.mark.parametrize(
    ("line", "scheme"),
    [("vllm serve M --ssl-keyfile k --ssl-certfile c", "https"), ("sglang serve --ssl-certfile=c", "https"),
     ("vllm serve M", "http")],
)  # fmt: skip
def test_scheme(line: str, scheme: str) -> None:
    assert need(line).scheme == scheme


YAML = """
port: 9001
host: 127.0.0.1
tensor_parallel_size: 2
enforce-eager: true
enable-lora: false
served-model-name: [a, b]
uds: null
speculative-config: {model: draft}
"""


def test_the_engines_own_yaml_is_read() -> None:
    found = need("vllm serve M --config c.yaml", files={"c.yaml": YAML})

    assert found.ports == (Port(9001, "127.0.0.1", "http", "--port in c.yaml"),)
    assert (found.devices.count, found.served_names, found.model, found.uds) == (2, ("a", "b"), "M", None)
    assert found.notes == ()


@pytest.mark.parametrize("line", ["vllm serve M --port 1 --config c.yaml", "vllm serve M --config c.yaml --port 1"])
def test_the_command_line_wins_over_the_yaml(line: str) -> None:
    assert need(line, files={"c.yaml": YAML}).ports == (Port(1, "127.0.0.1", "http", "--port"),)


def test_an_alias_on_the_command_line_wins_over_the_yaml() -> None:
    assert need("vllm serve M -tp 4 --config c.yaml", files={"c.yaml": YAML}).devices.count == 4


def test_a_model_in_the_yaml_is_found_unless_the_command_line_names_one() -> None:
    files = {"c.yaml": "model: N"}

    assert need("vllm serve --config c.yaml", files=files).model == "N"
    assert need("vllm serve M --config c.yaml", files=files).model == "M"
    assert need("vllm serve --model M --config c.yaml", files=files).model == "M"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "No such file or directory"),
        ("- a\n- b", "no mapping of flags to values"),
        ("1: 2", "no mapping of flags to values"),
        ("a: [", "no YAML: "),
    ],
)
def test_a_yaml_that_cannot_be_understood_is_a_note(text: str | None, why: str) -> None:
    found = need("vllm serve M --config c.yaml", files={} if text is None else {"c.yaml": text})

    assert addresses(found) == [("http", "0.0.0.0", 8000)]
    assert [
        note.startswith(f"c.yaml is not understood, ports and devices may differ: {why}") for note in found.notes
    ] == [True]
    assert "\n" not in found.notes[0]


def test_an_empty_yaml_says_nothing() -> None:
    assert need("vllm serve M --config c.yaml", files={"c.yaml": ""}).notes == ()


ENGINES = st.sampled_from(["vllm serve M", "sglang serve", "my-server"])


@given(ENGINES, st.integers(1, 65535))
def test_a_port_reads_the_same_joined_or_apart(engine: str, port: int) -> None:
    joined, apart = need(f"{engine} --port={port}"), need(f"{engine} --port {port}")

    assert addresses(joined) == addresses(apart)
    assert joined.http is not None
    assert joined.http.number == port


@given(st.sampled_from([flag for spec in KNOWN["vllm"].values.values() for flag in spec.flags if flag[:2] == "--"]))
def test_dashes_and_underscores_are_the_same(flag: str) -> None:
    assume("-" in flag[2:])
    dashes = need(f"vllm serve M -n 2 {flag} 3")
    underscores = need(f"vllm serve M -n 2 --{flag[2:].replace('-', '_')} 3")

    assert (dashes.ports, dashes.devices, dashes.served_names, dashes.memory_fraction, dashes.scheme) == (
        underscores.ports,
        underscores.devices,
        underscores.served_names,
        underscores.memory_fraction,
        underscores.scheme,
    )


@given(st.lists(st.text(min_size=1)), st.sampled_from(["vllm", "sglang"]), st.dictionaries(st.text(), st.text()))
def test_no_command_line_is_too_odd(words: list[str], program: str, env: dict[str, str]) -> None:
    found = derive(match.match([program, "serve", *words], KNOWN), env, read_text=lambda path: path)

    assert found.profile == program
    assert all(0 < port.number <= 65535 for port in found.ports)


@pytest.mark.parametrize(
    ("line", "env", "key"),
    [
        ("vllm serve M", {}, None),
        ("vllm serve M --api-key a b", {}, "a"),
        ("vllm serve M --api_key=a", {"VLLM_API_KEY": "b"}, "a"),
        ("vllm serve M", {"VLLM_API_KEY": "b"}, "b"),
        ("env VLLM_API_KEY=c vllm serve M", {"VLLM_API_KEY": "b"}, "c"),
        ("vllm serve M", {"VLLM_API_KEY": ""}, None),
        ("vllm serve M --api-key ''", {"VLLM_API_KEY": "b"}, None),
        ("vllm serve M --config c.yaml", {}, "from-file"),
        ("sglang serve --model M --api-key a --admin-api-key z", {"VLLM_API_KEY": "b"}, "a"),
        ("sglang serve --model M --admin-api-key z", {}, None),
        ("my-server --api-key a", {"VLLM_API_KEY": "b"}, None),
    ],
)
def test_the_key_is_known_and_not_shown(line: str, env: Mapping[str, str], key: str | None) -> None:
    found = need(line, env, {"c.yaml": "api-key: from-file"})
    assert found.key == key
    assert "key=" not in repr(found)


@pytest.mark.parametrize(
    ("line", "mutual"),
    [
        ("vllm serve M --ssl-cert-reqs 2", True),
        ("vllm serve M --ssl-cert-reqs 1", False),
        ("vllm serve M --ssl-certfile c --ssl-keyfile k", False),
    ],
)
def test_whether_clients_need_a_certificate(line: str, mutual: bool) -> None:
    assert need(line).mutual_tls == mutual


SGLANG_TLS = "sglang serve --model M --ssl-certfile c --ssl-keyfile k"


@pytest.mark.parametrize(
    ("line", "part", "scheme", "doors"),
    [
        ("vllm serve M", None, "http", [8000]),
        ("vllm serve M --headless -dp 2 -dpl 1 -dpr 1", "headless", "http", []),
        ("vllm serve M --headless -n 2 -r 1", "headless workers", "http", []),
        ("vllm serve M -n 2 -r 1", None, "http", [8000]),
        ("vllm serve M -dp 4 -dpl 2 -dpm", None, "http", [8000, 8001, 9256]),
        ("vllm serve M -dp 4 -dpn 1 --port 7", None, "http", [7]),
        ("vllm serve M --grpc", None, "http", [8000]),
        (SGLANG_TLS, None, "https", [30000]),
        (f"{SGLANG_TLS} --nnodes 2 --node-rank 0", None, "https", [30000]),
        (f"{SGLANG_TLS} --nnodes 2 --node-rank 1", "follower", "http", [30000]),
    ],
)
def test_what_a_launch_is_of_a_server(line: str, part: str | None, scheme: str, doors: list[int]) -> None:
    found = need(line)
    assert (found.part, found.scheme, [port.number for port in found.doors]) == (part, scheme, doors)


def test_a_part_says_that_it_is_up_in_its_own_way() -> None:
    vllm, sglang = KNOWN["vllm"], KNOWN["sglang"]
    assert vllm.in_part(None) is vllm
    told = "init engine (profile, create kv cache, warmup model) took 3.21 s"
    assert not any(line.search(told) for line in vllm.ready.lines)
    assert any(line.search(told) for line in vllm.in_part("headless").ready.lines)
    follower = sglang.in_part("follower").ready
    assert (follower.lines, follower.http, follower.models) == ((), "/health", None)


def test_a_word_means_nothing_if_the_profile_was_asked_for_against_the_form() -> None:
    def served(line: str) -> tuple[str, ...]:
        asked = match.match(shlex.split(line), KNOWN).with_profile(KNOWN, "vllm")
        return derive(asked, {}, read_text=str).served_names

    assert served("python start.py M --port 1") == ()
    assert served("python start.py --served-model-name m") == ("m",)
    assert served("vllm serve M") == ("M",)


@pytest.mark.parametrize(
    ("words", "drain_s"), [("", 0.0), (" --shutdown-timeout 60", 60.0), (" --shutdown-timeout x", 0.0)]
)
def test_whoever_lets_requests_finish_gets_the_time_for_it(words: str, drain_s: float) -> None:
    planned = plan.make(f"vllm serve M{words}".split(), {}, plan.Options())
    assert planned.need.drain_s == drain_s
    assert planned.deadlines.grace_s == planned.profile.grace_s + drain_s
    assert plan.make(f"vllm serve M{words}".split(), {}, plan.Options(grace_s=3.0)).deadlines.grace_s == 3.0
