"""Watched files: what has changed since the launch is told, and has the server begin anew where the user wants that."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from supervise import lifecycle as life
from supervise.lifecycle.changes import DEAF, Debounce, Pace, Then, follows
from supervise.model.news import Changed, Ending, Entered, Launched
from supervise.runner.compiling import Compiler, States, states
from supervise.runner.threads import in_thread_or_fail, spare
from supervise.text import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from supervise.host.notices import Notices
    from supervise.host.syntax import Mistake
    from supervise.model.news import News
    from supervise.report.console import Console
    from supervise.runner.plan import Plan
    from supervise.runner.watchlist import Watchlist

# How long a thread listens at a time: within that, news of the server's are acted upon.
_TURN_S = 0.5
# A step of a thread that listens, and more.
_LEAVE_S = 1.0
_SHOWN = 3
# As long as files have changed and a relaunch is sure to be refused.
_AGAIN_S = 60.0


class Watcher:
    """Waits for changes and decides about them. A Listener; notices wake it, and what it finds by looking decides.

    Args:
        planned: what is run, and what the user wants of a change.
        watchlist: what is watched; whoever launches has it begin anew.
        tell: takes news.
        console: where people read.
        run: its name.
        foreseen: why a relaunch is sure to be refused, None if it is not; blocking.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        planned: Plan,
        watchlist: Watchlist,
        tell: Callable[[News], None],
        console: Console,
        run: str,
        foreseen: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._planned, self.watchlist, self._run, self._foreseen = planned, watchlist, run, foreseen
        self._tell, self._console, self._clock = tell, console, clock
        self._post: Callable[[life.Event], None] = lambda _: None
        self._debounce = Debounce(Pace(), clock())
        self._ears = _Ears(watchlist)
        self._compiler = Compiler(planned)
        self._state, self._ending, self._learnt = "sweeping", False, False
        # Of the present attempt: what people know of its changes, and of mistakes in them.
        self._told: tuple[str, ...] = ()
        self._mistakes: tuple[Mistake, ...] = ()
        # Files of which a relaunch is sure to be refused, and when that is looked at again.
        self._refused: tuple[States, float] | None = None
        self._cut = False
        self._task: asyncio.Task[None] | None = None
        self._listening: asyncio.Future[bool] | None = None

    # --- a listener ---------------------------------------------------------------------------------------------------

    def begin(self, post: Callable[[life.Event], None]) -> Watcher:
        """Somebody takes events."""
        self._post = post
        return self

    def hear(self, news: News) -> None:
        """Something has happened."""
        match news:
            case Entered(state=state):
                self._state = state
                # What had to wait for this is decided now.
                self._debounce.noticed(self._clock())
            case Ending(asked=asked):
                self._ending = self._ending or asked
            case Launched(attempt=attempt):
                self._launched(attempt)

    def close(self) -> None:
        """It is over."""
        self._ears.stop()
        if self._task is not None:
            self._task.cancel()

    async def finished(self) -> None:
        """Wait for the thread that listens: it must not be in there any more when the interpreter ends."""
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=_LEAVE_S)
        if self._listening is None or self._listening.done():
            self._ears.close()

    def _launched(self, attempt: int) -> None:
        if unsaid := set(self.watchlist.since) - set(self._told):
            self._say(tuple(sorted(unsaid)), f"new in attempt {attempt}")
        self._ending, self._learnt, self._told, self._mistakes, self._refused = False, False, (), (), None
        # What is so at a launch is said then.
        self._cut = self.watchlist.cut
        if self._task is None:
            self._task = asyncio.ensure_future(self._watch())

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            try:
                await self._turn()
            except Exception as error:  # noqa: BLE001 - no thread, no memory: the server does not end for that
                spare(f"--watch: {type(error).__name__}: {error}; changes are seen later")
                await asyncio.sleep(_TURN_S)

    async def _turn(self) -> None:
        if not self._learnt:
            self._learnt = True
            await in_thread_or_fail(self.watchlist.learn)
        left_s = self._debounce.due - self._clock()
        if left_s > 0:
            self._listening = asyncio.ensure_future(in_thread_or_fail(self._ears.listen, min(left_s, _TURN_S)))
            if await asyncio.shield(self._listening):
                self._debounce.noticed(self._clock())
            if self._ears.deaf and self._debounce.pace is not DEAF:
                self._debounce.pace = DEAF
                self._console.note(f"note    --watch: {printable(self._ears.deaf)}; files are looked at now and then")
            return
        await self._look()

    async def _look(self) -> None:
        began, unnoticed = self._clock(), not self._debounce.awaited
        files = await in_thread_or_fail(self.watchlist.changes)
        mistakes = await in_thread_or_fail(self._compiler.mistakes, files)
        self._debounce.looked(began, self._clock())
        if unnoticed and files and files != self._told:
            self._ears.close()
        self.watchlist.broken = bool(mistakes)
        self._say_cut()
        if files and not mistakes and self._follows() is Then.RELAUNCH and not await self._can(files):
            return
        self._decide(files, mistakes)

    async def _can(self, files: tuple[str, ...]) -> bool:
        """Whether a relaunch is not sure to be refused: a server that serves does not end for that."""
        present = states(files)
        known = self._refused is not None and self._refused[0] == present
        if self._refused is not None and known and self._clock() < self._refused[1]:
            return False
        why = await in_thread_or_fail(self._foreseen)
        if why is None:
            self._refused = None
            return True
        self._refused, self._told = (present, self._clock() + _AGAIN_S), files
        if not known:
            self._say(files, f"no relaunch, it would be refused: {printable(why)}")
            self._console.note("that is tried again at the next change, and once a minute")
        return False

    def _follows(self) -> Then:
        return follows(self._planned.options.on_change, self._state, ending=self._ending)

    def _say_cut(self) -> None:
        if self.watchlist.cut and not self._cut:
            self._console.note("note    --watch: too many files by now; changes are seen in the first of them only")
        self._cut = self.watchlist.cut

    # --- deciding -----------------------------------------------------------------------------------------------------

    def _decide(self, files: tuple[str, ...], mistakes: tuple[Mistake, ...]) -> None:
        then = self._follows()
        if mistakes != self._mistakes and self._state != "done":
            self._mistakes = mistakes
            for mistake in mistakes:
                self._say_mistake(mistake)
        if then is Then.NOTHING:
            return
        if not files:
            if self._told:
                self._say(self._told, "it is as at the launch again")
            self._told, self._refused = (), None
        elif mistakes:
            self._told = files
        elif then is Then.RELAUNCH:
            self._ending, self._told = True, files
            self._say(files, "relaunch")
            self._post(life.RestartAsked(f"a change: {self._titles(files, 1)}"))
        elif files != self._told:
            self._told = files
            asking = "press r or: " * self._console.views + f"supervise restart {self._run}"
            self._say(files, "relaunch after it is ready" if then is Then.LATER else asking)

    def _say(self, files: Sequence[str], why: str) -> None:
        self._console.line("watch", f"{self._titles(files, _SHOWN)} changed: {why}")
        self._tell(Changed(tuple(map(self.watchlist.title, files)), why))

    def _say_mistake(self, mistake: Mistake) -> None:
        where = self.watchlist.title(mistake.path) + (f", line {mistake.line}" if mistake.line else "")
        why = f"{mistake.why}; no relaunch until it is mended"
        self._console.line("watch", f"{where}: {why}")
        if mistake.text:
            self._console.note(mistake.text)
        self._tell(Changed((self.watchlist.title(mistake.path),), f"{where}: {why}"))

    def _titles(self, files: Sequence[str], most: int) -> str:
        titles = ", ".join(map(self.watchlist.title, files[:most]))
        return printable(titles + (f" +{len(files) - most} more" if len(files) > most else ""))


class _Ears:
    """Whoever gives notices, made anew where it would listen to what is not there any more; in one thread at a time."""

    def __init__(self, watchlist: Watchlist) -> None:
        self._watchlist = watchlist
        self._notices: Notices | None = None
        self._stopped = False
        self.deaf = ""
        """Why there are no notices; empty while there are."""

    def listen(self, seconds: float) -> bool:
        """Whether something may have changed; blocking, for so long at most."""
        if not self.deaf and (self._notices is None or self._notices.stale):
            # Between two handles anything may have happened.
            return self._open()
        if self._notices is None:
            time.sleep(seconds)
            return False
        return self._notices.wait(seconds)

    def close(self) -> None:
        """Let go of what gives notices; whoever listens again makes it anew. Nobody listens at this moment."""
        if self._notices is not None:
            self._notices.close()
        self._notices = None

    def stop(self) -> None:
        """Nobody is to listen any more; whoever does is back within a moment."""
        self._stopped = True
        if self._notices is not None:
            self._notices.stop()

    def _open(self) -> bool:
        from supervise.host.notices import Notices

        self.close()
        try:
            self._notices = Notices(self._watchlist.paths, self._watchlist.but)
        except FileNotFoundError:  # it was there a moment ago
            time.sleep(_TURN_S)
        except OSError as error:
            self.deaf = f"no notices of changes ({error.strerror or error})"
        if self._stopped:
            self.stop()
        return True
