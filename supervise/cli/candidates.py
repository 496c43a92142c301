"""What may come next on a command line: read off the parser, so that no list of options has to be kept twice."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, NamedTuple, get_args

from supervise.cli.remote import split


class Kind(StrEnum):
    """What the shell is to offer; it knows best which files and programs there are."""

    WORDS = "words"
    FILES = "files"
    COMMANDS = "commands"


class Candidate(NamedTuple):
    """A whole word, and what is to be known of it."""

    word: str
    help: str = ""


class Answer(NamedTuple):
    """What may come next; words of ours may come beside what the shell offers."""

    kind: Kind
    candidates: tuple[Candidate, ...] = ()


class Known(NamedTuple):
    """What is asked only if it is wanted: names of runs (all, or those that live), of engine profiles, of hosts."""

    runs: Callable[[bool], Sequence[str]]
    profiles: Callable[[], Sequence[str]]
    hosts: Callable[[], Sequence[str]]


_LIVE = ("stop", "restart")
# Own metavars of options whose value is made up, not chosen.
_MADE_UP = ("FLAG=A,B,…", "MIB", "N", "N[/WINDOW]", "RE", "SECONDS", "TEXT", "[ADDR:]PORT")
_OURS = (
    Candidate("-H", "Run the same supervise on another host, over ssh."),
    Candidate("--host", "Run the same supervise on another host, over ssh."),
    Candidate("--version", "Show the version."),
)
# The option and its value as one word; a lone -H is completed to itself.
_HOST_BEGUN = re.compile(r"-H(?=.)|--host=")


def answer(cli: Any, words: Sequence[str], known: Known) -> Answer:
    """What may stand in the place of the last word.

    Args:
        cli: the whole command line, as click has it.
        words: all words after `supervise` up to that one, which may be empty.
        known: what the machine knows.
    """
    *before, typed = words or [""]
    if not before and (begun := _HOST_BEGUN.match(typed)) is not None:
        return _hosts(begun[0], typed.removeprefix(begun[0]), known)
    first = True
    while before and (named := split(before)) is not None:
        if not named[0]:
            return _hosts("", typed, known)
        before, first = named[1], False
        # The runs of this machine are none of that one.
        known = known._replace(runs=_no_runs)
    if not before and not typed.startswith("-"):
        return Answer(Kind.COMMANDS, _fitting(_verbs(cli), typed))
    if before and before[0] in cli.commands:
        return _within(cli.commands[before[0]], before[1:], typed, known)
    found = _within(cli.commands["run"], before, typed, known)
    if before or "=" in typed:
        return found
    return Answer(found.kind, (*found.candidates, *_fitting(_OURS[0 if first else -1 :], typed)))


def _no_runs(_: bool) -> Sequence[str]:
    return ()


def _hosts(before: str, typed: str, known: Known) -> Answer:
    """Names of hosts: for the end of a word that may have the option and the user in front of it."""
    user, at, name = typed.rpartition("@")
    fitting = [host for host in known.hosts() if host.startswith(name)]
    return Answer(Kind.WORDS, tuple(Candidate(f"{before}{user}{at}{host}") for host in fitting))


def _verbs(cli: Any) -> list[Candidate]:
    return [
        Candidate(name, command.get_short_help_str(100)) for name, command in cli.commands.items() if not command.hidden
    ]


class _Position(NamedTuple):
    """Where the next word stands: the option whose value it is, if it is one, and how many arguments are before it."""

    option: Any
    arguments: int
    options_over: bool


def _within(command: Any, before: Sequence[str], typed: str, known: Known) -> Answer:
    options = dict(_options(command))
    position = _position(options, before)
    if position.option is not None:
        return _values(position.option, command, typed, known)
    if position.arguments and command.context_settings.get("allow_interspersed_args") is False:
        return Answer(Kind.FILES)
    if not typed.startswith("-") or position.options_over:
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        place = arguments[min(position.arguments, len(arguments) - 1)] if arguments else None
        return _values(place, command, typed, known) if place is not None else Answer(Kind.WORDS)
    name, given, value = typed.partition("=")
    if given:
        if (option := options.get(name)) is None:
            return Answer(Kind.WORDS)
        found = _values(option, command, value, known)
        return Answer(found.kind, tuple(Candidate(f"{name}={word}", told) for word, told in found.candidates))
    shown = [Candidate(name, option.help or "") for name, option in options.items() if not option.hidden]
    return Answer(Kind.WORDS, _fitting([*shown, Candidate("--help", "Show this message and exit.")], typed))


def _options(command: Any) -> Iterator[tuple[str, Any]]:
    for param in command.params:
        if param.param_type_name == "option":
            for name in (*param.opts, *param.secondary_opts):
                yield name, param


def _position(options: Mapping[str, Any], before: Sequence[str]) -> _Position:
    option, waiting, arguments, over = None, 0, 0, False
    for word in before:
        if waiting:
            waiting -= 1
        elif over or not word.startswith("-") or word == "-":
            arguments += 1
        elif word == "--":
            over = True
        else:
            option = options.get(word)
            waiting = option.nargs if option is not None and not option.is_flag else 0
    return _Position(option if waiting else None, arguments, over)


def _values(param: Any, command: Any, typed: str, known: Known) -> Answer:
    """What the value of an option or an argument may be."""
    if choices := _choices(param):
        return _words(choices, typed)
    if param.name == "run" or (param.name == "name" and param.param_type_name == "option"):
        return _words(known.runs(command.name in _LIVE), typed)
    if param.name in ("profile", "engine", "name"):
        return _words(known.profiles(), typed)
    if param.name == "command":
        return Answer(Kind.COMMANDS)
    return Answer(Kind.WORDS if param.metavar in _MADE_UP else Kind.FILES)


def _choices(param: Any) -> list[str]:
    """The values of an enumeration; versions of typer differ in where they keep it."""
    if listed := getattr(getattr(param, "type", None), "choices", None):
        return [str(getattr(each, "value", each)) for each in listed]
    described = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    kind = next(iter(get_args(described)), described)
    return [str(each.value) for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _words(words: Sequence[str], typed: str) -> Answer:
    return Answer(Kind.WORDS, _fitting([Candidate(word) for word in words], typed))


def _fitting(candidates: Sequence[Candidate], typed: str) -> tuple[Candidate, ...]:
    return tuple(each for each in candidates if each.word.startswith(typed))
