"""Tells where in a log a new attempt begins: a restart loop writes many of them into one file."""

from __future__ import annotations

import re

from supervise.model.diagnosis import Line

# What a launch prints first, in this order; a later stage belongs to the same attempt as an earlier one. The
# `vLLM API server version` of 0.6 became the logo with `version` in 0.14; `args:` became `non-default args:` in 0.9.
_SHELL, _VERSION, _ARGUMENTS, _ENGINE = 1, 2, 3, 4
_BANNERS: tuple[tuple[str, int, re.Pattern[str]], ...] = (
    (
        "+ ",
        _SHELL,
        re.compile(
            r"^\++ (?:exec |\w+=\S* )*(?:\S*/)?(?:(?:vllm|sglang) serve|python\S* -m (?:vllm|sglang)\.|llama-server)"
        ),
    ),
    # RunPod.
    ("start container for ", _SHELL, re.compile(r"^start container for \S+: begin$")),
    ("vLLM API server version", _VERSION, re.compile(r"^vLLM API server version \S")),
    ("█", _VERSION, re.compile(r"█\s+version \S")),
    ("args: ", _ARGUMENTS, re.compile(r"^(?:non-default )?args: (?:\{|Namespace\()")),
    ("server_args=", _ARGUMENTS, re.compile(r"^server_args=")),
    ("LLM engine (v", _ENGINE, re.compile(r"^Initializing an? (?:V\d )?LLM engine \(v")),
    ("build: ", _VERSION, re.compile(r"^(?:main: )?build: \d+ \(\w+\) with ")),
    ("main: build = ", _VERSION, re.compile(r"^main: build = \d+")),
)
# What comes before the banner: it begins an attempt only where the one before has ended, because every process of an
# engine prints it anew.
_NOISE = (
    "Automatically detected platform",
    "Triton is installed",
    "Triton not installed",
    "Importing from",
    "No plugins for group",
    "usage: ",
    "systemd[1]: Started ",
    "systemd[1]: Starting ",
)
_ENDED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("Engine core init", re.compile(r"^RuntimeError: Engine core initialization failed\.")),
    ("Finished server process", re.compile(r"^Finished server process \[")),
    ("igquit", re.compile(r"^Received sigquit from a child process")),
    ("SIGQUIT", re.compile(r"^SIGQUIT received\.")),
    (": error: ", re.compile(r"^(?:vllm|sglang|llama-server|[\w-]+\.py)(?: [\w-]+)?: error: ")),
    ("Main process exited", re.compile(r": Main process exited, code=")),
    ("Scheduled restart job", re.compile(r": Scheduled restart job")),
    ("Killed", re.compile(r"(?:^|\s)Killed(?:$|\s+(?:vllm|sglang|python|exec))")),
    ("core dumped", re.compile(r"\b(?:Segmentation fault|Aborted|Bus error|Illegal instruction) +\(core dumped\)")),
)
LITERALS = (*(literal for literal, _, _ in _BANNERS), *(literal for literal, _ in _ENDED), *_NOISE)
"""Every line that `Episodes` has to see holds one of these."""

# The processes of one launch that print the same banner, and loggers that write each line twice, do so at once.
_AT_ONCE_S = 5
_AT_ONCE_LINES = 3
_MOMENT = re.compile(r"(?:(?P<month>\d\d)-(?P<day>\d\d)[ T])?(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)")
_NAMES = 64


class Episodes:
    """Reads the lines of a log in order and says which of them begins another attempt.

    A banner begins one if the attempt at hand has printed it already: the same process again, as another pid, or later
    than processes of one launch would. Different processes that print it in turn are API servers or ranks of one launch
    unless that has ended.
    """

    def __init__(self) -> None:
        self._ended = False
        self._begun: dict[tuple[str | None, int], Line] = {}
        self._stage = 0

    def feed(self, line: Line) -> bool:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            True if a new attempt begins with it. The first attempt has no beginning: it is there.
        """
        if self._ended and any(noise in line.raw for noise in _NOISE):
            return self._begin_noisily(line.text)
        if stage := _stage(line.text):
            return self._on_banner(line, stage)
        self._ended = self._ended or _ends(line)
        return False

    def _begin_noisily(self, text: str) -> bool:
        """Begin with what comes before a banner; without one, what an attempt prints while it dies looks the same.

        A server that tells its `KV cache usage: ` is the one that there was: it had only quoted an end.
        """
        refuses = text.startswith("usage: ")
        if not refuses and (not self._stage or " usage: " in text):
            return False
        self._restart()
        return True

    def _on_banner(self, line: Line, stage: int) -> bool:
        new = self._ended or self._again(line, stage)
        if new:
            self._restart()
        self._stage = max(self._stage, stage)
        if len(self._begun) < _NAMES:
            self._begun[line.process, stage] = line
        return new

    def _again(self, line: Line, stage: int) -> bool:
        """Whether the process that prints a banner has done so in this attempt, and not just now."""
        before = self._begun.get((line.process, stage))
        if before is None and stage < self._stage and all(known != stage for _, known in self._begun):
            # It comes before what this attempt has printed already, as only another attempt's can.
            before = max(self._begun.values(), key=lambda each: each.number)
        if before is None:
            return False
        if line.pid is not None and before.pid is not None and line.pid != before.pid:
            return True
        apart = _seconds_apart(before, line)
        if apart is None:
            return line.number - before.number > _AT_ONCE_LINES
        return apart > (0 if line.pid is not None else _AT_ONCE_S)

    def _restart(self) -> None:
        self._ended, self._stage = False, 0
        self._begun.clear()


def _stage(text: str) -> int:
    return next((stage for literal, stage, pattern in _BANNERS if literal in text and pattern.search(text)), 0)


def _ends(line: Line) -> bool:
    # Who starts the server writes its words behind prefixes of its own: systemd's are in the whole line only.
    return any(literal in line.raw and pattern.search(line.text) for literal, pattern in _ENDED)


def _seconds_apart(before: Line, line: Line) -> int | None:
    first, second = _moment(before), _moment(line)
    return None if first is None or second is None else abs(second - first)


def _moment(line: Line) -> int | None:
    """Seconds since some beginning of all years; None where the line tells no time."""
    found = _MOMENT.search(line.time) if line.time else None
    if found is None:
        return None
    days = int(found["month"] or 0) * 31 + int(found["day"] or 0)
    return ((days * 24 + int(found["hour"])) * 60 + int(found["minute"])) * 60 + int(found["second"])
