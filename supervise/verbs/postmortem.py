"""Gathers what is known of an attempt from the files that it left."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from supervise.attempts.store import Attempt, Run
from supervise.host import signals
from supervise.lifecycle.restart import identity
from supervise.model.diagnosis import Diagnosis
from supervise.model.exits import MEANING
from supervise.model.restart import Identity
from supervise.report.cause import from_data
from supervise.report.changes import changes, package_changes, packages
from supervise.report.postmortem import Left, Moment, PostMortem
from supervise.runner.report import how as leader_ended
from supervise.text import plural, shorten
from supervise.verbs import records

_HOW = {
    "asked": "stopped as it was asked to",
    "died": "by itself",
    "fatal": "its log said that it cannot go on, and it was still there",
    "not-ready": "not ready in time",
    "keeper-lost": "its keeper was killed",
    "not-launched": "it could not be launched",
    "broken": "supervise itself failed",
}
_MOMENTS = {
    "ready": "ready",
    "capturing": "evidence",
    "stopping": "stopping",
    "waiting": "over",
    "done": "over",
}
_OVER = ("waiting", "done")
_EVIDENCE = (
    (re.compile(r"before-stop\.json"), "all processes and GPUs before anything touched them"),
    (re.compile(r"before-kill\.json"), "those that had not obeyed, and the GPUs, before SIGKILL"),
    (re.compile(r"before-stop-stacks-(\d+)\.txt"), "stacks of pid {} before anything touched it"),
    (re.compile(r"before-kill-stacks-(\d+)\.txt"), "stacks of pid {} before SIGKILL"),
)
_OF_PROCESS: dict[str, type | tuple[type, ...]] = {
    "pid": int,
    "title": str,
    "state": str,
    "wchan": str,
    "seconds": (int, float),
    "devices": list,
    "ports": list,
    "uid": int,
}
_NEEDED = ("pid", "title", "state")
_MODEL_FLAGS = ("--model", "--model-path", "--model_path", "-m")


def post_mortem(run: Run, attempt: Attempt, *, live: bool) -> PostMortem:
    """Read all files of an attempt, whatever state they are in.

    Args:
        run: its run.
        attempt: one that is kept.
        live: whether it still runs.

    Returns:
        What is known. What is missing is None or empty, what is damaged is told in the notes.

    Raises:
        ProfileError: a profile or a set of signatures is damaged.
    """
    notes: list[str] = []
    record = records.read(attempt, "attempt", notes)
    outcome = None if live else records.read(attempt, "outcome", notes)
    state = run.read_state() or {}
    ended = None if live else _ended(run, attempt, state)
    if ended and outcome:
        notes.append(f"after it: {ended['why']}, exit {ended['exit_status']}")
    began = records.seconds(record.get("began")) if record else None
    moments = list(until_over(records.moments(run, attempt.number, notes)))
    cause = from_data(outcome.get("cause")) if outcome else records.from_log(attempt, record, notes, live=live)
    failures = run.recent_failures(attempt.number)
    good = _last_good(run, attempt.number)
    if outcome and not os.path.exists(attempt.log):
        notes.append("server.log is missing")
    changed, unrecorded = _changed(attempt, record, good)
    return PostMortem(
        run=run.name,
        attempt=attempt.number,
        live=live,
        engine=records.text(record, "profile"),
        model=records.text(record, "model") or _model(records.words(record, "argv")),
        command=records.words(record, "argv"),
        began=began,
        seconds=lasted(began, moments, live=live),
        outcome=records.text(outcome, "outcome"),
        how=_how(outcome, state, ended, live=live, kept=records.exists(attempt, "outcome")),
        exit_status=outcome.get("exit_status") if outcome else None,
        exit_means=_exit_means(outcome or {}),
        ready_s=records.seconds((outcome or {}).get("ready_s")),
        timeline=tuple(_timeline(began, outcome or {}, moments)),
        cause=cause,
        left=_left(outcome) if outcome else None,
        files=tuple(_files(attempt)),
        good=good.number if good else None,
        changes=changed,
        unrecorded=unrecorded,
        same=_same(cause, failures),
        earlier=bool(failures),
        unnamed=_unnamed(run, attempt.number) if not failures else 0,
        log=attempt.log,
        notes=tuple(notes),
    )


# --- what it says -----------------------------------------------------------------------------------------------------


def _ended(run: Run, attempt: Attempt, state: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the run ended, where it was not by the end of this attempt."""
    latest = run.latest()
    return state.get("ended") if latest is not None and latest.number == attempt.number else None


def _how(
    outcome: Mapping[str, Any] | None,
    state: Mapping[str, Any],
    ended: Mapping[str, Any] | None,
    *,
    live: bool,
    kept: bool,
) -> str:
    if live:
        phase = f" ({state['phase']})" if state.get("state") == "starting" and state.get("phase") else ""
        return f"{state.get('state') or 'state unknown'}{phase}"
    if outcome is None:
        if ended:
            return f"no record of how it ended; {ended['why']}, exit {ended['exit_status']}"
        # Of one that is there and cannot be read nobody was kept from writing it.
        return "no record of how it ended" + ("" if kept else ": its supervise was killed, or could not write")
    cause = str(outcome.get("outcome"))
    status = outcome.get("leader_status")
    if cause == "died" and isinstance(status, int):
        return f"by itself: {leader_ended(status)}"
    return _HOW.get(cause, cause)


def _exit_means(outcome: Mapping[str, Any]) -> str:
    signum = outcome.get("signal")
    if isinstance(signum, int):
        return f"{signals.name(signum)}, the signal that stopped it"
    status = outcome.get("exit_status")
    if not isinstance(status, int):
        return ""
    return MEANING.get(status, "the server's own")


def _timeline(
    began: float | None, outcome: Mapping[str, Any], moments: Iterable[tuple[float, str]]
) -> Iterator[Moment]:
    at_s = 0.0
    phases = outcome.get("phases")
    ready_s = records.seconds(outcome.get("ready_s"))
    for name, took in phases.items() if isinstance(phases, dict) else ():
        if (seconds := records.seconds(took)) is not None:
            # What is written down is rounded, and the sum of it may be later than what came next.
            yield Moment(round(at_s if ready_s is None else min(at_s, ready_s), 3), name, seconds)
            at_s += seconds
    if began is not None:
        for moment, state in moments:
            if state in _MOMENTS:
                yield Moment(round(max(0.0, moment - began), 3), _MOMENTS[state])


def until_over(moments: Iterable[tuple[float, str]]) -> Iterator[tuple[float, str]]:
    """An attempt is over once; how long the next one was waited for after it is not its own time."""
    for moment, state in moments:
        yield moment, state
        if state in _OVER:
            return


def lasted(began: float | None, moments: Sequence[tuple[float, str]], *, live: bool) -> float | None:
    """Seconds from its launch to its end, or until now; None if nobody knows.

    Args:
        began: seconds since the epoch.
        moments: when it entered which state.
        live: whether it still runs.
    """
    if began is None:
        return None
    end = time.time() if live else max((moment for moment, state in moments if state in _OVER), default=None)
    return None if end is None else round(max(0.0, end - began), 3)


def _left(outcome: Mapping[str, Any]) -> Left:
    """The sentences of the verified end; see runner/report.py."""
    said = outcome.get("survivors") or ()
    survivors = tuple(each for each in said if isinstance(each, dict) and _is_process(each))
    left = records.words(outcome, "left")
    processes = plural(max(len(said), len(survivors)), "process")
    sentences = (
        f"{processes} left",
        *records.words(outcome, "checks"),
        f"{plural(len(left), 'leftover')} in /dev/shm and /tmp",
        *left,
    )
    return Left(sentences, outcome.get("clean") is True, survivors)


def _is_process(said: Mapping[str, Any]) -> bool:
    """Whether it can be told of: see Console.survivors."""
    return all(
        isinstance(said.get(name), kinds) or (said.get(name) is None and name not in _NEEDED)
        for name, kinds in _OF_PROCESS.items()
    )


def _files(attempt: Attempt) -> Iterator[tuple[str, str]]:
    directory = os.path.join(attempt.path, "evidence")
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        names = []
    for name in names:
        found = next(((match, what) for pattern, what in _EVIDENCE if (match := pattern.fullmatch(name))), None)
        yield os.path.join(directory, name), found[1].format(*found[0].groups()) if found else "evidence"
    if os.path.exists(slate := os.path.join(attempt.path, "slate.json")):
        yield slate, "the clean slate that it began with: what was found, done, and checked"


# --- next to other attempts -------------------------------------------------------------------------------------------


def _last_good(run: Run, before: int) -> Attempt | None:
    """The last attempt that had been ready."""
    for number in reversed(run.numbers()):
        if number < before:
            attempt = run.attempt(number)
            if records.seconds((attempt.read("outcome") or {}).get("ready_s")) is not None:
                return attempt
    return None


def _changed(
    attempt: Attempt, record: Mapping[str, Any] | None, good: Attempt | None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """What differs since then, None if there is nothing to compare; and what was not recorded of both."""
    before = good.read("attempt") if good else None
    if good is None or before is None or record is None:
        return None, ()
    slates = good.read("slate") or {}, attempt.read("slate") or {}
    unrecorded = () if all(map(packages, slates)) else ("packages",)
    return (*changes(before, record), *package_changes(*slates)), unrecorded


def _unnamed(run: Run, before: int) -> int:
    """How many attempts before that one failed, whatever of."""
    return sum(
        (run.attempt(number).read("outcome") or {}).get("failed") is True for number in run.numbers() if number < before
    )


def _same(cause: Diagnosis | None, failures: Iterable[tuple[int, Identity]]) -> tuple[int, ...]:
    mine = identity(cause)
    return tuple(number for number, failed in failures if mine.same_as(failed))


def _model(argv: tuple[str, ...]) -> str | None:
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in _MODEL_FLAGS and not (name == "-m" and "python" in os.path.basename(argv[index - 1])):
            return value if equals else next(iter(argv[index + 1 :]), None)
    for word, following in pairwise(argv):
        if word == "serve" and not following.startswith("-"):
            return shorten(following, 200)
    return None
