"""A post-mortem as Markdown for a ticket: nothing in it that others must not read. Pure but for the time zone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from supervise.group.members import told
from supervise.report.console import RELAUNCH
from supervise.report.postmortem import PostMortem, when
from supervise.report.private import private
from supervise.text import duration, printable, shorten

if TYPE_CHECKING:
    from supervise.model.diagnosis import Diagnosis

_WIDTH = 300
# Inside of words an underscore is no markup.
_MARKUP = re.compile(r"([\\`*\[<>|]|(?<!\w)_|_(?!\w)|^#|~(?=~))")


def ticket(what: PostMortem) -> str:
    """Write it.

    Args:
        what: the post-mortem.

    Returns:
        Markdown, with a line feed at its end.
    """
    parts = [f"## {_plain(what.headline)}: {_plain(_summary(what))}", _table(_head(what))]
    if what.cause is not None:
        parts += ["### Cause", *_cause(what.cause, what.history)]
    if what.timeline:
        parts += ["### Timeline", _table([(f"+{duration(e.at_s)}", _lasted(e.name, e.took_s)) for e in what.timeline])]
    parts += ["### Changed", _items(what.comparison)]
    if what.left is not None:
        named = [f"survived: {told(each)}" for each in what.left.survivors]
        parts += ["### Left behind" if not what.left.clean else "### Verified", _items([*what.left.sentences, *named])]
    if what.files:
        parts += ["### Files", _items(f"{path}: {said}" for path, said in what.files)]
    if what.notes:
        parts += ["### Notes", _items(what.notes)]
    return "\n\n".join(parts) + "\n"


def _summary(what: PostMortem) -> str:
    return (what.cause.text or what.cause.meaning) if what.cause is not None else what.how


def _head(what: PostMortem) -> Iterator[tuple[str, str]]:
    yield "engine", what.engine or "unknown"
    if what.model:
        yield "model", what.model
    if what.began is not None:
        yield "began", when(what.began)
    if what.seconds is not None:
        yield "so far" if what.live else "lasted", duration(what.seconds)
    yield "runs" if what.live else "ended", what.how
    if what.exit_status is not None:
        yield "exit", f"{what.exit_status} {what.exit_means}".strip()
    if what.command:
        yield "command", shlex.join(what.command)


def _cause(cause: Diagnosis, history: str) -> Iterator[str]:
    if cause.evidence:
        yield _fenced(f"{line.number:>6}: {_private(line.raw)}" for line in cause.evidence)
    who = ", ".join(
        part
        for part in (
            cause.process,
            None if cause.rank is None else f"rank {cause.rank}",
            cause.phase,
            None if cause.line is None else f"line {cause.line}",
        )
        if part
    )
    rows = [
        ("where", who),
        ("means", cause.meaning),
        ("relaunch", RELAUNCH[cause.failure.value]),
        ("history", history),
        ("known as", cause.signature or ""),
        ("fingerprint", cause.fingerprint or ""),
    ]
    yield _table([(name, said) for name, said in rows if said])
    if cause.advice:
        yield "What to try:\n\n" + _items(cause.advice)


def _lasted(name: str, seconds: float | None) -> str:
    return name if seconds is None else f"{name}, {duration(seconds)}"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {_plain(said)} |" for name, said in rows)])


def _items(phrases: Iterable[str]) -> str:
    return "\n".join(f"- {_plain(phrase)}" for phrase in phrases)


def _fenced(lines: Iterable[str]) -> str:
    """A block that no line of a log can end."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _plain(text: str) -> str:
    """Text that stays text."""
    return _MARKUP.sub(r"\\\1", _private(text))


def _private(text: str) -> str:
    return shorten(printable(private(text.strip())).replace("\n", " "), _WIDTH)
