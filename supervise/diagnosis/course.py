"""Whether a log of which nobody knows the end shows a failure at all, or a server that lived through its errors."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from supervise.diagnosis.candidates import Candidate, Rank
from supervise.model.diagnosis import Kind, Line

# A server that printed so many lines after an error went on living.
_TAIL_LINES = 80
# An engine that failed takes its server down within so many lines, its dump of the scheduler's state included.
_WAKE_LINES = 600
# What a server prints that goes on serving: uvicorn, vLLM, SGLang; Ray Serve's and TGI's words for an answer.
_LIFE = (' HTTP/1.1" 200', "generation throughput: ", "gen throughput (token/s): ")
_ANSWER = re.compile(
    r" (?:GET|POST|CALL) \S{1,400} (?:200|OK) \d+\.\d+ ?ms|text_generation_router\S{0,80}: \S{1,80} Success$"
)
# An engine that generates tells how fast. The one that died may do so once more, for the seconds before, and other
# ranks until they are ended, too: more moments than that make a life.
_PULSE = re.compile(r"gen(?:eration)? throughput(?: \(token/s\))?: (?!0\.0\d*\b)\d")
_PULSES = 3
# Which of several services of a composition or pod wrote a line.
_SERVICE = re.compile(r"[\w.-]{1,80} {1,40}\| |\[pod/\S{1,200}\] ")
# What starts beside the one that failed may reach one more phase.
_PHASES = 2
# A bar that is full, and what transformers' Trainer says of a training that is over.
_FULL = re.compile(r"100%\|[^|]*\| (\d+)/\1 ")
_DONE = "'train_runtime': "
# They write of whatever happens on the host.
_BYSTANDERS = ("raylet", "kernel")
# What a script prints of each of its steps, bars included, begins alike but for numbers. Of so many kinds of lines it
# is remembered where they first and last stood.
_NUMBERS = re.compile(r"[\d\s#█▏▎▍▌▋▊▉]+")
_SHAPES = 256
_LONGEST_SHAPE = 24
_DRAWN = 200
# A server that was up for so few lines has served nobody.
_BREATH = 30


@dataclass(slots=True)
class Course:
    """What became of a server, as line numbers: None where it did not happen.

    `up` is where the server said that it is ready, `death` where a process announced that it cannot go on, `asked`
    where somebody asked the server to end, `ending` where it began to end in order, `alive` where it last answered a
    request or told its throughput, `raised` where an error was last reported, `last` the last line. `shapes` are the
    kinds of lines of a script, by who prints them, with their first and last number, `full` is where one of its bars
    was last full, `done` where it said that it is through. `pulses` are where an engine last told that it generates,
    the newest at `moment`, `phases` where start-up last reached others.
    """

    last: int = 0
    alive: int = 0
    up: int | None = None
    death: int | None = None
    asked: int | None = None
    ending: int | None = None
    raised: int = 0
    full: int = 0
    done: int = 0
    shapes: dict[tuple[str | None, str], tuple[int, int]] = field(default_factory=dict)
    pulses: deque[Line] = field(default_factory=lambda: deque(maxlen=_PULSES))
    phases: deque[int] = field(default_factory=lambda: deque(maxlen=_PHASES))
    moment: str | None = None

    def pass_by(self, line: Line) -> None:
        """Take note of the next line, whatever it says."""
        self.last = line.number
        if any(sign in line.text for sign in _LIFE):
            self.alive = line.number
            self._listen(line)
        elif line.record and (" 200 " in line.text or "ccess" in line.text) and _ANSWER.search(line.text):
            self.alive = line.number
        elif self.up is None and not line.record:
            self._remember(line)

    def _listen(self, line: Line) -> None:
        if _PULSE.search(line.text) and (line.time is None or line.time != self.moment):
            self.moment = line.time
            self.pulses.append(line)

    def _remember(self, line: Line) -> None:
        text = line.text[:_DRAWN]
        if not any(map(str.isdigit, text)) or (text[:1].isspace() and "%|" not in text):
            return
        if _FULL.search(line.text):
            self.full = line.number
        elif _DONE in text:
            self.done = line.number
        shape = (line.process, _NUMBERS.sub("0", text)[:_LONGEST_SHAPE])
        first, _ = self.shapes.get(shape, (line.number, 0))
        if shape in self.shapes or len(self.shapes) < _SHAPES:
            self.shapes[shape] = (first, line.number)

    @property
    def stopped(self) -> bool:
        """Whether it was asked to end before anything said that it must: what comes after that is of the stop."""
        return self.asked is not None and self.death is None

    @property
    def ended_in_order(self) -> bool:
        """Whether it was asked to end, or ended as one does that was."""
        return self.stopped or (self.ending is not None and self.death is None)

    @property
    def stillborn(self) -> bool:
        """Whether it said that it is ready and ended right away, unasked: SGLang warms up though its port is taken."""
        return self.up is not None and self.ending is not None and not self.stopped and self.ending - self.up <= _BREATH

    def failed(self, cause: Candidate | None, *, ready: bool) -> bool:
        """Judge a log whose server's end is not known.

        Args:
            cause: the best candidate for a first cause.
            ready: whether the server had been up.

        Returns:
            True if it failed. Before readiness an error that nobody handled is the end of a start, unless start-up
            went on after it. Later a server outlives errors: only its engine's death counts, and what an unhandled
            exception left at the very end.
        """
        if self._lived_on(cause) or self._ran_out_of_time(cause):
            return False
        if self.death is not None:
            return cause is not None or not self._was_ending
        if cause is None or not cause.strong or self._outlived(cause):
            return False
        if cause.rank >= Rank.FRONT and self.alive > cause.line.number:
            return False
        if not ready:
            return cause.certain or not self.phases or self.phases[-1] <= cause.line.number
        if cause.traceback is not None and cause.traceback.kind is Kind.NATIVE and cause.certain:
            return True
        if cause.rank.is_engine and cause.process is not None:
            return cause.certain or self._went_down_after(cause)
        # uvicorn that cannot listen on its port ends in order, for that reason.
        ended = self.ending is not None and not (cause.refused and self._went_down_after(cause))
        return not ended and self.last - cause.line.number <= _TAIL_LINES

    def _lived_on(self, cause: Candidate | None) -> bool:
        """Whether somebody only quoted a death, or another died: the server generates after it as before."""
        number = max(cause.line.number if cause else 0, self.death or 0)
        if len(self.pulses) < _PULSES or self.pulses[0].number <= number or self.pulses[-1].number < self.raised:
            return False
        if self.ending is not None and number < self.ending < self.pulses[0].number:
            return False
        service = _service(cause.line) if cause else None
        return all(_service(pulse) == service for pulse in self.pulses)

    def _ran_out_of_time(self, cause: Candidate | None) -> bool:
        """Whether a job that served had but the time that it was given: an end as good as any that is asked for."""
        match = cause.match if cause else None
        if cause is None or match is None or match.signature.id != "ended-by-scheduler":
            return False
        return match.groups.get("why") == "TIME LIMIT" and self.up is not None and self.up < cause.line.number

    @property
    def _was_ending(self) -> bool:
        """Whether a server that was up ended in order when something in it died: that was its own doing.

        Of a log whose head is missing an answered request tells that it was up.
        """
        up = self.up or self.alive
        if not up or self.ending is None or self.death is None:
            return False
        return up < self.ending < self.death

    def in_words(self, *, ready: bool) -> str:
        """What became of a server that did not fail.

        Args:
            ready: whether it had been up.
        """
        if self.stopped:
            return "Somebody asked the server to end, and it ended."
        if self.ending is not None:
            return "The server ended in order."
        return "Nothing in the log says that the server failed." + ("" if ready else " It was not ready yet.")

    def _outlived(self, cause: Candidate) -> bool:
        """Whether what printed an error, or stood by, went on as before."""
        return self._went_on_after(cause) or self._started_after(cause)

    def _started_after(self, cause: Candidate) -> bool:
        """Whether a program logged an exception that it had caught, and started up all the same.

        What nobody caught ends the program; of others that start beside it no phase counts, so it takes several.
        """
        report = cause.traceback
        if report is None or report.header is None or not report.header.record or cause.rank is not Rank.MAIN:
            return False
        return len(self.phases) == _PHASES and self.phases[0] > self.raised

    def _went_on_after(self, cause: Candidate) -> bool:
        """Whether a script printed an error that it had caught (`item 7: Traceback …`), and went on with its steps."""
        report = cause.traceback
        if report is None:
            return cause.process in _BYSTANDERS and self._stepped(cause.line.number)
        if report.header is None or cause.headed or cause.rank is not Rank.MAIN:
            return False
        if self.done > self.raised:
            return True
        if report.header.number != report.first or report.header.record:
            return False
        return self._stepped(report.first) or self.full > self.raised

    def _stepped(self, number: int) -> bool:
        return any(first < number and last > self.raised for first, last in self.shapes.values())

    def _went_down_after(self, cause: Candidate) -> bool:
        return not self.stopped and self.ending is not None and 0 <= self.ending - cause.line.number <= _WAKE_LINES


def _service(line: Line) -> str | None:
    found = _SERVICE.match(line.raw)
    return found[0] if found else None
