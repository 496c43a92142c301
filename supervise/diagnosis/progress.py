"""Where start-up is: phases, progress bars and the ready line, read from the log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from supervise.diagnosis.prefilter import finder
from supervise.model.diagnosis import Line, Progress
from supervise.model.profile import PhaseRule, ReadyRule

_BARS = 64
# Characters of a line that may draw a bar: what is longer is no bar, and bars cost the most of all searches.
_DRAWN = 1000

_Owner = tuple[str | None, int | None]


class ProgressTracker:
    """Follows start-up until the server says that it is ready; then it is done and costs nothing.

    Phases go forward only, so ranks that lag behind do not turn them back. Where several processes draw the same bar,
    the slowest one counts.

    Args:
        phases: the profile's phases, in their order.
        percents: patterns of progress bars with the groups desc and pct, and n and tot where the bar has counts.
        ready: the profile's ready lines.
    """

    def __init__(self, phases: Iterable[PhaseRule], percents: Iterable[re.Pattern[str]], ready: ReadyRule) -> None:
        self.progress: Progress | None = None
        self.ready_line: Line | None = None
        self.expects_ready_line = bool(ready.lines)
        self._phases = [(rule.name, finder(rule.begins)) for rule in phases]
        self._percents = tuple(percents)
        self._ready = [finder(pattern) for pattern in ready.lines]
        self._bars: dict[_Owner, tuple[str, Progress]] = {}

    @property
    def phase(self) -> str | None:
        """The phase that start-up is in; None before the first."""
        return self.progress.phase if self.progress else None

    @property
    def ready(self) -> bool:
        """Whether the log has said that the server is up."""
        return self.ready_line is not None

    def feed(self, line: Line) -> Progress | None:
        """Take the next line.

        Args:
            line: any line, in the order of the log.

        Returns:
            Where start-up is now, if this line changed it.
        """
        if self.ready_line is not None:
            return None
        text = line.text
        if any(find(text) for find in self._ready):
            self.ready_line = line
            return None
        news = self._of_phase(text) or (self._of_bar(line) if "%" in text else None)
        if news is None or news == self.progress:
            return None
        self.progress = news
        return news

    def _of_phase(self, text: str) -> Progress | None:
        for index, (name, find) in enumerate(self._phases):
            if find(text):
                del self._phases[: index + 1]
                self._bars.clear()
                return Progress(name) if name != self.phase else None
        return None

    def _of_bar(self, line: Line) -> Progress | None:
        found = next((match for pattern in self._percents if (match := pattern.search(line.text, 0, _DRAWN))), None)
        if found is None:
            return None
        name = found["desc"].partition("(")[0].strip()
        owner = (line.process, line.pid)
        if owner in self._bars or len(self._bars) < _BARS:
            self._bars[owner] = (name, _bar(self.phase or name, found))
        return min((bar for desc, bar in self._bars.values() if desc == name), key=_percent, default=None)


def _bar(phase: str, found: re.Match[str]) -> Progress:
    groups = found.groupdict()
    done, total = groups.get("n"), groups.get("tot")
    percent = min(int(groups["pct"]), 100)
    return Progress(phase, percent, int(done) if done else None, int(total) if total else None)


def _percent(bar: Progress) -> int:
    return bar.percent or 0
