"""Did it take effect: whether edited files were imported, and whether the flags arrived; told once, and recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from supervise.host.imported import Imported
from supervise.model.news import Altered, Meanwhile, News, NoEffect
from supervise.runner.arrival import Flags
from supervise.text import home, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from supervise.host.interpreter import Interpreter
    from supervise.model.process import Process
    from supervise.preflight.edited import Edited
    from supervise.report.console import Console
    from supervise.runner.plan import Plan

_FIRST_S, _LAST_S = 0.5, 8.0
_SHOWN, _RECORDED = 3, 64
_WORDS = "changed, and nobody has imported it since the launch: another model's file, or one of another installation?"


class Effect:
    """Belongs to one attempt.

    Args:
        plan: what is run.
        edited: finds the files that somebody has edited; blocking.
        members: the group's; blocking.
        console: where people read.
        in_thread: runs what blocks.
        tell: tells others.
    """

    def __init__(
        self,
        plan: Plan,
        edited: Callable[[], Edited],
        members: Callable[[], Iterable[Process]],
        console: Console,
        in_thread: Callable[..., Awaitable[Any]],
        tell: Callable[[News], None],
    ) -> None:
        self._files = _Files(plan, edited)
        self._flags = Flags(plan)
        self._members, self._console, self._in_thread, self._tell = members, console, in_thread, tell
        self._log: str | None = None
        self._woken = asyncio.Event()
        self._told: set[str] = set()

    async def prepare(self) -> None:
        """Watch edited files, while the slate is swept; a launch that comes before that is not waited for."""
        await self._in_thread(self._files.prepare)

    def launching(self) -> None:
        """The launch is next."""
        self._files.begin()

    def follow(self, log: str) -> None:
        """The server writes there."""
        self._log = log

    def ready(self) -> None:
        """It serves."""
        self._files.ready = True
        self._woken.set()

    async def watch(self, starting: Callable[[], bool]) -> None:
        """Look until it is ready, or until it is not to become so any more.

        Args:
            starting: whether it still starts.
        """
        wait_s = _FIRST_S
        while starting() and not self._woken.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), wait_s)
            wait_s = min(wait_s * 2, _LAST_S)
            if not self._flags.settled:
                await self._in_thread(self._look)
                self._say_flags(final=False)
        if self._woken.is_set():
            await self._in_thread(self._look_at_files)
            self._say_flags(final=True)
            self._say_files()
            self._say_meanwhile()

    def record(self, listener: str | None) -> dict[str, Any]:
        """What is known now that it is over, as outcome.json has it.

        Args:
            listener: who listens on its port: "ours", or who else; None if nobody knows.
        """
        self._say_flags(final=True)
        # Of one that never was ready, too: it may have imported what was saved after the record of its code was taken.
        self._files.look_back()
        self._files.look()
        if self._files.said_unread and self._files.took_effect:
            self._console.line("note", "all changed files have been imported after all")
        self._files.close()
        return {"listener": listener, "files": self._files.record(), "argv": self._flags.record()}

    def _look(self) -> None:
        self._flags.look(self._members(), self._log)

    def _look_at_files(self) -> None:
        self._files.look_back()
        if self._files.watched:
            self._files.compare(self._members())

    def _say_flags(self, *, final: bool) -> None:
        if not final and not self._flags.settled:
            return
        new = [text for text in self._flags.altered() if text not in self._told]
        for text in new:
            self._told.add(text)
            self._console.line("ALTERED", text)
        if new:
            self._tell(Altered(tuple(new)))

    def _say_files(self) -> None:
        unread = self._files.unread
        if not unread:
            return
        self._files.said_unread = True
        for path in unread:
            self._console.line("NO EFFECT", f"{home(path)}: {_WORDS}")
        self._tell(NoEffect(unread, _WORDS))

    def _say_meanwhile(self) -> None:
        files = self._files.meanwhile
        self._tell(Meanwhile(files))
        if files:
            more = f" +{len(files) - _SHOWN} more" if len(files) > _SHOWN else ""
            titles = ", ".join(map(home, files[:_SHOWN])) + more
            self._console.line("note", printable(f"{titles} changed while it loaded: what it imported is not known"))


class _Files:
    """The edited files; `meanwhile` are those that were written between the launch and readiness, or the end."""

    def __init__(self, plan: Plan, edited: Callable[[], Edited]) -> None:
        self.ready = self.said_unread = False
        self.unread: tuple[str, ...] = ()
        self.meanwhile: tuple[str, ...] = ()
        self._python: Interpreter | None = None
        self._launched_ns: int | None = None
        self._plan, self._edited = plan, edited
        self._imported: Imported | None = None
        self._begun = self._closed = self._looked_back = False
        self._why = "no look was taken before the launch"
        self._elsewhere = False

    def prepare(self) -> None:
        found = self._edited()
        self._python = found.python
        self._why = "nothing was changed" if not found.files else found.why
        if found.python is None or not found.files:
            return
        try:
            imported = Imported(found.files, found.python, self._plan.env, self._plan.need.program)
        except OSError as error:
            self._why = f"not watched: {error.strerror}"
            return
        if self._closed:
            self._why = "the launch came first"
            imported.close()
        else:
            self._imported = imported

    def begin(self) -> None:
        self._launched_ns = time.time_ns()
        if self._imported is not None:
            self._imported.begin()
            self._begun = True
        self._closed = True

    def look_back(self) -> None:
        """See, once, what was written while it loaded: it may have imported either content."""
        from supervise.preflight.edited import changed_since

        if self._launched_ns is not None and not self._looked_back:
            self._looked_back = True
            site = self._python.site if self._python else ()
            packages, watch = self._plan.profile.packages, self._plan.options.watch
            self.meanwhile = changed_since(self._launched_ns, site, packages, watch)

    @property
    def watched(self) -> bool:
        return self._imported is not None and self._begun

    def compare(self, members: Iterable[Process]) -> None:
        """See that the group's files are those that we watch, then what it has read of them."""
        if self._imported is not None:
            paths = self._imported.paths
            self._elsewhere = any(not _sees(member.pid, path) for member in members for path in paths[:1])
            self.look()

    def look(self) -> None:
        if self._imported is None or not self._begun:
            return
        if self._elsewhere:
            self._why = "the server has other files than we see"
            return
        self.unread, self._why = self._imported.unread()

    @property
    def took_effect(self) -> bool | None:
        """None if nobody knows: a server that never was ready may not have come so far."""
        if not self.watched or self._why:
            return None
        if not self.unread:
            return True
        return False if self.ready else None

    def record(self) -> dict[str, Any]:
        changed = self._imported.paths if self._imported else ()
        told: dict[str, Any] = {"took_effect": self.took_effect, "changed": list(changed), "unread": list(self.unread)}
        told |= {"changed_while_loading": list(self.meanwhile[:_RECORDED])} if self.meanwhile else {}
        return told | ({"unknown": printable(self._why)} if self._why else {})

    def close(self) -> None:
        self._closed = True
        if self._imported is not None:
            self._imported.close()


def _sees(pid: int, path: str) -> bool:
    """Whether a process has the same file by that name as we; who is gone sees nothing else."""
    try:
        theirs, ours = os.stat(f"/proc/{pid}/root{path}"), os.stat(path)
    except OSError:
        return not os.path.exists(f"/proc/{pid}")
    return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
