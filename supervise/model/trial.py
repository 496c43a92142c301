"""A trial: what is asked of a server that has become ready, and what its attempt says about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from supervise.model.exits import MEANING, Exit

if TYPE_CHECKING:
    from collections.abc import Callable

ELSEWHERE = "its port is answered by somebody else"
"""How a diagnosis calls the end of a server in whose place another one answered."""

PASSING = ("transient", "load")
"""Classes of failures that may be different the next time."""

_WIDTH = 200
_OURS = {"broken": "supervise itself failed", "keeper-lost": "its keeper was killed"}


class Verdict(Enum):
    """What a trial comes to; the value is the exit status, as `git bisect run` reads it (git-bisect(1))."""

    PASS = 0
    FAIL = 1
    SKIP = 125

    @property
    def word(self) -> str:
        """As people read it."""
        return {Verdict.PASS: "passed", Verdict.FAIL: "failed", Verdict.SKIP: "cannot be judged"}[self]


class Judgement(NamedTuple):
    """A verdict, why, and the seconds until the first token, None where nobody has seen one."""

    verdict: Verdict
    why: str
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What a completion has to be. `matches` searches a text for the user's expression, `pattern` is how that reads."""

    text: str | None = None
    pattern: str | None = None
    matches: Callable[[str], bool] | None = field(default=None, compare=False)
    json: bool = False
    max_ttft_s: float | None = None
    garbage: bool = False

    @property
    def any(self) -> bool:
        """Whether the user has said anything of it."""
        return self != Expected()


class Setting(NamedTuple):
    """What was set for a trial: a flag or a variable, with all its names, as they are spelled on a command line.

    `words` are the value, none for a switch that is on; `absent` for one that is off and has no form for that.
    """

    names: frozenset[str]
    words: tuple[str, ...] = ()
    variable: bool = False
    absent: bool = False

    @property
    def title(self) -> str:
        """What people call it; no value is in it."""
        return max(self.names, key=lambda name: (not name.startswith("--no-"), len(name), name))


@dataclass(frozen=True, slots=True)
class Trial:
    """What is asked of a server once it is ready.

    `command` is the user's, for the shell; without it a completion is asked for where the engine serves them.
    `prompt` and `max_tokens` are None where the user has not said. `timeout_s` is how long either may take. `settings`
    are what is tried of a sweep: what does not arrive has not been. `typed` is the server's command line as it was
    typed, before a value was set in it; empty where none was. `course` is filled in while the attempt lasts.
    """

    command: str | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    expected: Expected = field(default_factory=Expected)
    timeout_s: float = 300.0
    settings: tuple[Setting, ...] = ()
    typed: tuple[str, ...] = ()
    course: Course = field(default_factory=lambda: Course(), compare=False)

    @property
    def wants_completion(self) -> bool:
        """Whether the user has said anything of the completion: then ready is not enough."""
        return self.prompt is not None or self.max_tokens is not None or self.expected.any


@dataclass(slots=True)
class Course:
    """What has become of the attempt. `outcome` and `failure` are named as in outcome.json.

    `fatal`: while it was tried, its log said that it cannot go on; of what is said once it is asked to end nobody can
    tell what it means. `stopped_by` is the signal of somebody else who wanted the end, `end` the few words of the
    diagnosis on how the server ended. `unread` names a changed file that nobody has imported, `altered` what was
    set and has not arrived: then something else was tried than was meant. `blamed` is why a launch was refused that
    could not have come to anything with what was set for it, `lasting` that any other one would have been refused, too.
    """

    attempt: int | None = None
    ready_s: float | None = None
    refusal: str | None = None
    blamed: str | None = None
    lasting: bool = False
    fatal: bool = False
    tested: Judgement | None = None
    stopped_by: int | None = None
    status: int | None = None
    outcome: str | None = None
    cause: str | None = None
    failure: str | None = None
    signature: str | None = None
    fingerprint: str | None = None
    advice: tuple[str, ...] = ()
    end: str | None = None
    unread: str | None = None
    altered: str | None = None


def judge(course: Course) -> Judgement:
    """What an attempt that is over says about the code and the settings that it was made with.

    A failure that is theirs is a fail. One that the machine or somebody else has brought about (a port that is taken,
    GPU memory that another process holds), and whatever prevented a look, says nothing.

    Args:
        course: of the attempt.
    """
    if course.attempt is None and course.blamed is not None:
        return Judgement(Verdict.FAIL, course.blamed)
    if (why := _unseen(course)) is not None:
        return _skip(why)
    if course.outcome not in (None, "asked") or (course.fatal and course.failure is not None):
        return _failed(course)
    return course.tested or _skip("it was stopped before anything could be said of it")


def _unseen(course: Course) -> str | None:
    """Why the server itself has not been seen at work, None if it has."""
    if course.status == Exit.SURVIVORS:
        return f"{MEANING[Exit.SURVIVORS]} of it"
    if course.attempt is None:
        return course.refusal or MEANING.get(course.status or 0) or "nothing was launched"
    if course.outcome in _OURS:
        return _OURS[course.outcome]
    if course.outcome == "not-launched":
        return course.cause or "it could not be executed"
    return course.unread or course.altered


def _failed(course: Course) -> Judgement:
    cause = _shortened(" ".join((course.cause or _how(course)).split()))
    if course.end == ELSEWHERE:
        return _skip(cause)
    # That it hangs is called transient for want of a cause: a relaunch may help, and the code is still to blame.
    blameless = course.outcome == "hung" and course.signature is None
    if course.failure in PASSING and not blameless:
        return _skip(f"{cause} ({course.failure}: it may be different the next time)")
    return Judgement(Verdict.FAIL, cause, course.tested and course.tested.ttft_s)


def _how(course: Course) -> str:
    return {"not-ready": "not ready in time", "hung": "it hangs", "died": "it ended by itself"}.get(
        course.outcome or "", "it failed"
    )


def _shortened(text: str) -> str:
    """Not in the middle of a word, and not as if that were all."""
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH].rpartition(' ')[0] or text[:_WIDTH]} …"


def _skip(why: str) -> Judgement:
    return Judgement(Verdict.SKIP, why)
