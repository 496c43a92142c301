"""What people read while it happens: one line per fact on standard error."""

from __future__ import annotations

import io
import os
import select
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from supervise.model.exits import Exit
from supervise.model.preflight import Level
from supervise.report.letters import encoded, encoding_of
from supervise.text import LABEL_WIDTH, duration, home, plural, printable, shorten, url

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis, Progress
    from supervise.model.need import Need
    from supervise.model.preflight import Check
    from supervise.model.slate import Finding, Outcome, SlateResult

_PIPE_BUF = 4096
_PATIENCE_MS = 200
_MOST_ALIKE = 20
_MOST_NAMED = 200
# Of whoever has set nothing, or says so: nobody knows what an escape sequence does there.
_NO_TERMINALS = ("", "dumb", "unknown")
RELAUNCH = {
    "deterministic": "cannot help: it would fail the same way",
    "transient": "may help",
    "load": "may help until the same load returns",
    "unknown": "whether it helps is not known",
}
"""Whether a relaunch helps, by the class of the failure."""


class Console:
    """Plain lines: for pipes, journals and files. Nothing is ever raised for want of a reader.

    Args:
        stream: where they go.

    Attributes:
        views: whether a view can stand below the lines.
    """

    views = False
    _compared: tuple[str, ...] = ()

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    def line(self, label: str, text: str) -> None:
        """One line: a label that says what it is about, and the fact."""
        self._write(f"{label:<{LABEL_WIDTH - 1}} {printable(text)}")

    def note(self, text: str) -> None:
        """A further line of the same subject."""
        self.line("", text)

    def error(self, text: str) -> None:
        """Something of ours that did not go as it should."""
        self.line("warning", text)

    def resized(self) -> None:
        """The terminal's window has another size."""

    def suspend(self) -> None:
        """Ctrl-Z: leave the terminal as it was, until we go on."""

    def close(self) -> None:
        """Leave the terminal as it was."""

    # --- slate --------------------------------------------------------------------------------------------------------

    def slate(self, result: SlateResult) -> None:
        """The clean slate: what was found, what was done, what was verified, what stands in the way."""
        found = len(result.outcomes) + len(result.obstacles) + len(result.refusals)
        self.line("slate", f"{result.run}: {plural(found, 'finding') if found else 'clean'}")
        for check in result.preflight:
            self._check(check)
        for outcome in _shortened(result.outcomes):
            self.note(outcome if isinstance(outcome, str) else _became(outcome))
        for finding in result.remarks:
            self.remark(finding)
        for finding in result.obstacles:
            self.note(f"BLOCKED {finding.subject}  ({', '.join((finding.ownership, *finding.evidence))})")
            self.note(f"        {finding.remedy or 'resolve it by hand, then start again'}")
        if result.clean:
            self.note(f"verified: {' · '.join(result.checks)}  {duration(result.seconds)}")
        else:
            self.note(f"not clean (exit {int(Exit.SLATE)})")

    def remark(self, finding: Finding) -> None:
        """Something that stands in nobody's way."""
        self.note(f"note    {finding.subject}  ({', '.join(finding.evidence)})  {finding.remedy}".rstrip())

    def question(self, text: str) -> None:
        """Something that only a person can decide."""
        self.line("?", text)

    def _check(self, check: Check) -> None:
        if check.level is Level.OK:
            return
        label = "REFUSED" if check.level is Level.REFUSAL else "warning"
        self.note(f"{label} {check.name}: {check.text}")
        fix = f"{check.fix}; " if check.fix else ""
        self.note(f"        {fix}--no-preflight {check.name} skips this check")

    # --- life ---------------------------------------------------------------------------------------------------------

    def waiting(self, text: str) -> None:
        """Why nothing happens yet."""
        self.line("wait", text)

    def attempt(self, number: int, log: str) -> None:
        """A launch."""
        self._compared = ()
        self.line("attempt", f"{number}   log {home(log)}")

    def progress(self, progress: Progress, seconds: float, *, new: bool, eta: str = "") -> None:
        """Where start-up is: a line per phase where no view shows it; `eta` says when it should be ready."""
        if new:
            self.line("loading", f"{progress.phase}  +{duration(seconds)}{eta}")

    def ready(self, seconds: float, phases: dict[str, float], need: Need) -> None:
        """It serves."""
        told = ", ".join(f"{name} {took:.0f}" for name, took in phases.items() if took >= 0.5)
        where = url(need)
        self.line("ready", f"in {duration(seconds)}{f' ({told})' if told else ''}{f'   {where}' if where else ''}")

    def fatal(self, text: str, meaning: str, linger_s: float) -> None:
        """The log says that it cannot go on, and why."""
        self.line("fatal", text)
        self.note(meaning)
        self.note(f"it has {duration(linger_s)} to end by itself, then the group is ended")

    # --- the end ------------------------------------------------------------------------------------------------------

    def stopping(self, why: str) -> None:
        """The stop path begins."""
        self.line("stop", f"{why}: SIGTERM to the leader")

    def stage(self, stage: str) -> None:
        """The stop path escalates."""
        told = {"group": "the leader is gone or late: SIGTERM to the whole group", "kill": "SIGKILL to what is left"}
        if stage in told:
            self.note(told[stage])

    def leader_exited(self, how: str) -> None:
        """The leader ended without being asked."""
        self.line("exited", how)

    def keeper_lost(self) -> None:
        """The keeper died."""
        self.line("warning", "the keeper was killed; its group is ours now and is being ended")

    def guard_lost(self) -> None:
        """The guard died; nothing is lost yet."""
        self.line("warning", "the guard was killed; the server runs on, and stops as ever")
        self.note("should supervise and its keeper now be killed in the same instant, the next start cleans up")

    def verified(self, sentences: list[str], *, clean: bool) -> None:
        """The second look."""
        self.line("verified" if clean else "NOT CLEAN", ", ".join(sentences))

    def survivors(self, survivors: list[dict[str, Any]]) -> None:
        """What could not be killed, why not, what it holds, and what helps."""
        for process in survivors:
            self.note(f"survived  pid {process['pid']} {process['title']}  {_condition(process)}")
            self.note(f"          {_remedy(process)}")

    def diagnosis(self, diagnosis: Diagnosis, log: str) -> None:
        """The first cause, the lines that prove it, what it means, what to do."""
        self.cause(diagnosis)
        self.line("log", home(log))

    def cause(self, diagnosis: Diagnosis, *, numbered: bool = False) -> None:
        """The same without the log; `numbered` says on which line of it the cause is."""
        line = f"line {diagnosis.line}" if numbered and diagnosis.line is not None else None
        where = ", ".join(part for part in (diagnosis.process, diagnosis.phase, line) if part)
        self.line("cause", f"{diagnosis.text or diagnosis.meaning}{f'   ({where})' if where else ''}")
        for quoted in diagnosis.evidence:
            self.note(f"{quoted.number:>6}: {shorten(quoted.raw.strip(), 200)}")
        if diagnosis.text and diagnosis.meaning:
            self.line("means", diagnosis.meaning)
        for advice in diagnosis.advice:
            self.line("try", advice)
        self.line("relaunch", RELAUNCH[diagnosis.failure.value])

    def compared(self, lines: Iterable[str]) -> None:
        """What differs from the attempt before; what has been told of this one is not told again."""
        new = [line for line in lines if line not in self._compared]
        self._compared += tuple(new)
        for index, line in enumerate(new):
            self.line("" if index else "compared", line)

    def exit(self, status: int) -> None:
        """The status that follows."""
        self.line("exit", str(int(status)))

    def _write(self, text: str) -> None:
        write_unless_stuck(self._stream, text + "\n")


def write_unless_stuck(stream: TextIO, text: str) -> None:
    """Write a line, unless nobody takes it: a closed terminal or a pipe that is never read must not hold a server.

    A pipe that poll(2) calls writable takes PIPE_BUF (4096) bytes without blocking (pipe(7)).
    """
    try:
        data = encoded(text, encoding_of(stream))
        for start in range(0, len(data), _PIPE_BUF):
            poller = select.poll()
            poller.register(stream.fileno(), select.POLLOUT)
            if not poller.poll(_PATIENCE_MS):
                return
            os.write(stream.fileno(), data[start : start + _PIPE_BUF])
    except io.UnsupportedOperation:
        stream.write(text)
    except (OSError, ValueError):
        pass


def _became(outcome: Outcome) -> str:
    evidence = ", ".join(outcome.finding.evidence)
    became = "" if outcome.did.startswith("would") else f"  {outcome.verdict} {duration(outcome.seconds)}"
    return f"{outcome.did:<7} {outcome.finding.subject}  ({evidence}){became}"


def _shortened(outcomes: Iterable[Outcome]) -> Iterator[Outcome | str]:
    """All of them, but of hundreds of the same kind only the first; slate.json and --json have every one.

    Of what the user asked to have removed by name more are told one by one.
    """
    told: Counter[tuple[str, str, str]] = Counter()
    for outcome in outcomes:
        alike = (outcome.finding.kind, outcome.did, outcome.verdict)
        told[alike] += 1
        if told[alike] <= _most(outcome.finding.kind):
            yield outcome
    for (kind, did, verdict), count in told.items():
        if (more := count - _most(kind)) <= 0:
            continue
        if kind == "artefact":
            yield f"and {more} more: {did if did.startswith('would') else verdict}"
        else:
            yield f"{did:<7} {more} more of kind {kind}: {verdict}"


def _most(kind: str) -> int:
    return _MOST_NAMED if kind == "artefact" else _MOST_ALIKE


def _condition(process: dict[str, Any]) -> str:
    wchan, seconds = process.get("wchan"), process.get("seconds")
    parts = [f"state {process['state']}{f' in {wchan}' if wchan else ''}"]
    if seconds is not None:
        parts.append(f"after {duration(seconds)}")
    if held := [*process.get("devices", ()), *(f"port {port}" for port in process.get("ports", ()))]:
        parts.append(f"holds {', '.join(held)}")
    return ", ".join(parts)


def _remedy(process: dict[str, Any]) -> str:
    """What people can do where we could not."""
    if process["state"] == "D":
        return "it waits inside the kernel and ends when that returns; until then start nothing on what it holds"
    if process.get("uid") not in (None, os.geteuid()):
        return f"it belongs to uid {process['uid']}: sudo kill -KILL {process['pid']}"
    return f"it did not go in time: kill -KILL {process['pid']}, then supervise clean"


def for_stream(stream: TextIO | None = None, *, plain: bool = False) -> Console:
    """The right console for a stream: live on a capable terminal, with priorities in the journal, plain elsewhere.

    Args:
        stream: where people read; standard error by default.
        plain: lines alone, also on a terminal.
    """
    target = stream or sys.stderr
    if target.isatty():
        if plain or os.environ.get("TERM", "") in _NO_TERMINALS:
            from supervise.report.present import Present

            return Present(target)
        from supervise.report.live import Terminal

        return Terminal(target)
    if "JOURNAL_STREAM" not in os.environ:
        return Console(target)
    from supervise.report.journald import Journal, is_journal

    return Journal(target) if is_journal(target, os.environ) else Console(target)
