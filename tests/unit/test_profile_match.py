"""Which engine a command line starts, and what is left of it without its wrappers."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.profiles import load, match
from supervise.profiles.errors import ProfileError

KNOWN = load.load_all()

STARTS = [
    ("vllm serve M", "vllm", "M"),
    ("/x/bin/vllm serve M --port 1", "vllm", "M --port 1"),
    ("./vllm serve", "vllm", ""),
    ("vllm-rs serve M", "vllm", "M"),
    ("python /x/bin/vllm serve M", "vllm", "M"),
    ("python3.11 -u /x/bin/vllm serve M", "vllm", "M"),
    ("python3 -m vllm.entrypoints.openai.api_server --model M", "vllm", "--model M"),
    ("/opt/v/bin/python3.12 -u -m vllm.entrypoints.openai.api_server", "vllm", ""),
    ("python -um vllm.entrypoints.openai.api_server a", "vllm", "a"),
    ("python -uBmvllm.entrypoints.openai.api_server a", "vllm", "a"),
    ("python -W ignore -X dev -m vllm.entrypoints.cli.main serve M", "vllm", "M"),
    ("python -Wignore -Xdev -m vllm.entrypoints.cli.main serve M", "vllm", "M"),
    ("python --check-hash-based-pycs always -m vllm serve M", "vllm", "M"),
    ("python3.13t -m vllm serve M", "vllm", "M"),
    ("python -- /x/vllm serve M", "vllm", "M"),
    ("sglang serve --model-path M", "sglang", "--model-path M"),
    ("python -m sglang.launch_server --model-path M", "sglang", "--model-path M"),
    ("python -m sglang.cli.main serve", "sglang", ""),
    ("vllm bench serve --model M", "generic", "bench serve --model M"),
    ("vllm", "generic", ""),
    ("vllm chat", "generic", "chat"),
    ("vllm --help serve", "generic", "--help serve"),
    ("sglang generate", "generic", "generate"),
    ("python bench.py --backend vllm serve", "generic", "bench.py --backend vllm serve"),
    ("python -c vllm serve", "generic", "-c vllm serve"),
    ("python -m vllm.entrypoints.cli.main bench serve", "generic", "-m vllm.entrypoints.cli.main bench serve"),
    ("python -m vllm", "generic", "-m vllm"),
    ("python", "generic", ""),
    ("python -m", "generic", "-m"),
    ("python --", "generic", "--"),
    ("pythonic -m sglang.launch_server", "generic", "-m sglang.launch_server"),
    ("vim vllm.md", "generic", "vllm.md"),
    ("echo vllm serve", "generic", "vllm serve"),
    ("sh -c 'vllm serve M'", "generic", "-c 'vllm serve M'"),
    ("bash -c 'exec vllm serve M'", "generic", "-c 'exec vllm serve M'"),
    ("my-vllm serve", "generic", "serve"),
    ("VLLM serve", "generic", "serve"),
    ("./run-sglang.launch_server", "generic", ""),
]


@pytest.mark.parametrize(("line", "profile", "arguments"), STARTS, ids=[line for line, *_ in STARTS])
def test_an_engine_is_told_by_the_structure_of_its_words(line: str, profile: str, arguments: str) -> None:
    found = match.match(shlex.split(line), KNOWN)

    assert (found.profile.name, list(found.arguments)) == (profile, shlex.split(arguments))
    assert found.program == found.argv == tuple(shlex.split(line))


WRAPPERS = [
    "env",
    "env A=b C=",
    "/usr/bin/env -u X --unset Y --unset=Z A=b",
    "env -C /tmp --chdir=/tmp -v",
    "env -i A=b",
    "env - A=b",
    "env -- A=b",
    "env -S 'A=b nice -n 3'",
    "numactl -N 0 -m 0",
    "numactl --cpunodebind 0 --membind=0 --localalloc",
    "numactl -l -- ",
    "nice",
    "nice -n 5",
    "nice -5",
    "nice --adjustment=5",
    "ionice -c2 -n7",
    "ionice -c 2 -n 7 -t",
    "nohup",
    "setsid -w",
    "setsid --fork --wait",
    "stdbuf -oL -e L",
    "stdbuf --output=L",
    "taskset -c 0-3",
    "taskset --cpu-list 0-3",
    "taskset 0xf",
    "chrt -r 10",
    "chrt --fifo 10",
    "chrt -D 1 10",
    "timeout 60",
    "timeout -k 5 -s TERM 60",
    "timeout --kill-after=5 --foreground 60",
    "time -p",
    "time -f %e -o /tmp/t",
    "setpriv --pdeathsig TERM --no-new-privs",
    "prlimit --nofile=1024 --memlock=-1",
    "dumb-init -c --",
    "tini -s -g --",
    "tini -p SIGTERM",
    "conda run -n engines --no-capture-output",
    "uv run",
    "uv run --with vllm --python 3.12",
    "uv --directory /x run --extra gpu --",
    "uvx --from vllm==1",
]
CHAINS = st.lists(st.sampled_from(WRAPPERS), max_size=4).map(
    lambda some: [w for each in some for w in shlex.split(each)]
)
ENGINES = st.sampled_from(
    [
        "vllm serve M --port 8001",
        "python -u -m vllm.entrypoints.openai.api_server",
        "sglang serve --model-path M",
        "python -m sglang.launch_server",
        "my-server --port 1",
    ]
).map(shlex.split)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_is_taken_off(wrapper: str) -> None:
    found = match.match([*shlex.split(wrapper), "vllm", "serve", "M"], KNOWN)

    assert (found.profile.name, found.program) == ("vllm", ("vllm", "serve", "M"))


@given(CHAINS, ENGINES)
def test_wrapping_changes_neither_profile_nor_program(chain: list[str], engine: list[str]) -> None:
    bare, wrapped = match.match(engine, KNOWN), match.match([*chain, *engine], KNOWN)

    assert (wrapped.profile, wrapped.program, wrapped.arguments) == (bare.profile, bare.program, bare.arguments)
    assert wrapped.argv == (*chain, *engine)


@pytest.mark.parametrize(
    "line",
    [
        "taskset -p 1 vllm serve",
        "chrt -p 1 vllm serve",
        "ionice -p 1 vllm serve",
        "numactl --hardware",
        "uv pip install vllm serve",
        "conda install vllm serve",
        "uv run -m vllm serve",
        "env",
        "env A=b",
        "nice -n 5",
        "timeout 60",
        "nohup",
    ],
)
def test_a_wrapper_that_runs_nothing_we_know_of_stays_what_it_is(line: str) -> None:
    found = match.match(line.split(), KNOWN)

    assert (found.profile.name, found.program) == ("generic", tuple(line.split()))


@pytest.mark.parametrize(
    ("line", "env", "cleared"),
    [
        ("env A=b vllm serve", {"A": "b"}, False),
        ("env -u A vllm serve", {"A": None}, False),
        ("env -uA B=c=d vllm serve", {"A": None, "B": "c=d"}, False),
        ("env --unset=A A=1 vllm serve", {"A": "1"}, False),
        ("env -i A=1 vllm serve", {"A": "1"}, True),
        ("env A=1 env -i B=2 vllm serve", {"B": "2"}, True),
        ("env -iu A B=2 vllm serve", {"A": None, "B": "2"}, True),
        ("env A=1 nice env A=2 vllm serve", {"A": "2"}, False),
        ("env '-SA=1 B=2' vllm serve", {"A": "1", "B": "2"}, False),
        ("nice A=1 vllm serve", {}, False),
        ("vllm serve A=1", {}, False),
    ],
)
def test_what_env_does_to_the_environment_is_kept(line: str, env: dict[str, str | None], cleared: bool) -> None:
    found = match.match(shlex.split(line), KNOWN)

    assert (found.env, found.cleared) == (env, cleared)


def test_wrappers_without_end_come_to_an_end() -> None:
    assert match.match(["nice"] * 1000, KNOWN).profile.name == "generic"
    assert match.match([], KNOWN).program == ()


def test_the_user_may_choose_the_profile() -> None:
    found = match.match(["/opt/serve.sh", "--port", "1"], KNOWN).with_profile(KNOWN, "vllm")

    assert (found.profile.name, found.arguments) == ("vllm", ("--port", "1"))


def test_choosing_the_profile_that_matches_anyway_changes_nothing() -> None:
    found = match.match(["vllm", "serve", "M"], KNOWN)

    assert found.with_profile(KNOWN, "vllm") == found


def test_a_profile_that_there_is_not_is_refused() -> None:
    with pytest.raises(ProfileError) as refused:
        match.match(["vllm", "serve"], KNOWN).with_profile(KNOWN, "tgi")

    assert str(refused.value) == "--profile: there is no profile 'tgi'; allowed: generic, sglang, vllm"
