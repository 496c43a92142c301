"""`supervise try`: one launch, one look at what it serves, one verdict."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from supervise import runner
from supervise.attempts.place import PlaceError, settle
from supervise.attempts.store import Run, Store, StoreError
from supervise.group.boot import boot
from supervise.host.procfs import ForeignProcError
from supervise.host.program import ask
from supervise.lifecycle import Done
from supervise.model.exits import Exit
from supervise.model.sweep import Result
from supervise.model.telling import TellingError
from supervise.model.trial import Course, Trial, Verdict, judge
from supervise.profiles.errors import ProfileError
from supervise.report.console import Console, for_stream
from supervise.report.trial_table import VERSION, trial_as_data
from supervise.runner import Options, TierError, plan
from supervise.runner.holder import living
from supervise.runner.launch import NotExecutableError
from supervise.text import home
from supervise.verbs.output import answering

# What users can bring about before anything is launched: none of it says anything of the server.
_PREVENTED = (NotExecutableError, ProfileError, TellingError, PlaceError, StoreError, TierError, ForeignProcError)

_SHELL, _SYNTAX_S = "/bin/sh", 10.0


class Tried(NamedTuple):
    """What one launch came to; `stopped` is set if somebody stopped it, `broken` if no other launch can do better."""

    result: Result
    stopped: Done | None = None
    broken: bool = False


def tried(command: Sequence[str], options: Options, trial: Trial, *, as_json: bool) -> Done:
    """Launch, try, stop, verify, and say what it came to.

    Args:
        command: the server's command line, unchanged.
        options: of `run`.
        trial: what is asked.
        as_json: one object on standard output.

    Returns:
        0 passed, 1 failed, 125 cannot be judged; the signal to re-raise if somebody stopped it.
    """
    once = launched(command, options, trial)
    if once.stopped is not None:
        return once.stopped
    verdict = Verdict[once.result.verdict.upper()]
    lines().line("verdict", f"{verdict.word}: {once.result.why}")
    lines().exit(verdict.value)
    if as_json:
        answer({"version": VERSION, "exit_status": verdict.value, **trial_as_data(once.result)})
    return Done(verdict.value)


def launched(command: Sequence[str], options: Options, trial: Trial, values: tuple[str, ...] = ()) -> Tried:
    """One attempt, from the slate to the verified end.

    Args:
        command: the server's command line.
        options: of `run`.
        trial: what is asked; its course is left alone, the attempt has one of its own.
        values: what was set for it in a sweep.
    """
    began, course = time.monotonic(), Course()
    options = replace(options, trial=replace(trial, course=course))
    done = broken = None
    try:
        place, console = settle(os.environ), for_stream(plain=options.plain or options.tty)
        if place.note is not None:
            console.line("note", place.note)
        store = Store(place.root)
        done = runner.run(command, options, store, console, boot())
        # One that never got the run's lock tells nobody of its end.
        course.status = int(done.status) if course.status is None else course.status
        if course.status == Exit.SLATE and course.attempt is None and course.refusal is None:
            course.refusal, course.lasting = _held(store.run(_name(command, options))), True
        _look_back(course, command, options, store)
        broken = course.refusal if course.lasting else broken
    except _PREVENTED as error:
        course.refusal = broken = str(error)
    finally:
        die_of_interrupts()
    if course.stopped_by is not None:
        stopped = done if done is not None and done.reraise is not None else _stopped(course.stopped_by)
        return Tried(_result(course, values, began), stopped)
    return Tried(_result(course, values, began), broken=broken is not None or course.status == Exit.INTERNAL)


def lines() -> Console:
    """Where people read what is said between two launches."""
    return for_stream(plain=True)


def answer(said: dict[str, object]) -> None:
    """One JSON object on standard output."""
    with answering():
        sys.stdout.write(json.dumps(said) + "\n")


def die_of_interrupts() -> None:
    """Between two launches nothing is there that Ctrl-C could interrupt, and Python's own handler prints a traceback.

    An event loop leaves that one behind (asyncio.loop.remove_signal_handler).
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _stopped(signum: int) -> Done:
    return Done(128 + signum, reraise=signum)


def _name(command: Sequence[str], options: Options) -> str:
    return options.name or plan.make(command, os.environ, options).need.run


def _held(run: Run) -> str:
    """Why a run's lock could not be had."""
    if supervisor := living(run.read_state(), "supervisor"):
        return f"run {run.name} is live: supervise {supervisor} holds it"
    return f"run {run.name} is live: its lock is held"


def mistake_in(command: str) -> str | None:
    """What is wrong with how a command of the user's is written; None if nothing is, or nobody can tell.

    Args:
        command: for `/bin/sh`, which reads it and runs nothing of it (sh(1), -n).
    """
    try:
        read = ask([_SHELL, "-n", "-c", command], _SYNTAX_S)
    except (OSError, TimeoutError):
        return None
    return (read.complaint.strip().splitlines() or ["it cannot be read"])[0] if read.status else None


def _look_back(course: Course, command: Sequence[str], options: Options, store: Store) -> None:
    """What is written down of its end, and what it came to beside it."""
    if course.attempt is None:
        return
    attempt = store.run(_name(command, options)).attempt(course.attempt)
    outcome = attempt.read("outcome") or {}
    course.end = (outcome.get("cause") or {}).get("end")
    course.unread = _unread(outcome, course.unread)
    tested = judge(course)
    try:
        attempt.write("trial", {"verdict": tested.verdict.name.lower(), "why": tested.why, "ttft_s": tested.ttft_s})
    except OSError as error:
        lines().error(f"trial.json: {error.strerror}")


def _unread(outcome: dict[str, Any], said: str | None) -> str | None:
    """A changed file that nobody has imported, None if there is none: the last look counts, where there was one."""
    found = (outcome.get("effect") or {}).get("files") or {}
    if found.get("took_effect") is not False:
        return None if found.get("took_effect") else said
    path = next((path for path in found.get("unread") or () if isinstance(path, str)), "a file")
    return said or f"{home(path)} was changed, and nobody has imported it"


def _result(course: Course, values: tuple[str, ...], began: float) -> Result:
    tested = judge(course)
    return Result(
        values=values,
        verdict=tested.verdict.name.lower(),
        why=tested.why,
        attempt=course.attempt,
        outcome=course.outcome,
        cause=course.cause,
        failure=course.failure,
        signature=course.signature,
        fingerprint=course.fingerprint,
        advice=course.advice,
        ready_s=course.ready_s,
        ttft_s=tested.ttft_s,
        seconds=time.monotonic() - began,
    )
