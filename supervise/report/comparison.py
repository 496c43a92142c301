"""Two attempts next to each other: what differs, what cannot be compared, and what became of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from supervise.lifecycle.restart import identity
from supervise.model.restart import Identity
from supervise.report.cause import to_data
from supervise.report.changes import CIRCUMSTANCES, Difference, differences, package_differences
from supervise.report.equipment import equipped, unequipped
from supervise.report.revisions import patched, revised, undecided, unrevised
from supervise.report.standing import Side
from supervise.text import duration, shorten

if TYPE_CHECKING:
    from supervise.report.patches import Patch

VERSION = 1
"""Of the JSON; docs/compare.md says what it promises."""

# Seconds, and the share of the longer one: what moves less moves by itself.
_NOTICED_S, _NOTICED = 1.0, 0.2
_NAMED = 60
_LAST = ("circumstance", "host", "option")
_KEYS = {
    "argv": "command",
    "environment": "environment",
    "options": "options of supervise",
    "limits": "limits",
    **CIRCUMSTANCES,
}


class Phase(NamedTuple):
    """A phase of both starts: seconds of each, None where it was not reached, or nobody knows."""

    name: str
    before_s: float | None
    after_s: float | None

    @property
    def moved(self) -> bool:
        """Whether it takes noticeably longer or shorter than it did."""
        if self.before_s is None or self.after_s is None:
            return False
        return abs(self.before_s - self.after_s) >= max(_NOTICED_S, _NOTICED * max(self.before_s, self.after_s))

    @property
    def told(self) -> str:
        """`130 s -> 98 s`."""
        one, other = ("-" if each is None else duration(each) for each in (self.before_s, self.after_s))
        return f"{one} -> {other}"


class Course(NamedTuple):
    """What became of the end: the sentence, and whether it is the same one, None where nobody can tell."""

    told: str
    same: bool | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two attempts of a run.

    `patches` are None if the code of one of them is not known; `unknown` are phrases for what cannot be compared.
    """

    run: str
    before: Side
    after: Side
    differences: tuple[Difference, ...]
    patches: tuple[Patch, ...] | None
    unknown: tuple[str, ...]
    phases: tuple[Phase, ...]
    course: Course

    @property
    def same(self) -> bool | None:
        """Whether nothing differs but times; None if nothing that is known does, and something is not known."""
        if self.differences or self.course.same is False:
            return False
        return None if self.unknown or self.course.same is None else True

    @property
    def uncompared(self) -> str:
        """What of the causes is not known, in a phrase: `code not compared`; how they ended is told beside it."""
        sides = (self.before, self.after)
        parts = ["circumstances"] if any(map(_unrecorded_keys, sides)) else []
        codes = [side.sources for side in sides if side.sources is not None]
        parts += ["code"] if self.patches is None or unrevised(*codes) else []
        said = [f"{' and '.join(parts)} not compared"] if parts else []
        said += [f"content of {names} not compared"] if (names := _names(self.patches)) else []
        said += [f"{each.meanwhile} changed while #{each.number} loaded" for each in sides if each.meanwhile]
        return "; ".join(said)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is wrong with the files of both."""
        return tuple(dict.fromkeys((*self.before.notes, *self.after.notes)))

    def as_data(self, *, texts: bool) -> dict[str, Any]:
        """As JSON; see docs/compare.md.

        Args:
            texts: whether patches are in it with their text.
        """
        return {
            "version": VERSION,
            "run": self.run,
            "before": _side(self.before),
            "after": _side(self.after),
            "same": self.same,
            "differences": [_difference(each) for each in self.differences],
            "patches": None if self.patches is None else [_patch(each, texts=texts) for each in self.patches],
            "phases": [{**each._asdict(), "moved": each.moved} for each in self.phases],
            "end": {"same": self.course.same, "told": self.course.told},
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }


def compare(run: str, before: Side, after: Side, patches: tuple[Patch, ...] | None) -> Comparison:
    """Put two attempts next to each other.

    Args:
        run: the name of their run.
        before: the earlier one.
        after: the later one.
        patches: files whose content differs, None if the code of one of them is not known.

    Returns:
        What differs, and what cannot be told.
    """
    recorded = differences(before.record or {}, after.record or {})
    # What people change comes first: a line after an attempt has no room for all.
    found = [each for each in recorded if each.kind not in _LAST]
    if before.sources is not None and after.sources is not None:
        found += [*patched(patches or ()), *revised(before.sources, after.sources)]
    else:
        found += package_differences(before.slate or {}, after.slate or {})
    found += [each for each in recorded if each.kind in _LAST]
    found += equipped(before.record or {}, after.record or {})
    return Comparison(
        run=run,
        before=before,
        after=after,
        differences=tuple(found),
        patches=patches,
        unknown=tuple(_unknown(before, after, patches)),
        phases=_phases(before, after),
        course=_course(before, after),
    )


def _course(before: Side, after: Side) -> Course:
    """How the end of one compares with that of the other."""
    which = f"#{before.number}"
    if after.serves and before.cause is not None and before.ready_s is None:
        return Course(f"cause moved: {before.ended()} -> {after.ended()}", False)
    if before.outcome is None or after.outcome is None:
        return Course(_unlike(before, after), None)
    one, other = before.cause, after.cause
    if one is None and other is None:
        if before.ended() != after.ended():
            return Course(f"outcome moved: {before.ended()} -> {after.ended()}", False)
        return Course(f"{after.ended()} as {which}", True)
    if one is None or other is None:
        return Course(f"cause moved: {before.ended()} -> {after.ended()}", False)
    mine, its = identity(other), identity(one)
    if mine.same_as(its) or before.number == after.number:
        return Course(f"same cause as {which}", True)
    if not mine.known or not its.known:
        return Course(_unlike(before, after), None)
    return Course(f"cause moved: {_apart(before, after, mine, its)}", False)


def _unlike(before: Side, after: Side) -> str:
    """Two ends of which nobody knows whether they are the same."""
    return f"#{before.number}: {before.ended()}; #{after.number}: {after.ended()}"


def _apart(before: Side, after: Side, mine: Identity, its: Identity) -> str:
    """Both causes, in as many words as it takes to see that they are two."""
    for whole in (False, True):
        one, other = before.ended(whole=whole), after.ended(whole=whole)
        if one != other:
            return f"{one} -> {other}"
    return f"{one} ({its.fingerprint}) -> {other} ({mine.fingerprint})"


def _phases(before: Side, after: Side) -> tuple[Phase, ...]:
    names = dict.fromkeys((*before.phases, *after.phases))
    # What is told of all of it comes last, whichever of them reached it.
    ordered = sorted(names, key=lambda name: name == "ready")
    return tuple(Phase(name, before.phases.get(name), after.phases.get(name)) for name in ordered)


def _unknown(before: Side, after: Side, patches: tuple[Patch, ...] | None) -> list[str]:
    found = list(dict.fromkeys(phrase for side in (before, after) for phrase in _unrecorded(side)))
    if before.sources is not None and after.sources is not None:
        found += unrevised(before.sources, after.sources)
        found += ["content of changed files"] if patches is None else []
        found += [f"content of {names}"] if (names := _names(patches)) else []
    return found


def _names(patches: tuple[Patch, ...] | None) -> str:
    """Files of which nobody can tell whether they differ."""
    return shorten(", ".join(undecided(patches or ())), _NAMED)


def _unrecorded(side: Side) -> list[str]:
    which = f"#{side.number}"
    found = []
    if side.record is None:
        found.append(f"circumstances of {which}")
    elif missing := _unrecorded_keys(side):
        found.append(f"{', '.join(missing)} of {which}")
    if side.sources is None:
        found.append(f"code of {which}")
    if side.meanwhile:
        found.append(f"what {which} imported: {side.meanwhile} changed while it loaded")
    if side.outcome is None:
        found.append(f"end of {which}{', which runs' if side.live else ''}")
    return found


def _unrecorded_keys(side: Side) -> list[str]:
    record = side.record or {}
    missing = [name for key, name in _KEYS.items() if record.get(key) is None]
    return [*missing, "GPUs"] if unequipped(record) else missing


def _side(side: Side) -> dict[str, Any]:
    cause = side.cause
    return {
        "attempt": side.number,
        "live": side.live,
        "ended": side.ended(),
        "outcome": None if side.outcome is None else side.outcome.get("outcome"),
        "ready_s": side.ready_s,
        "cause": None if cause is None else to_data(cause),
    }


def _difference(each: Difference) -> dict[str, Any]:
    said = each._asdict()
    del said["short"]
    return said


def _patch(patch: Patch, *, texts: bool) -> dict[str, Any]:
    said = patch._asdict()
    if not texts:
        del said["text"]
    return said
