"""Whether what a sweep has set has arrived at the server, however it is started."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from supervise.host import procfs
from supervise.profiles.load import GENERIC
from supervise.profiles.match import match
from supervise.profiles.substitution import canonical
from supervise.profiles.wrappers import WRAPPERS
from supervise.runner.threads import in_thread

if TYPE_CHECKING:
    from supervise.model.process import Marker, Process
    from supervise.model.trial import Setting, Trial
    from supervise.runner.plan import Plan

# What these have on their own command line they may pass on, or not.
_CARRIERS = frozenset({"sh", "dash", "bash", "ash", "zsh", "ksh", "fish", "busybox", "env", *WRAPPERS})
_FIRST_S, _LAST_S = 0.1, 4.0
# Settings are printed before anything is loaded.
_HEAD = 1 << 20
_UNKNOWN = "nobody can tell whether it arrived"


class _Seen(NamedTuple):
    """What one process of the group shows: its words, its environment where it can be read; `engine` if it is one."""

    argv: tuple[str, ...]
    env: frozenset[str] | None
    engine: bool


class Arriving:
    """Looks again and again while the server starts: command lines change, and processes that fail are soon gone.

    Args:
        settings: what was set.
        planned: what is run.
        attempt: its number.
        pid: of its leader.
        log: path of its log.
    """

    def __init__(self, settings: Sequence[Setting], planned: Plan, attempt: int, pid: int, log: str) -> None:
        self._settings, self._planned, self._log = settings, planned, log
        self._run, self._attempt, self._pid = planned.need.run, attempt, pid
        matched = match(planned.need.argv, planned.profiles)
        # The engine itself is launched, with these very words.
        self._sure = planned.profile.name != GENERIC and matched.profile.name == planned.profile.name
        self._marker: Marker | None = None
        self._seen: set[_Seen] = set()
        self._over = False
        self._task = asyncio.ensure_future(self._watch())

    @classmethod
    def of(cls, trial: Trial, planned: Plan, attempt: int, pid: int, log: str) -> Arriving | None:
        """None where nothing was set."""
        return cls(trial.settings, planned, attempt, pid, log) if trial.settings else None

    async def look(self) -> None:
        """Once more: it is ready, or has been tried; a program that nobody knows may only begin when it is ready."""
        self._over = True
        with contextlib.suppress(OSError):
            await in_thread(self._look)

    def end(self) -> str | None:
        """It is over: why it cannot be judged, None if all has arrived."""
        self.close()
        return next((told for setting in self._settings if (told := self._missing(setting)) is not None), None)

    def close(self) -> None:
        """Look no more."""
        self._over = True
        self._task.cancel()

    async def _watch(self) -> None:
        wait_s = _FIRST_S
        while not self._over:
            with contextlib.suppress(OSError):
                await in_thread(self._look)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, _LAST_S)

    def _look(self) -> None:
        processes = procfs.scan()
        leader = processes.get(self._pid)
        if leader is not None and leader.marker is not None and leader.marker.run == self._run:
            self._marker = leader.marker
        below = {process.pid for process in procfs.descendants(processes, self._pid)} if leader is not None else set()
        for process in processes.values():
            marked = process.marker is not None and process.marker == self._marker
            of_ours = marked or process.pid == self._pid or process.pid in below
            parent = processes.get(process.ppid)
            # A fork shows what its parent does, before its exec that of whoever launches.
            forked = parent is not None and parent.argv == process.argv
            if process.argv and of_ours and not forked:
                self._add(process, process.argv)

    def _add(self, process: Process, argv: tuple[str, ...]) -> None:
        matched = match(argv, self._planned.profiles)
        engine = matched.profile.name != GENERIC and matched.program == matched.argv
        if os.path.basename(argv[0]) not in _CARRIERS:
            self._seen.add(_Seen(argv, _environment(process.pid), engine))

    def _missing(self, setting: Setting) -> str | None:
        """Engines count where there are any: whoever starts one may have kept the words for himself."""
        # A look may still be under way.
        every = list(self._seen)
        engines = [seen for seen in every if seen.engine]
        looked = engines or every
        if setting.variable:
            return self._missing_variable(setting, looked)
        if self._sure or any(_carries(seen.argv, setting) for seen in looked):
            return None
        if not setting.absent and _printed(_head(self._log), setting):
            return None
        return f"{setting.title}: it did not arrive at the server" if engines else f"{setting.title}: {_UNKNOWN}"

    def _missing_variable(self, setting: Setting, looked: Iterable[_Seen]) -> str | None:
        known = [seen.env for seen in looked if seen.env is not None]
        if not known:
            return None if self._sure else f"{setting.title}: {_UNKNOWN}"
        if any(f"{setting.title}={setting.words[0]}" in env for env in known):
            return None
        other = any(each.startswith(f"{setting.title}=") for env in known for each in env)
        return f"{setting.title}: {'another value arrived' if other else 'it did not arrive'} at the server"


def _environment(pid: int) -> frozenset[str] | None:
    """None where it cannot be read, or a new title has been written over it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = file.read().split(b"\0")
    except OSError:
        return None
    told = frozenset(each.decode("utf-8", "surrogateescape") for each in found if b"=" in each)
    return told or None


def _carries(argv: Sequence[str], setting: Setting) -> bool:
    """Whether these words are on a command line, or for a switch that is off are not."""
    for at, word in enumerate(argv):
        name, joined, value = word.partition("=")
        if canonical(name) not in setting.names:
            continue
        given = (value,) if joined else tuple(argv[at + 1 : at + 1 + len(setting.words)])
        if not setting.absent and given[: len(setting.words)] == setting.words:
            return True
        if setting.absent:
            return False
    return setting.absent


def _printed(text: str, setting: Setting) -> bool:
    """Whether a log tells it as a setting; what somebody says he was given, with dashes, is none."""
    if setting.variable or not setting.words:
        return False
    value = r"[\s,'\"\[\]]+".join(map(re.escape, setting.words))
    names = "|".join(re.escape(name.lstrip("-").replace("-", "_")) for name in setting.names if name.startswith("--"))
    told = rf"(?<![\w-])(?:{names})['\"]?\s?[:=]\s?[\['\"]?{value}(?![\w.])"
    return bool(names) and re.search(told, text) is not None


def _head(path: str) -> str:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(_HEAD).decode("utf-8", "replace")
    return ""
