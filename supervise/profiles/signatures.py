"""Loads and validates signature sets: profiles/signatures/*.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, TypeVar

from supervise.model.diagnosis import FailureClass, Role, Signature, SignatureSet, Trap
from supervise.profiles import data_dir
from supervise.profiles.errors import ProfileError

PHASES = (
    "config", "engine", "distributed", "weights", "profile", "compile", "kv cache", "graphs", "server", "warm-up",
    "run", "stop",
)  # fmt: skip
"""What a signature may name as its phase: the phases of the profiles, and what comes after start-up."""

FIGURES: Mapping[str, tuple[str, ...]] = {
    "lower-fraction": ("fraction_flag", "fraction", "fraction_left", "lower_fraction"),
    "utilisation": ("utilisation",),
    "free-utilisation": ("held_gib", "free_utilisation"),
    "free-share": ("free_share",),
    "short-by": ("short_by",),
    "fitting-length": ("fitting_length",),
    "possible-tp": ("possible_tp",),
    "lora-rank": ("lora_rank",),
    "gpus-needed": ("gpus_needed", "weights"),
    "halves": ("half_seqs", "half_tokens", "half_requests", "half_chunk", "half_graphs"),
    "readable-size": ("wanted_size",),
}
"""What `compute` may name, with the fields that each gives to templates (`supervise.diagnosis.figures`)."""

_ID = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SIGNATURE_KEYS = (
    "id", "role", "literals", "pattern", "class", "fatal", "phase", "meaning", "advice", "constraint", "compute",
    "at_run", "explains", "match", "nomatch",
)  # fmt: skip
_TRAP_KEYS = ("id", "literals", "pattern", "covers", "why", "match", "nomatch")

_E = TypeVar("_E", bound=StrEnum)
_T = TypeVar("_T")


def load_signatures(names: Iterable[str]) -> SignatureSet:
    """Load the named sets, in that order, as one.

    Args:
        names: file names in profiles/signatures/ without `.toml`.

    Returns:
        All signatures and traps. Every id is unique within it.

    Raises:
        ProfileError: a set does not exist, cannot be read, or has an entry that does not fit.
    """
    return _join(tuple(dict.fromkeys(names)))


def available_sets() -> tuple[str, ...]:
    """Name all sets there are, sorted."""
    return tuple(sorted(path.stem for path in _directory().glob("*.toml")))


@cache
def _join(names: tuple[str, ...]) -> SignatureSet:
    sets = [_load(name) for name in names]
    joined = SignatureSet(
        tuple(signature for each in sets for signature in each.signatures),
        tuple(trap for each in sets for trap in each.traps),
    )
    _refuse_twins(names, [each.id for each in joined.signatures] + [each.id for each in joined.traps])
    return joined


def _directory() -> Path:
    return data_dir() / "signatures"


def _load(name: str) -> SignatureSet:
    path = _directory() / f"{name}.toml"
    if name not in available_sets():
        raise ProfileError(str(path), "signatures", f"no set is called {name!r}", ", ".join(available_sets()))
    return parse_signatures(path.read_bytes(), str(path))


def parse_signatures(data: bytes, file: str) -> SignatureSet:
    """Read one set.

    Args:
        data: the TOML text.
        file: its path, for errors.

    Returns:
        Its signatures and traps.

    Raises:
        ProfileError: naming file, key, what is wrong with it, and what is allowed.
    """
    try:
        # Some editors put a mark of the byte order first, which TOML does not know.
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(file, "", f"is not TOML: {error}", "a TOML document in UTF-8") from error
    _Entry(document, file, "").only("signature", "trap")
    return SignatureSet(
        tuple(_signature(entry) for entry in _entries(document, "signature", file)),
        tuple(_trap(entry) for entry in _entries(document, "trap", file)),
    )


class _Entry:
    """One table, read key by key; every complaint names the file and the key."""

    def __init__(self, table: Mapping[str, Any], file: str, where: str) -> None:
        self._table, self._file, self._where = table, file, where

    def error(self, key: str, problem: str, allowed: str) -> ProfileError:
        return ProfileError(self._file, f"{self._where}.{key}" if self._where else key, problem, allowed)

    def only(self, *keys: str) -> None:
        for key in self._table:
            if key not in keys:
                raise self.error(key, "is not a known key", ", ".join(keys))

    def has(self, key: str) -> bool:
        return key in self._table

    def get(self, key: str, kind: type[_T], allowed: str) -> _T:
        value = self._table.get(key)
        if not isinstance(value, kind) or value == "":
            problem = "is missing" if key not in self._table else f"is {value!r}"
            raise self.error(key, problem, allowed)
        return value

    def text(self, key: str) -> str:
        return self.get(key, str, "a string that is not empty")

    def texts(self, key: str, at_least: int = 1) -> tuple[str, ...]:
        allowed = f"a list of at least {at_least} strings"
        values: list[object] = self.get(key, list, allowed)
        texts = tuple(value for value in values if isinstance(value, str) and value)
        if len(texts) != len(values) or len(texts) < at_least:
            raise self.error(key, f"is {values!r}", allowed)
        return texts

    def one_of(self, key: str, kind: type[_E]) -> _E:
        value = self.get(key, str, ", ".join(kind))
        found = next((member for member in kind if member == value), None)
        if found is None:
            raise self.error(key, f"is {value!r}", ", ".join(kind))
        return found

    def flag(self, key: str) -> bool:
        return self.get(key, bool, "true or false") if key in self._table else False

    def phase(self) -> str | None:
        if "phase" not in self._table:
            return None
        phase = self.text("phase")
        if phase not in PHASES:
            raise self.error("phase", f"is {phase!r}", ", ".join(PHASES))
        return phase

    def id(self) -> str:
        value = self.text("id")
        if not _ID.fullmatch(value):
            raise self.error("id", f"is {value!r}", "lower-case words joined by dashes")
        return value

    def pattern(self) -> re.Pattern[str]:
        source = self.text("pattern")
        try:
            return re.compile(source)
        except re.error as error:
            raise self.error("pattern", f"is no regular expression: {error}", "Python's re syntax") from error

    def computed(self) -> frozenset[str]:
        """The fields that calculators give to this entry's templates."""
        names = self.texts("compute") if self.has("compute") else ()
        for name in names:
            if name not in FIGURES:
                raise self.error("compute", f"names {name!r}", ", ".join(FIGURES))
        return frozenset(given for name in names for given in FIGURES[name])

    def template(self, key: str, text: str, known: Iterable[str]) -> str:
        names = tuple(known)
        allowed = "fields named after groups of the pattern or given by `compute`: " + (", ".join(names) or "none here")
        try:
            used = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
        except ValueError as error:
            raise self.error(key, f"has a stray brace: {error}", allowed) from error
        for name in used:
            if name not in names:
                raise self.error(key, f"uses {{{name}}}", allowed)
        return text


def _entries(document: Mapping[str, Any], key: str, file: str) -> list[_Entry]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ProfileError(file, key, "is not a list of tables", f"[[{key}]] tables")
    return [_Entry(table, file, f"{key}[{table.get('id', index)}]") for index, table in enumerate(tables)]


def _signature(entry: _Entry) -> Signature:
    entry.only(*_SIGNATURE_KEYS)
    pattern = entry.pattern()
    computed = entry.computed()
    known = (*pattern.groupindex, *sorted(computed))
    advice = entry.texts("advice", at_least=0)
    constraint = entry.text("constraint") if entry.has("constraint") else None
    return Signature(
        id=entry.id(),
        role=entry.one_of("role", Role),
        literals=entry.texts("literals"),
        pattern=pattern,
        failure=entry.one_of("class", FailureClass),
        fatal=entry.get("fatal", bool, "true or false"),
        phase=entry.phase(),
        meaning=entry.template("meaning", entry.text("meaning"), known),
        advice=tuple(entry.template("advice", text, known) for text in advice),
        match=entry.texts("match"),
        nomatch=entry.texts("nomatch"),
        constraint=entry.template("constraint", constraint, known) if constraint else None,
        at_run=entry.one_of("at_run", FailureClass) if entry.has("at_run") else None,
        explains=entry.texts("explains") if entry.has("explains") else (),
    )


def _trap(entry: _Entry) -> Trap:
    entry.only(*_TRAP_KEYS)
    return Trap(
        id=entry.id(),
        literals=entry.texts("literals"),
        pattern=entry.pattern(),
        why=entry.text("why"),
        match=entry.texts("match"),
        nomatch=entry.texts("nomatch"),
        covers=entry.flag("covers"),
    )


def _refuse_twins(names: tuple[str, ...], ids: list[str]) -> None:
    twins = sorted({each for each in ids if ids.count(each) > 1})
    if twins:
        raise ProfileError(" + ".join(names), "id", f"is used twice: {', '.join(twins)}", "ids that are unique")
