"""Our handle on a group: starts its keeper, speaks with it, and takes its place should it die."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict

from supervise.group import wire
from supervise.group.boot import Booted, boot
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending
from supervise.group.leftovers import Left, Leftovers
from supervise.group.members import living_below
from supervise.host import procfs, shm
from supervise.model.litter import FileId
from supervise.model.process import Process, ProcessId

_BIRTH_S = 10.0


class Keeper:
    """A running keeper, seen from supervise.

    Attributes:
        id: its identity.
        guard: that of its guard, which stands between us.
        channel: our end of the socketpair; readable when there are events, at end of file when it is gone.
        leaf: the cgroup leaf that the group is to be held in, None without one.
        segments_before: what was in /dev/shm before the launch, and is therefore not the group's.
        strangers: children that we had before the launch, likewise.
    """

    def __init__(
        self,
        booted: Booted | None = None,
        *,
        keep_open: tuple[int, ...] = (),
        log: str | None = None,
        leaf: str | None = None,
        record: str | None = None,
    ) -> None:
        """Take over a keeper, or start one; it launches nothing until told.

        Args:
            booted: its process, if it has been started already.
            keep_open: descriptors that keeper and guard, but not the server, hold for as long as the group lives (the
                run's lock).
            log: file for what they themselves may have to say in extremis.
            leaf: the cgroup leaf to hold the group in.
            record: file that will tell, once there is an attempt, what else is the group's: the guard reads it should
                it be the last.

        Raises:
            OSError: it could not be started.
        """
        pid, self.channel = booted or boot()
        self.channel.setblocking(False)
        self.leaf = leaf
        self.segments_before: frozenset[FileId] = frozenset()
        # A script that starts something in the background and then execs us leaves us children that are none of ours.
        self.strangers = frozenset(child for child in _children() if child.pid != pid)
        self._splitter = wire.Splitter()
        self._unheard: list[wire.Message] = []
        self._unsent = b""
        # Our own child: even if it died at once it is a zombie now, and has an identity.
        self.guard = procfs.identify(pid) or ProcessId(pid, 0)
        self._ask(keep_open, request="hold", log=log, leaf=leaf, record=record)
        self.id = self._met()

    def helpers(self) -> frozenset[int]:
        """Pids of what is below us before the launch: guard, keeper, and strangers."""
        return frozenset(helper.pid for helper in (self.guard, self.id, *self.strangers))

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
        pidns: bool = False,
        terminal: str | None = None,
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
            pidns: whether to put a PID namespace around it.
            terminal: path of the pseudo-terminal to be its standard streams.
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
            pidns=pidns,
            terminal=terminal,
        )

    def stop(self, deadlines: Deadlines) -> None:
        """Ask it to walk the stop path."""
        self._ask(request="stop", deadlines=asdict(deadlines))

    def escalate(self) -> None:
        """Ask it to kill now."""
        self._ask(request="escalate")

    def proceed(self) -> None:
        """Tell it that the evidence has been taken."""
        self._ask(request="proceed")

    def note(self) -> None:
        """Ask it to note its members and the shared memory they use; the answer, if there is news, is `noted`."""
        self._offer(request="note")

    def signal(self, signum: int) -> None:
        """Ask it to pass a signal on to the leader."""
        self._offer(request="signal", signum=signum)

    def suspend(self) -> None:
        """Ask it to stop all members; the answer is `suspended`."""
        self._ask(request="suspend")

    def resume(self) -> None:
        """Ask it to continue them."""
        self._ask(request="resume")

    def events(self) -> list[wire.Message] | None:
        """What it has said since; None once it is gone."""
        if self._unheard:
            heard, self._unheard = self._unheard, []
            return heard
        try:
            data, _ = wire.receive(self.channel)
        except BlockingIOError:
            return []
        return self._splitter.feed(data) if data else None

    def _met(self) -> ProcessId:
        """Wait for its first word, by which we know its pid; one that died before it is known by its guard."""
        self.channel.settimeout(_BIRTH_S)
        try:
            while data := wire.receive(self.channel)[0]:
                if messages := self._splitter.feed(data):
                    hello, *self._unheard = messages
                    return ProcessId(hello["pid"], hello["ticks"])
        except BlockingIOError:
            pass
        finally:
            self.channel.setblocking(False)
        return self.guard

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
            self.channel.sendall(self._unsent + wire.encode(request))
        except OSError:
            pass
        finally:
            self._unsent = b""
            self.channel.setblocking(False)

    def _offer(self, **request: object) -> None:
        """Ask for what can be left out: one that is stopped takes no more than its socket does."""
        try:
            if self._unsent:
                self._unsent = self._unsent[self.channel.send(self._unsent) :]
            if not self._unsent:
                message = wire.encode(request)
                self._unsent = message[self.channel.send(message) :]
        except OSError:
            pass


def _children() -> list[ProcessId]:
    """Our children; where the kernel keeps no list of them it takes a reading of all processes."""
    pids = procfs.children()
    if pids is None:
        return [child.id for child in living_below(os.getpid())]
    return [child for child in map(procfs.identify, pids) if child is not None]


class _Household(Enclosure):
    """What is below us once the keeper is dead: its group, its guard, and perhaps strangers."""

    def __init__(self, keeper: Keeper, childless: Callable[[], bool]) -> None:
        super().__init__(os.getpid(), childless, keeper.leaf, frozenset({keeper.guard}))
        self._strangers = keeper.strangers

    def living(self) -> list[Process]:
        """All but the strangers and what they have started."""
        members = super().living()
        if not self._strangers:
            return members
        processes = procfs.scan(cmdline=False, environ=False)
        theirs = {process.id for process in processes.values() if process.id in self._strangers}
        for stranger in tuple(theirs):
            theirs.update(process.id for process in procfs.descendants(processes, stranger.pid))
        return [member for member in members if member.id not in theirs]

    def empty(self) -> bool:
        """With strangers there will always be a child; then a reading has to do."""
        return super().empty() or bool(self._strangers and not self.living())


class Adoption:
    """Ends a group in the keeper's place: after its death all that it held is below its guard, or us, a subreaper too.

    Args:
        deadlines: of the stop path.
        leftovers: what to remove at the end.
        keeper: the dead one.
        childless: reaps what can be reaped and tells whether no child of ours is left (ECHILD).
    """

    def __init__(
        self, deadlines: Deadlines, leftovers: Leftovers, *, keeper: Keeper, childless: Callable[[], bool]
    ) -> None:
        self._leftovers = leftovers
        self._started_at = time.monotonic()
        self._enclosure = _Household(keeper, childless)
        self._ending = Ending(self._enclosure, None, deadlines.unattended(), before_kill=self._leftovers.note)
        self._leftovers.note(self._enclosure.living())

    def step(self) -> float | None:
        """Take the next step of the stop path; seconds until the one after, None when over."""
        return self._ending.step(time.monotonic())

    def escalate(self) -> None:
        """Kill now."""
        self._ending.escalate()

    def result(self) -> tuple[tuple[Process, ...], Left, float]:
        """Survivors, leftovers, and how long it took, in seconds; call it once, when over."""
        self._enclosure.remove()
        return self._ending.survivors, self._leftovers.remove(), time.monotonic() - self._started_at

    @property
    def sent(self) -> list[tuple[ProcessId, int]]:
        """The signals that were sent, in order."""
        return self._ending.sent
