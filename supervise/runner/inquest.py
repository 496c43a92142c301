"""The look at what has ended: what is left of it, and what it ended of."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from supervise.host import space
from supervise.lifecycle import Cause
from supervise.runner import cause

if TYPE_CHECKING:
    from supervise.lifecycle import Reason
    from supervise.model.diagnosis import Diagnosis
    from supervise.model.snapshot import Gpus
    from supervise.runner.attempt import Opened
    from supervise.runner.ended import Ended
    from supervise.runner.startup import Startup
    from supervise.runner.world import World


class Inquest:
    """Belongs to one attempt, and is opened with it: what the kernel had to say before is about others.

    Args:
        ended: what those who end the group know.
        startup: whose log it is.
        ready_timeout_s: the user's, seconds.
        world: the outside.
    """

    def __init__(self, ended: Ended, startup: Startup, ready_timeout_s: float, world: World) -> None:
        self._ended, self._startup, self._ready_timeout_s, self._world = ended, startup, ready_timeout_s, world
        self._circumstances = cause.Circumstances()

    async def verify(self, gpus: Gpus) -> None:
        """Look whether what the server held is free again.

        Args:
            gpus: as they were before the launch.
        """
        pids = frozenset(self._ended.pids)
        self._ended.aftermath = await self._world.in_thread(self._world.aftermath, gpus, pids)

    async def diagnose(self, reason: Reason, opened: Opened | None) -> Diagnosis | None:
        """Look at survivors, and read the log to its end.

        Args:
            reason: why the attempt ended.
            opened: the attempt, if it has begun.

        Returns:
            The first cause; None if there never was a log.
        """
        await self._world.in_thread(self._ended.look_closer)
        log = self._startup.log
        if log is None:
            return None
        self._ended.log_unread = await log.finish()
        leader, members = (opened.leader, opened.members) if opened else (None, ())
        end = await self._world.in_thread(self._circumstances.end, reason, self._ended, leader, members, log.phase)
        if reason.cause is Cause.ASKED and self._startup.fatal is not None:
            # It had said so before anybody asked, and nothing of what it wrote since then was read.
            end = replace(end, requested=False)
        startup = self._startup
        diagnosis = cause.explained(log.conclude(end), reason, self._ready_timeout_s, startup.impostor, startup.rival)
        if diagnosis.text is None and diagnosis.fatal and opened is not None:
            lost = await self._world.in_thread(_lost, opened.attempt.log)
            return cause.unread(cause.unwritten(diagnosis, lost), self._ended.log_unread, opened.attempt.log)
        return diagnosis


def _lost(log: str) -> cause.Lost | None:
    """Where the log could not be written, at least at its end; None if it could."""
    directory = os.path.dirname(log)
    return cause.Lost(directory, whole=os.path.getsize(log) == 0) if space.is_full(directory) else None
