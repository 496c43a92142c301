"""Tries a server out once it is ready, and then has it stopped: a completion, or a command of the user's."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from supervise import lifecycle as life
from supervise.host import signals
from supervise.model import news as events
from supervise.model.exits import Exit
from supervise.model.telling import TellingError
from supervise.model.trial import Judgement, Trial, Verdict
from supervise.probes.http import base_url
from supervise.report.occasions import variables
from supervise.runner.arriving import Arriving
from supervise.runner.blame import blamed, lasting, refusal
from supervise.runner.carrier import Carrier
from supervise.runner.threads import in_thread
from supervise.text import home, printable, shorten

if TYPE_CHECKING:
    from supervise.group import wire
    from supervise.model.news import News
    from supervise.report.console import Console
    from supervise.runner.plan import Plan

LOG = "probe.log"
"""What a command has written, in the attempt's directory."""

_TERM_S = 2.0
_KILLED = 128
# The porter's own way out: SIGTERM, SIGKILL, and a reading of who is left.
_LEAVING_S = 10.0
_PORTERS = "=== "
_LAST_LINES, _TAIL, _WIDTH = 5, 4096, 200
_CAME_TO = {Verdict.PASS: "has passed", Verdict.FAIL: "has failed", Verdict.SKIP: "cannot be judged"}
_UNKNOWN = "it is not known how to ask this server for a completion (profile {}); try it with --probe CMD"


class Trying:
    """Listens to one attempt; what it hears and finds is in the trial's course.

    Args:
        trial: what is asked.
        planned: what is run.
        console: where people read.

    Raises:
        TellingError: a completion was asked for that this server is not known to serve.
    """

    def __init__(self, trial: Trial, planned: Plan, console: Console) -> None:
        if trial.command is None and trial.wants_completion and completions(planned) is None:
            raise TellingError(Exit.INTERNAL, _UNKNOWN.format(planned.profile.name))
        self._trial, self._planned, self._console = trial, planned, console
        self._post: Callable[[life.Event], None] = lambda _: None
        self._task: asyncio.Task[None] | None = None
        self._command: _Command | None = None
        self._arrival: Arriving | None = None
        self._log = ""
        self._posting = self._ending = False

    def begin(self, post: Callable[[life.Event], None]) -> Trying:
        """Events are taken from now on."""
        self._post = post
        return self

    def stopped(self, signum: int) -> None:
        """The end has been asked for, by ourselves perhaps."""
        if not self._posting and self._trial.course.stopped_by is None:
            self._trial.course.stopped_by = signum

    def hear(self, news: News) -> None:
        """Something has happened."""
        course = self._trial.course
        match news:
            case events.Launched(attempt, log, pid):
                course.attempt, self._log = attempt, log
                self._arrival = Arriving.of(self._trial, self._planned, attempt, pid, log)
            case events.BecameReady(_, seconds, _) if self._task is None:
                course.ready_s = seconds
                self._task = asyncio.ensure_future(self._try())
            case events.Ending():
                self._ending = True
                if self._command is not None:
                    self._command.hurry()
            case events.Ended():
                course.outcome, course.cause, course.failure = news.outcome, news.cause, news.failure
                course.signature, course.fingerprint = news.signature, news.fingerprint
                course.advice = news.advice
                if self._arrival is not None:
                    course.altered = self._arrival.end() or course.altered
            case events.Over(status):
                course.status = status
            case _:
                self._weigh(news)

    def _weigh(self, news: News) -> None:
        """What speaks against the server, or against its having been tried at all."""
        course = self._trial.course
        match news:
            case events.Swept(result) if not result.clean:
                course.refusal = refusal(result)
                course.blamed = blamed(result, self._trial.settings, self._planned.profile)
                course.lasting = lasting(result, self._trial.settings, self._planned.need)
            case events.NoEffect(files, why) if files:
                course.unread = f"{home(files[0])}: {why}"
            case events.Altered(flags):
                names = {name for setting in self._trial.settings for name in setting.names}
                meant = (text for text in flags if text.partition(":")[0] in names)
                course.altered = next(meant, course.altered)
            case events.WasFatal() if self._task is not None and not self._ending:
                course.fatal = True

    def close(self) -> None:
        """It is over; a completion that is still waited for is left to its time-out."""
        if self._task is not None:
            self._task.cancel()
        if self._arrival is not None:
            self._arrival.close()
        if self._command is not None:
            self._command.hurry()

    async def finished(self) -> None:
        """Wait until nothing of the command runs."""
        if self._command is not None:
            await self._command.gone()

    async def _try(self) -> None:
        try:
            await self._look()
            tested = await self._tested()
            await self._look()
        except Exception as error:  # noqa: BLE001 - without a verdict the server would run for ever
            tested = Judgement(Verdict.SKIP, f"the probe cannot be run: {error}")
        if not self._ending:
            self._trial.course.tested = tested
            self._console.line("probe", f"{tested.verdict.word}: {tested.why}")
            self._posting = True
            # Patient: whoever ends it already needs no hurry for our sake.
            self._post(life.StopAsked(signal.SIGTERM, patient=True, why=f"the probe {_CAME_TO[tested.verdict]}"))
            self._posting = False

    async def _look(self) -> None:
        if self._arrival is not None and not self._ending:
            await self._arrival.look()

    async def _tested(self) -> Judgement:
        trial, profile, need = self._trial, self._planned.profile, self._planned.need
        if trial.command is not None:
            told = _variables(self._planned, trial.course.attempt, self._log)
            self._command = _Command(trial.command, trial.timeout_s, self._log, told)
            return await self._command.over(self._console)
        if (path := completions(self._planned)) is None:
            return Judgement(Verdict.PASS, f"it is ready; {_UNKNOWN.format(profile.name)}")
        from supervise.probes.completion import ask

        return await in_thread(ask, need, trial, path, profile.ready.models)


def completions(planned: Plan) -> str | None:
    """The path where this very launch serves completions, None if it is not known to."""
    rule, need = planned.profile.liveness, planned.need
    served = (need.http is not None or need.uds is not None) and need.part is None and not need.mutual_tls
    return rule.completions if rule is not None and served else None


class _Command:
    """A command of the user's, run by a porter like a hook: nothing of it outlives it.

    Args:
        command: for the shell.
        timeout_s: how long it may take.
        log: path of the server's; its own is beside it.
        told: what it is told in its environment.

    Raises:
        OSError: it cannot be run.
    """

    def __init__(self, command: str, timeout_s: float, log: str, told: Mapping[str, str]) -> None:
        self._timeout_s = timeout_s
        self._log = os.path.join(os.path.dirname(log), LOG)
        self._over: asyncio.Future[wire.Message | None] = asyncio.get_running_loop().create_future()
        self._porter = Carrier(self._log, os.environ, self._heard, self._killed)
        self._porter.listen()
        request = {"id": 1, "title": "probe", "command": command, "env": dict(told), "told": ""}
        self._porter.run({**request, "timeout_s": timeout_s})

    async def over(self, console: Console) -> Judgement:
        """What it says."""
        said = await self._over
        if said is None:
            return Judgement(Verdict.SKIP, "what runs the probe was killed")
        tested = verdict_of(said.get("status"), said.get("failure"))
        if tested.verdict is not Verdict.PASS:
            for line in _last_lines(self._log):
                console.line("probe", f"| {line}")
            return tested._replace(why=f"{tested.why}; its output is in {home(self._log)}")
        return tested

    def hurry(self) -> None:
        """End what runs of it now."""
        self._porter.finish(0.0, _TERM_S)

    async def gone(self) -> None:
        """Wait until nothing of it runs."""
        self.hurry()
        try:
            async with asyncio.timeout(_LEAVING_S):
                await self._porter.gone()
        except TimeoutError:
            # It sees the end of file, and is on its own.
            pass
        self._porter.leave()

    def _heard(self, message: wire.Message) -> None:
        if message["event"] in ("over", "dropped") and not self._over.done():
            self._over.set_result(message)

    def _killed(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


def verdict_of(status: int | None, failure: str | None) -> Judgement:
    """What a command means by its end.

    Args:
        status: with which it ended by itself, negative for a signal, None if it did not.
        failure: what went wrong with it in a few words, None if nothing did.
    """
    if failure is None and status == 0:
        return Judgement(Verdict.PASS, "the probe ended with 0")
    if status in (None, Exit.INTERNAL, Exit.CANNOT_EXECUTE, Exit.NOT_FOUND) or status < 0:
        return Judgement(Verdict.SKIP, f"the probe: {failure or 'was not run'}")
    if status - _KILLED in signal.valid_signals():
        # A shell says so of the command that it waited for (sh(1)).
        killed = signals.name(status - _KILLED)
        return Judgement(Verdict.SKIP, f"the probe: {failure}: what it ran was killed by {killed}")
    return Judgement(Verdict.FAIL, f"the probe: {failure}")


def _variables(planned: Plan, attempt: int | None, log: str) -> dict[str, str]:
    need = planned.need
    common: dict[str, Any] = {"run": need.run, "engine": need.profile, "attempt": attempt, "log": log}
    found = variables({**common, "event": "ready", "state": "ready"})
    model = next(iter(need.served_names), need.model)
    port = need.http.number if need.http is not None else None
    more = {"SUPERVISE_URL": base_url(need), "SUPERVISE_MODEL": model, "SUPERVISE_PORT": port}
    return {**found, **{name: str(value) for name, value in more.items() if value}}


def _last_lines(path: str) -> list[str]:
    """The end of what it has written, without the porter's own lines: one before it, one behind it."""
    try:
        with open(path, "rb") as file:
            begin = max(0, os.fstat(file.fileno()).st_size - _TAIL)
            file.seek(begin)
            lines = file.read(_TAIL).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    if lines and lines[-1].startswith(_PORTERS):
        del lines[-1]
    if not begin:
        del lines[:1]
    return [shorten(printable(line), _WIDTH) for line in lines[-_LAST_LINES:]]
