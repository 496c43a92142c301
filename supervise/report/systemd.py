"""What systemd is told of a run, so that `systemctl status` says where it is and no time-out ends what makes progress.

The time-outs of the unit are a backstop. Each extension covers the rest of our own patience and the whole stop path:
while supervise works, its own deadline comes first, and takes evidence; should it not work any more, systemd's follows.
An extension counts from when it is told and never shortens what was granted (sd_notify(3), EXTEND_TIMEOUT_USEC).
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from supervise.model import news
from supervise.model.exits import Exit
from supervise.model.slate import Verdict
from supervise.report.notify import microseconds
from supervise.text import duration, printable, roughly, shorten

if TYPE_CHECKING:
    from supervise.model.slate import SlateResult
    from supervise.report.notify import Notify

Assignments = dict[str, object]

_SLACK_S = 30.0
# Nobody knows when somebody will edit a file.
_UNTIL_A_CHANGE_S = 7 * 86400.0
# Until the first look at a server that starts says how long nothing may happen.
_FIRST_PATIENCE_S = 120.0
_IDLE_TOLD_S = 30.0
_LONGEST = 200
_ENDING = frozenset({"capturing", "stopping", "killing", "verifying"})
_ERRNO: dict[int, int] = {
    Exit.NOT_READY: errno.ETIMEDOUT,
    Exit.HUNG: errno.ETIMEDOUT,
    Exit.SLATE: errno.EBUSY,
    Exit.SURVIVORS: errno.EBUSY,
    Exit.CANNOT_EXECUTE: errno.EACCES,
    Exit.NOT_FOUND: errno.ENOENT,
}


class Systemd:
    """Hears what happens to a run, and tells the service manager.

    Args:
        notify: its socket.
        slate_s: how long the clean slate may take, in seconds.
        stop_s: how long the stop path may take.
        clock: CLOCK_MONOTONIC, in seconds.
    """

    def __init__(
        self, notify: Notify, *, slate_s: float, stop_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._notify, self._slate_s, self._stop_s, self._clock = notify, slate_s, stop_s, clock
        self._patience_s = _FIRST_PATIENCE_S
        self._state = "activating"
        self._status = ""
        self._attempt: int | None = None
        self._loading = ""
        self._stands = False
        self._obstacle: str | None = None
        # Before anything is read or waited for: an extension that comes after the time-out is none.
        self._notify.send(**self._extension(slate_s))

    def hear(self, told: news.News) -> None:
        """Something has happened."""
        match told:
            case news.Entered():
                self._entered(told)
            case news.Launched():
                self._attempt = told.attempt
            case news.Progressed():
                self._progressed(told)
            case news.Working():
                self._working(told)
            case news.Stalled():
                self._say(f"{self._numbered()}{told.text}")
            case news.BecameReady():
                self._ready(told)
            case news.WasFatal():
                self._say(f"{self._numbered()}fatal: {told.text}")
            case news.WasHung():
                self._say(f"{self._numbered()}hung: {'; '.join(told.proofs)}")
            case news.Ending():
                self._ending(told)
            case _:
                self._after(told)

    def close(self) -> None:
        """Nothing more will happen."""
        self._notify.close()

    # --- while it starts ----------------------------------------------------------------------------------------------

    def _entered(self, told: news.Entered) -> None:
        self._attempt = told.attempt if told.attempt is not None else self._attempt
        if told.state == "sweeping":
            self._say("looking for what earlier attempts left", self._extension(self._slate_s))
        elif told.state == "starting":
            self._patience_s, self._loading, self._stands = _FIRST_PATIENCE_S, "", False
            self._say(f"{self._numbered()}starting", self._extension(self._patience_s))
        elif told.state in _ENDING:
            self._notify.send(**self._extension(0.0))

    def _progressed(self, told: news.Progressed) -> None:
        percent = f" {told.percent:.0f} %" if told.percent is not None else ""
        counts = f" ({told.done}/{told.total})" if told.total else ""
        left = f", ready in about {roughly(told.eta_s)}" if told.eta_s is not None else ""
        self._loading, self._stands = f"{told.phase}{percent}{counts}", False
        self._say(
            f"{self._numbered()}{self._loading} after {duration(told.elapsed_s)}{left}",
            self._extension(self._patience_s),
            hurry=told.new,
        )

    def _working(self, told: news.Working) -> None:
        self._patience_s = told.patience_s
        rest_s = told.patience_s - told.idle_s
        extension = self._extension(rest_s) if rest_s >= 0 else {}
        where, stood = self._loading or told.phase or "starting", self._stands
        self._stands = told.stall is not None or told.idle_s >= _IDLE_TOLD_S
        if self._stands:
            self._say(self._numbered() + (told.stall or f"{where}, no progress for {roughly(told.idle_s)}"), extension)
        else:
            # What was said last still holds, unless that was that it stands still.
            self._say(f"{self._numbered()}{where}" if stood else self._status, extension)

    def _ready(self, told: news.BecameReady) -> None:
        self._state, self._loading = "active", ""
        took = ", ".join(f"{name} {duration(seconds)}" for name, seconds in told.phases.items() if seconds >= 0.5)
        self._say(f"{self._numbered()}ready in {duration(told.seconds)}{f' ({took})' if took else ''}", {"READY": 1})

    # --- the end ------------------------------------------------------------------------------------------------------

    def _ending(self, told: news.Ending) -> None:
        more: Assignments = {}
        if told.asked and not told.restarts:
            self._state, more = "stopping", {"STOPPING": 1}
        elif told.asked and self._state == "active":
            self._state, more = "reloading", {"RELOADING": 1, "MONOTONIC_USEC": microseconds(self._clock())}
        extension = self._extension(max(0.0, told.within_s - self._stop_s))
        self._say(f"{self._numbered()}ending: {told.why}", {**more, **extension})

    def _after(self, told: news.News) -> None:
        match told:
            case news.Ended():
                if told.failure is not None:
                    self._say(f"{self._numbered()}failed: {told.cause or told.outcome}")
            case news.Relaunching():
                after = f" in {duration(told.after_s)}" if told.after_s else ""
                again = f"again{after}" if told.after_s is not None else "waits for a change of a watched file"
                extension = self._extension(_UNTIL_A_CHANGE_S if told.after_s is None else told.after_s)
                self._say(f"attempt {told.attempt}: {told.cause or told.why}; {again}", extension)
            case news.Swept(result):
                self._obstacle = _obstacle(result)
            case news.Over():
                self._over(told)

    def _over(self, told: news.Over) -> None:
        self._state = "stopping"
        failed = {"ERRNO": _ERRNO[told.exit_status]} if told.exit_status in _ERRNO else {}
        refused = self._obstacle if told.exit_status == Exit.SLATE else None
        parts = [part for part in (refused or told.cause, told.why) if part]
        over: Assignments = {"STOPPING": 1, "EXIT_STATUS": told.exit_status, **failed, **self._extension(0.0)}
        self._say("; ".join(parts) if parts else self._status, over)

    # --- telling ------------------------------------------------------------------------------------------------------

    def _numbered(self) -> str:
        return "" if self._attempt is None else f"attempt {self._attempt}: "

    def _extension(self, within_s: float) -> Assignments:
        """Time for this and for the stop path after it.

        A service that is up needs none, and must not have any: it would also put off its watchdog. While it reloads the
        watchdog is given its due in the same datagram, which is read in this order.
        """
        if self._state == "active":
            return {}
        extension: Assignments = {"EXTEND_TIMEOUT_USEC": microseconds(within_s + self._stop_s + _SLACK_S)}
        return extension if self._state == "activating" else {**extension, "WATCHDOG": 1}

    def _say(self, status: str, more: Assignments | None = None, *, hurry: bool = True) -> None:
        """One line about where it is; a lesser change may wait for the next one."""
        assignments = dict(more or {})
        status = shorten(printable(status).replace("\t", " "), _LONGEST)
        if status != self._status:
            self._status = assignments["STATUS"] = status
        if assignments:
            (self._notify.send if hurry else self._notify.soon)(**assignments)


def _obstacle(slate: SlateResult) -> str | None:
    """What keeps a launch from following, in one line; None if nothing does."""
    if slate.clean:
        return None
    in_the_way = [
        *(f"{finding.subject} ({', '.join((finding.ownership, *finding.evidence))})" for finding in slate.obstacles),
        *(check.text for check in slate.refusals),
        *(outcome.finding.subject for outcome in slate.outcomes if outcome.verdict is not Verdict.GONE),
    ]
    return f"nothing was launched: {in_the_way[0]}" if in_the_way else "nothing was launched: the slate is not clean"
