"""Our handle on a group: starts its keeper, speaks with it, and takes its place should it die."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict

from supervise.group import wire
from supervise.group.boot import Booted, boot
from supervise.group.ending import Deadlines, Ending
from supervise.group.leftovers import Left, Leftovers
from supervise.group.members import living_below
from supervise.host import procfs, shm
from supervise.model.process import Process, ProcessId
from supervise.model.slate import FileId


class Keeper:
    """A running keeper, seen from supervise.

    Attributes:
        id: its identity.
        channel: our end of the socketpair; readable when there are events, at end of file when it is gone.
        segments_before: what was in /dev/shm before the launch, and is therefore not the group's.
    """

    def __init__(
        self, booted: Booted | None = None, *, keep_open: tuple[int, ...] = (), log: str | None = None
    ) -> None:
        """Take over a keeper, or start one; it launches nothing until told.

        Args:
            booted: its process, if it has been started already.
            keep_open: descriptors that the keeper, but not the server, holds for as long as its group lives (the
                run's lock).
            log: file for what the keeper itself may have to say in extremis.

        Raises:
            OSError: it could not be started.
        """
        pid, self.channel = booted or boot()
        self.channel.setblocking(False)
        self.segments_before: frozenset[FileId] = frozenset()
        self._splitter = wire.Splitter()
        # Our own child: even if it died at once it is a zombie now, and has an identity.
        self.id = procfs.identify(pid) or ProcessId(pid, 0)
        if keep_open or log:
            self._ask(keep_open, request="hold", log=log)

    def spawn(
        self,
        program: str,
        argv: tuple[str, ...],
        env: dict[str, str],
        *,
        log: str,
        deadlines: Deadlines,
        runtime_dir: str | None,
        owner: str,
    ) -> None:
        """Ask it to launch the server; the answer is a `spawned` or `failed` event.

        Args:
            program: path of the executable.
            argv: the server's argument vector, unchanged.
            env: the server's environment.
            log: path of the attempt's log.
            deadlines: of the stop path, also for the case that we are gone by then.
            runtime_dir: the attempt's private directory, which the keeper removes at the end.
            owner: the marker id in that directory.
        """
        self.segments_before = frozenset(segment.file for segment in shm.segments())
        self._ask(
            request="spawn",
            program=program,
            argv=list(argv),
            env=env,
            log=log,
            deadlines=asdict(deadlines),
            runtime_dir=runtime_dir,
            owner=owner,
            before=sorted(self.segments_before),
        )

    def stop(self, deadlines: Deadlines) -> None:
        """Ask it to walk the stop path."""
        self._ask(request="stop", deadlines=asdict(deadlines))

    def escalate(self) -> None:
        """Ask it to kill now."""
        self._ask(request="escalate")

    def note(self) -> None:
        """Ask it to note which shared memory its group uses; the answer, if there is news, is `segments`."""
        self._ask(request="note")

    def events(self) -> list[wire.Message] | None:
        """What it has said since; None once it is gone."""
        try:
            data = self.channel.recv(256 * 1024)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._splitter.feed(data) if data else None

    def close(self) -> None:
        """Let go of it: whatever still runs in the group then is ended by it."""
        self.channel.close()

    def _ask(self, fds: tuple[int, ...] = (), **request: object) -> None:
        """A keeper that died meanwhile is noticed by its end of file, so that a broken pipe is no news."""
        self.channel.setblocking(True)
        try:
            self.channel.settimeout(10.0)
            if fds:
                # The descriptors ride on the first byte (unix(7), SCM_RIGHTS); a lone newline is no message.
                socket.send_fds(self.channel, [b"\n"], list(fds))
            self.channel.sendall(wire.encode(request))
        except OSError:
            pass
        finally:
            self.channel.setblocking(False)


class Adoption:
    """Ends a group in the keeper's place: after its death all that it held re-parented to us, a subreaper too.

    Args:
        deadlines: of the stop path.
        leftovers: what to remove at the end.
        childless: reaps what can be reaped and tells whether no child of ours is left (ECHILD).
    """

    def __init__(self, deadlines: Deadlines, leftovers: Leftovers, *, childless: Callable[[], bool]) -> None:
        self._leftovers = leftovers
        self._started_at = time.monotonic()
        self._ending = Ending(self._members, None, deadlines, empty=childless, before_kill=self._leftovers.note)
        self._leftovers.note(self._members())

    def step(self) -> float | None:
        """Take the next step of the stop path; seconds until the one after, None when over."""
        return self._ending.step(time.monotonic())

    def escalate(self) -> None:
        """Kill now."""
        self._ending.escalate()

    def result(self) -> tuple[tuple[Process, ...], Left, float]:
        """Survivors, leftovers, and how long it took, in seconds; call it once, when over."""
        return self._ending.survivors, self._leftovers.remove(), time.monotonic() - self._started_at

    def _members(self) -> list[Process]:
        return living_below(os.getpid())
