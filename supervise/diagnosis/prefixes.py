"""Tells what was put before a line from the line's own text: process, rank, level, time, source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from supervise.diagnosis import records
from supervise.diagnosis.envelopes import (
    BARE_MOMENTS,
    BRACKET_ENVELOPES,
    INSIDE,
    MOMENT_ENVELOPES,
    NUMBERED,
    OWN,
    PARENTHESIS_RULES,
    PROCESS,
    QUOTES,
    RELAY_ENVELOPES,
    WORD_ENVELOPES,
)
from supervise.diagnosis.heads import OUTCRY, Head, Kind, Rule, level_of, rank_in
from supervise.diagnosis.loggers import (
    BRACKET_RULES,
    LEVEL_RULES,
    MOMENT_RULES,
    SGLANG,
    SGLANG_RULES,
    UVICORN,
    VLLM,
    WORD_RULES,
)
from supervise.model.diagnosis import Line

# ECMA-48: control sequences (CSI), operating-system commands (OSC, ended by BEL or ST), and two-byte escapes.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# C0 but TAB, DEL, C1, the marks that reorder text on a terminal, those that show nothing, those that end a line, and
# the half characters that a record in JSON can hold and no file can.
_CONTROL = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
# Colours that lost their escape on the way, or got it spelt out: by the journal, by `cat -v`, by a copy into a ticket.
_PALE = re.compile(
    r"(?:\^\[|\\x1b|\\033|\\e|\\u001b|#033|\ufffd)\[[\d;]{0,12}m|\[(?:\d{1,3};)*\d{1,3}m(?!\])"
    # The colours of a process's name without escape and bracket.
    r"|^(?:1;)?3\dm(?=\()|(?<=\d\))0(?:;0)?m(?= |$|\()"
)
_ENDS = re.compile(r"\r\n|\r|\n")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].{0,300}\Z")

_LEVEL_LETTERS = "TDINSWEFCPV"
_PIECES = 8
_NESTED = 3
# Characters of a whole record that each of its lines keeps, as many as of any other line.
_SHOWN = 16 * 1024
# Characters of a name in a record; others are bounded by the line.
_NAME = 200
_QUIET = frozenset({"TRACE", "DEBUG", "INFO"})
# What a dying engine says, also where the one that relays it calls all it relays information.
_OUTCRY = re.compile(rf"\s|\Z|{OUTCRY}")


def _table() -> dict[str, tuple[Rule, ...]]:
    """The rules by the character that a piece begins with."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    word = WORD_ENVELOPES + WORD_RULES
    table: dict[str, tuple[Rule, ...]] = dict.fromkeys(letters + letters.upper() + "_", word)
    table |= dict.fromkeys(_LEVEL_LETTERS, LEVEL_RULES + word)
    # Pods and hosts may begin with a digit.
    table |= dict.fromkeys("0123456789", MOMENT_ENVELOPES + MOMENT_RULES + BARE_MOMENTS + word)
    table |= {" ": (NUMBERED,), "(": PARENTHESIS_RULES, ">": QUOTES}
    return table | {"[": RELAY_ENVELOPES + BRACKET_RULES + BRACKET_ENVELOPES}


_RULES = _table()


def parse(raw: str, number: int) -> Line:
    """Take one line apart.

    Args:
        raw: the line without its end. Escape sequences, control characters and a pager's padding are removed from it.
        number: its number, counted from 1.

    Returns:
        The line. Without a known prefix its text is the whole line. Of a record in JSON it is the first line of what
        the record says; `parse_all` gives them all.
    """
    raw = _clean(raw)
    return _common(raw, number) or next(_unwrapped(raw, raw, number, Head(), 0))


def parse_all(raw: str, number: int) -> tuple[Line, ...]:
    """Take one line apart that may hold several: a record in JSON with a traceback in its message.

    Args:
        raw: the line without its end, as for `parse`.
        number: its number, counted from 1.

    Returns:
        At least one line; all of them have the same number and the same `raw`.
    """
    if '{"' not in raw:
        return (parse(raw, number),)
    raw = _clean(raw)
    common = _common(raw, number)
    return (common,) if common else tuple(_unwrapped(raw[:_SHOWN], raw, number, Head(), 0))


def _clean(raw: str) -> str:
    if not raw.isprintable():
        raw = _CONTROL.sub("", _ANSI.sub("", raw)).replace("\xa0", " ")
    if "0m" in raw:
        raw = _PALE.sub("", raw)
    raw = raw.removesuffix("^M")
    # A pager pads what it shows of a journal.
    return raw.rstrip(" ") if raw.endswith("  ") else raw


# --- what nearly all lines are ----------------------------------------------------------------------------------------


def _common(raw: str, number: int) -> Line | None:
    """Take apart what the engines print where nothing wraps them; None for the rest."""
    first = raw[:1]
    match first:
        case "(":
            return _of_process(raw, number)
        case "[":
            return _of_sglang(raw, number)
        case "" | " ":
            return None if "\t" in raw[:8] or _may_hold_another(raw) else Line(number, raw, raw)
        case "{":
            return None
    if first in _LEVEL_LETTERS and (line := _of_level(raw, number, 0, None, None, None)):
        return line
    if _may_hold_another(raw) or _piece(raw, 0, _RULES.get(first, ())):
        return None
    return Line(number, raw, raw)


def _of_process(raw: str, number: int) -> Line | None:
    prefix = PROCESS.match(raw)
    if prefix is None or "[repeated " in raw:
        return None
    process, ranks, pid = prefix.groups()
    start = prefix.end()
    first = raw[start : start + 1]
    rank = rank_in(ranks or process)
    if first in _LEVEL_LETTERS:
        return _of_level(raw, number, start, process, int(pid), rank)
    if first != " " or _may_hold_another(raw):
        return None
    return Line(number, raw, raw[start:], process, int(pid), rank=rank)


def _of_level(raw: str, number: int, start: int, process: str | None, pid: int | None, rank: int | None) -> Line | None:
    if prefix := VLLM.match(raw, start):
        level, time, source = prefix.groups()
        return Line(number, raw, raw[prefix.end() :], process, pid, level, source, True, rank, time)
    if prefix := UVICORN.match(raw, start):
        return Line(number, raw, raw[prefix.end() :], process, pid, prefix["level"], record=True, rank=rank)
    return None


def _of_sglang(raw: str, number: int) -> Line | None:
    prefix = SGLANG.match(raw)
    # Other loggers begin with a moment in brackets too, and go on with more brackets.
    if prefix is None or raw.startswith(("[", " "), prefix.end()) or ": [" in raw or "NCCL" in raw:
        return None
    if OWN.match(raw, prefix.end()):
        return None
    time, process = prefix["time"], prefix["process"].strip() or None
    rank = rank_in(process) if process else None
    if raw[prefix.end() : prefix.end() + 1] in _LEVEL_LETTERS and (inner := _piece(raw, prefix.end(), SGLANG_RULES)):
        said = inner[1].groupdict()
        start = inner[1].end()
        return Line(number, raw, raw[start:], process, None, said["level"], said.get("source"), True, rank, time)
    return Line(number, raw, raw[prefix.end() :], process, None, None, None, True, rank, time)


def _may_hold_another(raw: str) -> bool:
    return ".py:" in raw or "[20" in raw


# --- what wraps them --------------------------------------------------------------------------------------------------


def _unwrapped(raw: str, body: str, number: int, head: Head, nested: int) -> Iterator[Line]:
    start = _walk(body, head)
    said = records.read(body[start:]) if nested < _NESTED and body.startswith('{"', start) else None
    if said is not None:
        yield from _of_record(raw, said, number, head, nested)
        return
    text = body[start:]
    if head.process is not None or head.pid is not None:
        text = _REPEATED.sub("", text) if "[repeated " in text else text
    level = None if head.relayed and head.level in _QUIET and _OUTCRY.match(text) else head.level
    yield Line(number, raw, text, head.process, head.pid, level, head.source, head.record, head.rank, head.time)


def _walk(text: str, head: Head) -> int:
    """Take the pieces of a prefix off one after the other.

    Args:
        text: where they stand, from its beginning.
        head: takes what they say.

    Returns:
        Where the rest begins.
    """
    at, searched = 0, False
    for _ in range(_PIECES):
        found = _piece(text, at, _RULES.get(text[at : at + 1], ()))
        if found is None:
            if searched or not _may_hold_another(text):
                break
            searched = True
            if margin := INSIDE.match(text, at):
                at = margin.end()
                continue
            break
        rule, piece = found
        head.take(rule, piece.groupdict())
        at = piece.end()
        if rule.kind is Kind.END:
            break
        if rule.kind is Kind.HEAD and not OWN.match(text, at):
            return _rest_of_head(text, at, head)
    return at


def _rest_of_head(text: str, at: int, head: Head) -> int:
    found = _piece(text, at, SGLANG_RULES + WORD_RULES)
    if found is None:
        return at
    head.take(found[0], found[1].groupdict())
    return found[1].end()


def _piece(text: str, at: int, rules: tuple[Rule, ...]) -> tuple[Rule, re.Match[str]] | None:
    for rule in rules:
        if (not rule.literal or rule.literal in text) and (piece := rule.pattern.match(text, at)):
            return rule, piece
    return None


# --- records in JSON --------------------------------------------------------------------------------------------------


def _of_record(raw: str, said: records.Said, number: int, head: Head, nested: int) -> Iterator[Line]:
    head = replace(head, time=_clean(said.time[:_NAME]) if said.time else head.time)
    if said.logged:
        head.level, head.source, head.record = level_of(said.level), _clean((said.source or "")[:_NAME]), True
    if said.process and said.pid is not None:
        head.process, head.pid = _clean(said.process[:_NAME]), said.pid
        head.rank = rank_in(head.process)
    texts = _ENDS.split(said.text.rstrip("\r\n"))
    # What was logged as information stays so as a whole: its later lines may be what somebody sent.
    head.relayed = said.logged and _OUTCRY.match(texts[0]) is not None
    if not head.relayed and said.logged:
        yield from _plainly(raw, texts, number, head, nested)
        return
    for text in texts:
        for line in _unwrapped(raw, _clean(text), number, replace(head), nested + 1):
            yield replace(line, level=None) if head.relayed and line.level in _QUIET else line


def _plainly(raw: str, texts: list[str], number: int, head: Head, nested: int) -> Iterator[Line]:
    """The lines of a logged message: the first may have a prefix of its own, the others are text."""
    first = next(_unwrapped(raw, _clean(texts[0]), number, replace(head), nested + 1))
    yield first
    for text in texts[1:]:
        yield replace(first, text=_clean(text))
