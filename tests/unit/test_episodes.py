"""Several attempts in one log: told apart where there are several, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervise.diagnosis.episodes import LITERALS, Episodes
from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.whole import UNKNOWN_END, Explained, explain
from supervise.model.diagnosis import End, FailureClass, Line
from supervise.profiles.load import load_all
from supervise.profiles.signatures import available_sets, load_signatures


def vllm(pid: int = 7, at: str = "05:00:00", name: str = "APIServer") -> list[str]:
    prefix, engine = f"({name} pid={pid}) INFO 11-30 {at} ", f"(EngineCore pid={pid + 10}) INFO 11-30 {at} "
    return [
        "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
        f"{prefix}[api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0",
        f"{prefix}[api_utils.py:347]   █▄█▀ █     █     █     █  model   /models/tiny",
        f"{prefix}[api_utils.py:286] non-default args: {{'model_tag': '/models/tiny'}}",
        f"{prefix}[model.py:733] Resolved architecture: LlamaForCausalLM",
        f"{engine}[core.py:133] Initializing a V1 LLM engine (v0.32.0) with config:",
        f"{engine}[gpu_model_runner.py:2338] Starting to load model /models/tiny...",
    ]


def dying(pid: int = 7, cause: str = "ValueError: No available memory for the cache blocks.") -> list[str]:
    prefix = f"(EngineCore pid={pid + 10}) ERROR 11-30 05:00:30 [core.py:1510] "
    return [
        *(
            prefix + text
            for text in (
                "EngineCore failed to start.",
                "Traceback (most recent call last):",
                '  File "/opt/vllm/vllm/v1/engine/core.py", line 700, in run',
                "    go()",
                cause,
            )
        ),
        f"(APIServer pid={pid}) Traceback (most recent call last):",
        f'(APIServer pid={pid})   File "/opt/vllm/vllm/v1/engine/utils.py", line 9, in wait',
        f"(APIServer pid={pid})     raise RuntimeError(",
        f"(APIServer pid={pid}) RuntimeError: Engine core initialization failed. See root cause above. {{}}",
    ]


OLD_VLLM = [
    "INFO 11-30 05:00:00 api_server.py:219] vLLM API server version 0.6.3",
    "INFO 11-30 05:00:00 api_server.py:220] args: Namespace(model='/models/tiny')",
    "INFO 11-30 05:00:03 llm_engine.py:237] Initializing an LLM engine (v0.6.3) with config: model='/models/tiny'",
    "INFO 11-30 05:00:09 model_runner.py:1056] Starting to load model /models/tiny...",
]
SGLANG = [
    "[2026-11-30 05:00:00] server_args=ServerArgs(model_path='/models/tiny', port=30000)",
    "[2026-11-30 05:00:10 TP0] Init torch distributed begin.",
    "[2026-11-30 05:00:10 TP1] Init torch distributed begin.",
    "[2026-11-30 05:00:12 TP0] Load weight begin. avail mem=78.40 GB",
]


def later(log: list[str], minutes: int = 1) -> list[str]:
    return [line.replace("05:00:", f"05:0{minutes}:") for line in log]


USAGE = ["usage: vllm serve [model_tag] [options]", "vllm serve: error: unrecognized arguments: --no-such-flag"]
LLAMA_CPP = ["build: 4567 (abcdef0) with cc for x86_64-linux-gnu", "one", "two", "three", "four"]
UP = ["INFO:     Application startup complete."]


def beginnings(lines: list[str]) -> list[int]:
    episodes = Episodes()
    return [number for number, text in enumerate(lines, 1) if episodes.feed(parse(text, number))]


@pytest.mark.parametrize(
    ("attempts", "log"),
    [
        (1, vllm() + dying()),
        (3, (vllm() + dying()) * 3),
        (2, vllm() + dying() + vllm(pid=90) + dying(pid=90)),
        # Killed without a word, in the middle of loading.
        (2, vllm() + vllm(pid=90)),
        (2, vllm() + UP + vllm(at="06:00:00")),
        (2, OLD_VLLM + later(OLD_VLLM)),
        (3, SGLANG + later(SGLANG) + later(SGLANG, 2)),
        (3, USAGE * 3),
        (2, USAGE + vllm() + dying()),
        (2, LLAMA_CPP * 2),
        (2, ["+ vllm serve /models/tiny --port 8000", *vllm(), *dying(), "+ vllm serve /models/tiny", *vllm(pid=90)]),
        (2, [*vllm(), "Nov 30 05:00:00 host systemd[1]: vllm.service: Main process exited, code=killed, status=9/KILL",
             "Nov 30 05:00:05 host systemd[1]: Started vllm.service.", "INFO hello"]),
    ],
)  # fmt: skip
def test_attempts_are_told_apart(attempts: int, log: list[str]) -> None:
    assert len(beginnings(log)) + 1 == attempts


@pytest.mark.parametrize(
    "log",
    [
        # --api-server-count: every one says the same, in turn.
        vllm() + vllm(pid=20, name="ApiServer_0")[1:5] + vllm(pid=21, name="ApiServer_1")[1:5],
        # Ranks of data parallelism, each with an engine of its own.
        vllm() + [line.replace("EngineCore pid=17", "EngineCore_DP1 pid=18") for line in vllm()[-2:]],
        # A logger that writes everything twice.
        [line for line in vllm() for _ in range(2)],
        [line for line in OLD_VLLM for _ in range(2)],
        # Every process imports the same.
        vllm() + vllm()[:1] * 8 + UP,
        # Somebody's prompt, and somebody's compiler.
        vllm() + UP + ["(APIServer pid=7) INFO 11-30 06:00:00 [logger.py:41] Received request: prompt: 'server_args='"],
        [*vllm(), "model.cu: error: expected a ;", *vllm()[-2:-1]],
        ["hello"] * 40,
        [],
    ],
)
def test_one_attempt_is_not_torn(log: list[str]) -> None:
    assert beginnings(log) == []


def test_a_line_tells_another_time() -> None:
    """The same process of the same container, at once and half a minute later."""

    def again(first: str, second: str) -> bool:
        episodes = Episodes()
        line = parse(SGLANG[0], 1)
        episodes.feed(replace(line, time=first))
        return episodes.feed(replace(line, number=90, time=second))

    assert again("2026-11-30 05:00:00", "2026-11-30 05:00:30")
    assert again("11-30 23:59:59", "12-01 00:00:30")
    assert not again("2026-11-30 05:00:00", "2026-11-30 05:00:02")


def test_what_episodes_needs_is_told_to_the_scanner() -> None:
    """Of a log with nothing but such lines every attempt is found; of one without them none."""
    log = [text for text in (vllm() + dying()) * 3 if any(literal in text for literal in LITERALS)]
    assert len(log) < len(vllm() + dying()) * 3
    assert len(beginnings(log)) == 2


# --- whole logs -------------------------------------------------------------------------------------------------------

OTHER = "OSError: [Errno 28] No space left on device"


def told(lines: list[str], end: End = UNKNOWN_END, engine: str | None = None) -> Explained:
    data = "\n".join(lines).encode()
    return explain([data], end, load_signatures(available_sets()), load_all(), engine)


def test_the_newest_attempt_that_failed_is_named() -> None:
    first, second = vllm() + dying(), vllm(pid=90) + dying(90, OTHER)
    explained = told(first + second + vllm(pid=200) + UP)
    assert (explained.attempts, explained.named.number) == (3, 2)
    assert explained.diagnosis.text == OTHER
    assert explained.diagnosis.line == len(first) + second.index(second[-5]) + 1
    assert [(other.number, other.diagnosis.fatal) for other in explained.others] == [(1, True), (3, False)]


def test_none_failed() -> None:
    explained = told(vllm() + UP + vllm(pid=90) + UP)
    assert (explained.diagnosis.fatal, explained.attempts, explained.named.number) == (False, 2, 2)


def test_the_end_is_that_of_the_last_attempt() -> None:
    explained = told(vllm() + dying() + vllm(pid=90), End(signal=9))
    assert (explained.named.number, explained.diagnosis.text, explained.diagnosis.fatal) == (2, None, True)
    assert "SIGKILL" in explained.diagnosis.meaning


def test_a_loop_that_goes_on_for_days_is_remembered_at_both_ends() -> None:
    explained = told([line for number in range(100) for line in vllm(pid=100 + number) + dying(100 + number)])
    assert (explained.attempts, explained.named.number) == (100, 100)
    assert [other.number for other in explained.others] == [*range(1, 17), *range(85, 100)]


@pytest.mark.parametrize("data", ["", "\n\n", "  \r\n\t\n"])
def test_nothing_at_all(data: str) -> None:
    explained = told([data])
    assert (explained.blank, explained.diagnosis.fatal, explained.engine) == (True, False, "generic")


def test_cuts_make_no_difference() -> None:
    data = "\n".join(vllm() + dying()).encode()
    arguments = (UNKNOWN_END, load_signatures(available_sets()), load_all())
    whole = explain([data], *arguments)
    assert explain((data[at : at + 7] for at in range(0, len(data), 7)), *arguments) == whole
    assert whole.diagnosis.failure is FailureClass.DETERMINISTIC


def test_a_named_engine_is_believed() -> None:
    assert told(vllm() + dying(), engine="sglang").engine == "sglang"


def test_a_line_of_any_kind_is_taken() -> None:
    """At once, too: no pattern tries all the ways to split it."""
    episodes = Episodes()
    assert not episodes.feed(parse("+ " + "/" * 5000 + "a=b " * 2000 + "+ ", 3))
    assert not episodes.feed(Line(1, "", "", time="25:61:61"))
    assert not episodes.feed(parse("█" * 5000, 2))


def test_a_server_that_tells_its_usage_has_not_begun_anew() -> None:
    quoted = "RuntimeError: Engine core initialization failed. See root cause above."
    usage = "INFO 11-30 05:00:00 [loggers.py:1] Engine 000: GPU KV cache usage: 1.0%"
    assert told([*vllm(), quoted, usage]).attempts == 1
    assert told([*vllm(), quoted, *USAGE]).attempts == 2
