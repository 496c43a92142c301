"""Guesses from a log alone which engine wrote it, and follows its start-up as that engine's profile describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from supervise.diagnosis.progress import ProgressTracker
from supervise.model.diagnosis import Line
from supervise.model.profile import Profile, ReadyRule

GENERIC = "generic"
"""The guess where no line gives an engine away."""

_VLLM, _SGLANG, _LLAMA_CPP = "vllm", "sglang", "llama.cpp"
ENGINES = (_VLLM, _SGLANG, _LLAMA_CPP, GENERIC)
"""What a guess can be."""

# FIELD.md D4 and B0. What only the engine itself prints weighs 10; what others print of it as well (SGLang imported
# vLLM until 0.4.9, and both have run models with each other's kernels) weighs 1.
_MARKS: tuple[tuple[str, str, int], ...] = (
    ("vLLM API server version", _VLLM, 10),
    ("non-default args:", _VLLM, 10),
    ("LLM engine (v", _VLLM, 10),
    ("(EngineCore", _VLLM, 10),
    ("(APIServer", _VLLM, 10),
    ("(ApiServer", _VLLM, 10),
    ("(VllmWorker", _VLLM, 10),
    ("(Worker", _VLLM, 5),
    ("RayWorkerWrapper", _VLLM, 5),
    ("Engine core", _VLLM, 5),
    ("vllm/v1/", _VLLM, 5),
    ("vllm/entrypoints/", _VLLM, 5),
    ("vllm: error:", _VLLM, 10),
    ("Avg prompt throughput:", _VLLM, 10),
    ("vllm serve", _VLLM, 5),
    ("VLLM_", _VLLM, 1),
    ("vllm", _VLLM, 1),
    ("server_args=", _SGLANG, 10),
    ("sglang/srt/", _SGLANG, 10),
    ("Init torch distributed begin", _SGLANG, 10),
    ("Load weight begin", _SGLANG, 10),
    ("max_total_num_tokens=", _SGLANG, 10),
    ("Scheduler hit an exception", _SGLANG, 10),
    ("Received sigquit from a child process", _SGLANG, 10),
    ("sglang.launch_server", _SGLANG, 10),
    ("launch_server.py: error:", _SGLANG, 10),
    ("Decode batch", _SGLANG, 5),
    ("fired up and ready to roll", _SGLANG, 10),
    ("sglang", _SGLANG, 2),
    ("llama_model_load", _LLAMA_CPP, 10),
    ("llama_context", _LLAMA_CPP, 10),
    ("llama_init_from_model", _LLAMA_CPP, 10),
    ("llama_new_context", _LLAMA_CPP, 10),
    ("ggml_", _LLAMA_CPP, 5),
    ("print_info: ", _LLAMA_CPP, 3),
    ("srv  ", _LLAMA_CPP, 3),
    ("llama-server", _LLAMA_CPP, 5),
    ("update_slots: ", _LLAMA_CPP, 5),
    ("couldn't bind HTTP server socket", _LLAMA_CPP, 10),
)
_CERTAIN = 30
_LOOKED_AT = 20_000

LITERALS = tuple(mark for mark, _, weight in _MARKS if weight >= 5)
"""Lines with one of these are worth a look by `EngineGuess`."""

# Said only by a server that is up, for a log whose beginning is missing. SGLang answers its own warm-up before.
_SERVES = {
    _VLLM: (("Avg prompt throughput:", "throughput: "), ('"POST /v1/', 'HTTP/1.1" 200')),
    _SGLANG: (("Decode batch",),),
    _LLAMA_CPP: (("update_slots: ",),),
}


# Bars of logs whose beginning is missing, and of programs that have an engine inside.
_PHASES = frozenset(
    {
        "config", "engine", "distributed", "weights", "profile", "compile", "kv cache", "graphs", "server", "warm-up",
        "run",
    }
)  # fmt: skip
_BARS = (
    ("Loading ", "weights"),
    ("Multi-thread loading ", "weights"),
    ("Capturing ", "graphs"),
    ("Processed prompts", "run"),
    ("Adding requests", "run"),
    ("Rendering prompts", "run"),
)


class EngineGuess:
    """Weighs what the lines say until it is certain, or has seen enough.

    Args:
        known: the engine, where somebody said so; nothing is guessed then.
    """

    def __init__(self, known: str | None = None) -> None:
        self._known = known
        self._weights: Counter[str] = Counter()
        self._left = 0 if known else _LOOKED_AT

    @property
    def engine(self) -> str:
        """The best guess so far."""
        if self._known is not None:
            return self._known
        # Of equals the first: `most_common` keeps the order of first sight.
        best = self._weights.most_common(1)
        return best[0][0] if best else GENERIC

    @property
    def certain(self) -> bool:
        """Whether no further line will change it."""
        return self._left <= 0

    def feed(self, line: Line) -> None:
        """Take the next line.

        Args:
            line: any line, in the order of the log.
        """
        if self._left <= 0:
            return
        self._left -= 1
        for mark, engine, weight in _MARKS:
            if mark in line.raw:
                self._weights[engine] += weight
        if self._lead >= _CERTAIN:
            self._left = 0

    @property
    def _lead(self) -> int:
        first, second, *_ = (*(weight for _, weight in self._weights.most_common(2)), 0, 0)
        return first - second


class Startup:
    """Start-up as the guessed engine's profile describes it; follows all of them until the guess is certain.

    Args:
        profiles: the profile of each engine; one that has none is followed as the generic one.
        guess: shared by all attempts of a log.
    """

    def __init__(self, profiles: Mapping[str, Profile], guess: EngineGuess) -> None:
        self._guess = guess
        self._trackers = {
            name: ProgressTracker(profile.phases, profile.percents, _ready(profile, profiles))
            for name, profile in profiles.items()
        }
        self._serving = False

    @property
    def phase(self) -> str | None:
        """The phase that start-up is in; None before the first."""
        return _phase(self._tracker.phase)

    @property
    def ready(self) -> bool:
        """Whether the log has said that the server is up, or shows it at work."""
        return self._serving or self._tracker.ready

    def feed(self, line: Line) -> None:
        """Take the next line.

        Args:
            line: any line, in the order of the log, after the guess has seen it.
        """
        if self._serving:
            return
        if self._guess.certain:
            self._tracker.feed(line)
        else:
            for tracker in self._trackers.values():
                tracker.feed(line)
        self._serving = self._shows_service(line.text)

    def _shows_service(self, text: str) -> bool:
        return any(all(mark in text for mark in marks) for marks in _SERVES.get(self._guess.engine, ()))

    @property
    def _tracker(self) -> ProgressTracker:
        return self._trackers.get(self._guess.engine) or self._trackers[GENERIC]


def _phase(name: str | None) -> str | None:
    """The phase that a progress bar belongs to which was drawn before any phase began; it is called after the bar."""
    if name is None or name in _PHASES:
        return name
    return next((phase for begins, phase in _BARS if name.startswith(begins)), None)


def _ready(profile: Profile, profiles: Mapping[str, Profile]) -> ReadyRule:
    """The profile's ready lines. A program of which nothing is known is ready by any engine's."""
    if profile.ready.lines or profile.name != GENERIC:
        return profile.ready
    return ReadyRule(tuple(line for each in profiles.values() for line in each.ready.lines))
