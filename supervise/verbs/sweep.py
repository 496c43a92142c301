"""A sweep: one launch for each value, a table at the end, and a state on disk with which the same command goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from statistics import mean

from supervise.attempts import sweeps
from supervise.attempts.place import settle
from supervise.attempts.store import Store
from supervise.attempts.sweeps import State
from supervise.lifecycle import Done
from supervise.model.exits import Exit
from supervise.model.sweep import Axis, Point, Result, conclusion, pointless, points, told
from supervise.model.trial import PASSING, Trial
from supervise.profiles.substitution import aliases, substituted
from supervise.report.trial_table import WORDS, summary, sweep_as_data, table
from supervise.runner import Options, plan
from supervise.text import home, redact, roughly
from supervise.verbs.secrets import Secrets
from supervise.verbs.trying import Tried, answer, die_of_interrupts, launched, lines


class Sweep:
    """One sweep of one run.

    Args:
        command: the server's command line, unchanged.
        options: of `run`.
        trial: what is asked of each.
        swept: what is varied.
        until_first: whether the first success is enough.

    Raises:
        SweepError: a value cannot be put into the command line.
        ProfileError: a profile is damaged.
        PlaceError: there is no place for its state.
    """

    def __init__(
        self, command: Sequence[str], options: Options, trial: Trial, swept: Sequence[Axis], *, until_first: bool
    ) -> None:
        planned = plan.make(command, os.environ, options)
        self._options = replace(options, name=planned.need.run)
        self._names = [aliases(axis, planned.profile) for axis in swept]
        self._trial = replace(trial, typed=tuple(command))
        self._swept, self._until_first = swept, until_first
        self._points = points(swept)
        # All of them before the first launch: a mistake in the last value must not be found out after hours.
        self._launches = {point: substituted(command, swept, point, planned.profiles) for point in self._points}
        self._secrets = Secrets(swept, planned.need.run)
        self._run = Store(settle(os.environ).root).run(planned.need.run)
        self._key = _key(command, swept, trial, planned.need.run)
        self._results: list[Result] = []
        self._unwritten = False

    def run(self, *, fresh: bool, as_json: bool) -> Done:
        """Try what has not been tried.

        Args:
            fresh: whether it begins anew although it was cut short.
            as_json: one object on standard output at the end.

        Returns:
            0 if one has passed, 1 if none has, 125 if nothing could be judged; the signal to re-raise if it was
            stopped.

        Raises:
            StoreError: there is no place for its state.
            OSError: it cannot be told whether another one is under way.
        """
        self._run.create()
        with sweeps.alone(self._run) as alone:
            if not alone:
                lines().error(f"another sweep of run {self._run.name} is under way; use --name OTHER beside it")
                return Done(Exit.INTERNAL)
            if not fresh:
                self._remember()
            # Before the first launch: that it cannot be kept is better known before hours have been spent.
            self._keep()
            die_of_interrupts()
            broken = False
            for point in self._left():
                once = self._try(point)
                if once.stopped is not None:
                    return self._stopped(once.stopped)
                self._note(once.result)
                if broken := once.broken:
                    self._say("it ends here: whatever else is tried, nothing can be launched")
                    break
            self._keep(finished=not broken)
        return self._conclude(as_json=as_json, broken=broken)

    def _stopped(self, done: Done) -> Done:
        more = "" if self._unwritten else ", the same command goes on"
        self._say(f"stopped; {len(self._results)} of {len(self._points)} done{more}")
        return done

    def _keep(self, *, finished: bool = False) -> None:
        """Write down what is known; where that cannot be, it is said once, and the sweep goes on without."""
        if self._unwritten:
            return
        try:
            sweeps.write(self._run, State(self._key, tuple(map(self._secrets.kept, self._results)), finished=finished))
        except OSError as error:
            self._unwritten = True
            where = home(os.path.join(self._run.path, sweeps.NAME))
            lines().error(f"{where} cannot be written: {error.strerror}; if it is cut short, it begins anew")

    def _remember(self) -> None:
        """Go on where the same sweep was cut short."""
        before = sweeps.read(self._run)
        if before is None and sweeps.exists(self._run):
            self._say(f"{home(os.path.join(self._run.path, sweeps.NAME))} is damaged: it begins anew")
        if before is None or before.finished:
            return
        if before.key != self._key:
            self._say(f"another sweep of this run was cut short after {len(before.results)}; it is given up")
            return
        known = self._secrets.known(before.results, self._points)
        self._results = [result for result in known if not _passing(result)]
        if self._results:
            done = f"{len(self._results)} of {len(self._points)} done"
            self._say(f"goes on where it was cut short, {done}; --fresh begins anew")

    def _left(self) -> Iterator[Point]:
        """What is still to be tried; what need not be is noted."""
        done = {result.values for result in self._results}
        for point in self._points:
            if point in done:
                continue
            if self._until_first and any(result.verdict == "pass" for result in self._results):
                return
            if (why := pointless(point, self._results, self._names)) is not None:
                self._say(f"abandoned: {self._told(point)}: {why}")
                self._note(Result(point, "abandoned", why))
                continue
            yield point

    def _try(self, point: Point) -> Tried:
        number = len(self._results) + 1
        self._say(f"{number} of {len(self._points)}: {self._told(point)}{self._eta()}")
        command, env, settings = self._launches[point]
        with _environment(env):
            return launched(command, self._options, replace(self._trial, settings=settings), point)

    def _told(self, point: Point) -> str:
        return told(self._swept, self._secrets.shown(point))

    def _eta(self) -> str:
        """How long what is left should take: as long as those before it did on average."""
        took = [result.seconds for result in self._results if result.verdict != "abandoned"]
        if not took:
            return ""
        left = mean(took) * (len(self._points) - len(self._results))
        return f"; {'at most ' if self._until_first else ''}about {roughly(left)} left"

    def _note(self, result: Result) -> None:
        result = self._secrets.without(result)
        self._results.append(result)
        self._keep()
        if result.verdict != "abandoned":
            self._say(f"{WORDS[result.verdict]}: {self._told(result.values)}: {result.why}")

    def _conclude(self, *, as_json: bool, broken: bool) -> Done:
        known = sorted(self._results, key=lambda result: self._points.index(result.values))
        results = [result._replace(values=self._secrets.shown(result.values)) for result in known]
        for number, line in enumerate(table(self._swept, results)):
            lines().line("sweep" if not number else "", line)
        lines().line("sweep", summary(self._swept, results))
        status = conclusion(results, whole=not broken)
        lines().exit(status)
        if as_json:
            answer(sweep_as_data(self._run.name, self._swept, results, status))
        return Done(status)

    @staticmethod
    def _say(text: str) -> None:
        lines().line("sweep", text)


def _key(command: Sequence[str], swept: Sequence[Axis], trial: Trial, run: str) -> str:
    """What tells this sweep from any other: what is launched, what is varied, what is asked. No secret is in it."""
    expected = trial.expected
    asked = (trial.command, trial.prompt, trial.max_tokens, expected.text, expected.pattern, expected.json)
    told = [redact(command), swept, (*asked, expected.max_ttft_s, expected.garbage), run, os.getcwd()]
    return hashlib.sha256(json.dumps(told).encode("utf-8", "surrogateescape")).hexdigest()


def _passing(result: Result) -> bool:
    """Whether what could not be judged may well be another time."""
    return result.verdict == "skip" and (result.attempt is None or result.failure in PASSING)


@contextmanager
def _environment(env: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
