"""The termination message of a container: why it ended, where `kubectl describe pod` shows it.

Kubernetes reads at most 4096 bytes of it once the container is gone (Pod v1, terminationMessagePath). It is written at
the end of every attempt, so that a container that is killed between two of them has told what it knew.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from supervise.group.signalling import STOPPING
from supervise.host.signals import name as signal_name
from supervise.model.exits import MEANING, Exit
from supervise.model.news import Ended, Over, Relaunching, Swept

if TYPE_CHECKING:
    from supervise.model.news import News
    from supervise.model.slate import SlateResult
    from supervise.report.console import Console

DEFAULT = "/dev/termination-log"
MOST_BYTES = 4096
_LONGEST_LINE = 800
_NOT_LAUNCHED = "not-launched"
_SIGNALLED = 128


def default_path(env: Mapping[str, str], pid: int, path: str = DEFAULT) -> str | None:
    """Where to write without having been told.

    Args:
        env: our environment.
        pid: our process id.
        path: where container runtimes put the file.

    Returns:
        The path if somebody will read it: in a container, and the file is there; None otherwise.
    """
    if pid != 1 and not env.get("KUBERNETES_SERVICE_HOST"):
        return None
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return None
    return path if regular and os.access(path, os.W_OK) else None


class TerminationMessage:
    """Listens for the ends.

    Args:
        run: name of the run.
        path: the file, overwritten as a whole.
        console: where it is said, once, that it cannot be written.
    """

    def __init__(self, run: str, path: str, console: Console) -> None:
        self._run, self._path, self._console = run, path, console
        self._last: Ended | None = None
        self._slate: SlateResult | None = None
        self._failed = False
        self._nothing_runs = True

    def hear(self, news: News) -> None:
        """Write what is known at an end."""
        match news:
            case Swept(result):
                self._slate = result
            case Ended():
                self._last, self._slate, self._nothing_runs = news, None, False
                self._write(_head(news.exit_status, news), *self._attempt(news))
            case Relaunching() if self._last is not None:
                self._nothing_runs = True
                head = f"{_head(self._last.exit_status, self._last)}; to be launched again: {news.why}"
                self._write(head, *self._attempt(self._last))
            case Over(exit_status, why, cause):
                stopped = _stopped(exit_status) if self._nothing_runs else None
                head = f"{stopped}, while nothing ran" if stopped else _head(exit_status, self._last)
                self._write(head, *([why] if why else []), *self._end(cause))

    def close(self) -> None:
        """Nothing is left to be done."""

    def _end(self, cause: str | None) -> Iterator[str]:
        if self._slate is not None and not self._slate.clean:
            yield from _obstacles(self._slate)
        elif self._last is not None:
            yield from self._attempt(self._last)
        elif cause is not None:
            yield f"cause: {cause}"

    def _attempt(self, ended: Ended) -> Iterator[str]:
        if ended.cause is not None and ended.outcome != _NOT_LAUNCHED:
            yield f"cause: {ended.cause}"
        known = {"class": ended.failure, "signature": ended.signature, "fingerprint": ended.fingerprint}
        if told := [f"{name} {value}" for name, value in known.items() if value is not None]:
            yield " · ".join(told)
        for advice in ended.advice:
            yield f"do: {advice}"
        if ended.survivors:
            from supervise.text import plural

            yield f"{plural(ended.survivors, 'process')} survived"
            yield from (f"survived: {survivor}" for survivor in ended.survived)
        yield f"run {self._run}, attempt {ended.attempt}, log {ended.log}"

    def _write(self, *lines: str) -> None:
        """A file of the runtime's: mounted by itself, so that nothing can be put in its place."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, message(lines))
            finally:
                os.close(fd)
        except OSError as error:
            if not self._failed:
                self._console.error(f"termination message {self._path}: {error.strerror}")
            self._failed = True


def message(lines: tuple[str, ...]) -> bytes:
    """What may be written: no secrets, nothing that moves a terminal's cursor, at most 4096 bytes in whole lines."""
    from supervise.report.private import private
    from supervise.text import printable, shorten

    written = b""
    for line in lines:
        data = shorten(printable(private(line)), _LONGEST_LINE).encode("utf-8", "replace") + b"\n"
        if len(written) + len(data) <= MOST_BYTES:
            written += data
    return written


def _head(exit_status: int, ended: Ended | None) -> str:
    """The status, and what it means here."""
    meaning = MEANING.get(exit_status)
    if ended is not None and ended.exit_status == exit_status:
        if ended.asked and (stopped := _stopped(exit_status)):
            return stopped
        if ended.outcome == _NOT_LAUNCHED:
            meaning = ended.cause or meaning
        elif exit_status in (Exit.CANNOT_EXECUTE, Exit.NOT_FOUND):
            meaning = "the server's own"
    return f"exit status {exit_status}{f': {meaning}' if meaning else ''}"


def _stopped(exit_status: int) -> str | None:
    """That somebody has stopped it, if the status says so; a server that somebody has killed has the same."""
    signum = exit_status - _SIGNALLED
    return f"exit status {exit_status}: stopped by {signal_name(signum)}, as asked" if signum in STOPPING else None


def _obstacles(slate: SlateResult) -> Iterator[str]:
    for finding in slate.obstacles:
        yield f"in the way: {finding.subject} ({', '.join((finding.ownership, *finding.evidence))})"
        yield f"do: {finding.remedy or 'resolve it by hand, then start again'}"
    for check in slate.refusals:
        yield f"would fail: {check.text}"
