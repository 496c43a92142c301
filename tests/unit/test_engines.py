"""Which engine wrote a log, guessed from its lines, and whether its server was up."""

from __future__ import annotations

import pytest

from supervise.diagnosis.engines import ENGINES, EngineGuess, Startup
from supervise.diagnosis.prefixes import parse
from supervise.profiles.load import load_all

VLLM = (
    "INFO 11-30 05:00:00 api_server.py:219] vLLM API server version 0.6.3",
    "INFO 11-30 05:00:01 [core.py:61] Initializing a V1 LLM engine (v0.8.2) with config: model='/models/tiny'",
    "(APIServer pid=7) INFO 11-30 05:00:00 [api_utils.py:286] non-default args: {'model_tag': '/models/tiny'}",
    "(VllmWorkerProcess pid=70) ERROR 11-30 05:00:00 multiproc_worker_utils.py:231] Exception in worker",
    "vllm: error: unrecognized arguments: --tp",
)
SGLANG = (
    "[2026-11-30 05:00:00] server_args=ServerArgs(model_path='/models/tiny', port=30000)",
    "[2026-11-30 05:00:10 TP0] Init torch distributed begin.",
    '  File "/opt/sglang/python/sglang/srt/managers/scheduler.py", line 3, in run_scheduler_process',
)
LLAMA_CPP = ("llama_model_load: error loading model: tensor is missing", "ggml_cuda_init: found 1 CUDA devices:")


def guessed(*texts: str) -> str:
    guess = EngineGuess()
    for number, text in enumerate(texts, 1):
        guess.feed(parse(text, number))
    return guess.engine


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        *(("vllm", text) for text in VLLM),
        *(("sglang", text) for text in SGLANG),
        *(("llama.cpp", text) for text in LLAMA_CPP),
    ],
)
def test_one_line_is_enough(engine: str, text: str) -> None:
    assert guessed("hello", text) == engine


def test_what_nobody_gives_away_is_generic() -> None:
    assert guessed("listening on 8080", "bye") == "generic"
    assert guessed() == "generic"
    assert guessed("hello") in ENGINES


def test_sglang_that_imports_vllm_is_sglang() -> None:
    imports = ['  File "/opt/site-packages/vllm/distributed/parallel_state.py", line 3, in <module>'] * 3
    assert guessed("INFO 11-30 05:00:00 [__init__.py:190] VLLM_USE_V1 is not set", *imports, SGLANG[0]) == "sglang"


def test_a_guess_that_is_certain_stays() -> None:
    assert guessed(*VLLM, *SGLANG, *SGLANG, *SGLANG, *SGLANG) == "vllm"


def test_what_somebody_said_is_not_guessed() -> None:
    guess = EngineGuess("sglang")
    guess.feed(parse(VLLM[0], 1))
    assert (guess.engine, guess.certain) == ("sglang", True)


def startup(*texts: str, engine: str | None = None) -> Startup:
    guess = EngineGuess(engine)
    followed = Startup(load_all(), guess)
    for number, text in enumerate(texts, 1):
        line = parse(text, number)
        guess.feed(line)
        followed.feed(line)
    return followed


UVICORN = "INFO:     Application startup complete."


def test_uvicorn_is_not_ready_for_sglang_and_is_for_vllm() -> None:
    assert not startup(SGLANG[0], UVICORN).ready
    assert startup(SGLANG[0], UVICORN, "[2026-11-30 05:02:00] The server is fired up and ready to roll!").ready
    assert startup(VLLM[0], UVICORN).ready
    assert startup(UVICORN).ready


def test_phases_of_lines_before_the_guess_count() -> None:
    followed = startup("[2026-11-30 05:00:12 TP0] Load weight begin. avail mem=78.40 GB", SGLANG[0])
    assert followed.phase == "weights"


def test_an_engine_without_a_profile_has_the_phases_of_none() -> None:
    assert startup(*LLAMA_CPP).phase is None


def test_a_log_without_its_beginning_shows_a_server_that_is_up() -> None:
    stats = "Engine 000: Avg prompt throughput: 3.0 tokens/s, Avg generation throughput: 4.0 tokens/s"
    assert startup(f"(APIServer pid=7) INFO 11-30 05:00:00 [loggers.py:1] {stats}").ready
    assert not startup(f"[2026-11-30 05:00:00 TP0] {stats}", engine="sglang").ready
