"""What is recorded differently of two attempts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from supervise.text import shorten

_NEGATIVE = re.compile(r"-\d")
_PACKAGE = re.compile(r"(?P<name>[\w.-]+) (?P<state>\d\S* (?:as in its wheel|at \w+ in ).*|at \w+ in .*)")
# What attempt.json has of the circumstances, and what people call it.
CIRCUMSTANCES = {
    "profile": "engine profile",
    "cwd": "directory",
    "python": "Python of supervise",
    "ports": "ports",
    "tiers": "held by",
    "limits_raised": "limits raised",
    "supervise": "version of supervise",
}


class Difference(NamedTuple):
    """Something that is not the same in two attempts.

    `kind` is one of command, flag, environment, option, interpreter, circumstance, host, driver, gpus, limit, package,
    version, git, root, patch.
    `before` and `after` are None where there is none. `told` is the phrase for people, `short` the same where there is
    less room.
    """

    kind: str
    name: str
    before: str | None
    after: str | None
    told: str
    short: str


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between the records of two attempts, as phrases: see `differences`."""
    return [each.told for each in differences(before, after)]


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What differs between the records of two attempts.

    Args:
        before: attempt.json of the earlier one.
        after: of the later one.

    Returns:
        Each difference; none if nothing that both have recorded differs.
    """
    found = _of_words(before.get("argv"), after.get("argv"))
    found += _of_settings(before.get("environment"), after.get("environment"))
    found += [_ours(each) for each in _of_words(before.get("options"), after.get("options"))]
    if (one := before.get("interpreter")) and (other := after.get("interpreter")) and one != other:
        found.append(moved("interpreter", "interpreter", str(one), str(other)))
    for key, name in CIRCUMSTANCES.items():
        old, new = before.get(key), after.get(key)
        if key in before and key in after and old != new:
            found.append(moved("circumstance", name, _told(old), _told(new)))
    if (one := _boot(before)) and (other := _boot(after)) and one != other:
        told = "another host, or the host was booted in between"
        found.append(Difference("host", "boot", str(one), str(other), told, "another boot"))
    return found


def package_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs of the engine's packages, as phrases: see `package_differences`."""
    return [each.told for each in package_differences(before, after)]


def package_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """What differs of the engine's packages.

    Args:
        before: slate.json of the earlier attempt.
        after: of the later one.

    Returns:
        Each package that both looked at and found in different states.
    """
    old, new = packages(before), packages(after)
    return [
        moved("package", name, old[name], new[name], f"package {name}")
        for name in old
        if name in new and old[name] != new[name]
    ]


def packages(slate: Mapping[str, Any]) -> dict[str, str]:
    """The engine's packages and the state that they were found in, as far as a slate.json tells.

    They are looked at while the server starts: of one that dies at once nothing is recorded.
    """
    found = {}
    for sentence in _words(slate.get("checks")):
        if told := _PACKAGE.fullmatch(sentence):
            found[told["name"]] = told["state"]
    remarks = slate.get("remarks")
    for remark in remarks if isinstance(remarks, list) else ():
        if isinstance(remark, dict) and remark.get("kind") == "package" and isinstance(remark.get("subject"), str):
            name, _, state = remark["subject"].partition(" ")
            found[name] = f"{state} ({', '.join(_words(remark.get('evidence')))})"
    return found


def moved(kind: str, name: str, before: str, after: str, subject: str | None = None) -> Difference:
    """A value that is another one: `directory: /a -> /b`.

    Args:
        kind: see Difference.
        name: of what differs.
        before: its value then.
        after: and later.
        subject: what people call it; its name if left out.
    """
    told = f"{subject or name}: {before} -> {after}"
    return Difference(kind, name, before, after, told, told)


def joined(phrases: Iterable[str], width: int) -> str:
    """As many phrases as there is room for: `--eager, patch a.py (+1 −1), +3 more`.

    Args:
        phrases: at least one.
        width: characters that there is room for. The first phrase is cut if it alone is longer.
    """
    first, *rest = phrases
    if len(whole := ", ".join([first, *rest])) <= width or not rest:
        return shorten(whole, width)
    told = first
    for index, phrase in enumerate(rest):
        more = f", +{len(rest) - index} more"
        if index == len(rest) - 1 or len(f"{told}, {phrase}, +{len(rest) - index - 1} more") > width:
            break
        told = f"{told}, {phrase}"
    return shorten(told, max(1, width - len(more))) + more


def _of_settings(before: object, after: object) -> list[Difference]:
    """Variables that engines read; of a secret only its coming and going is known."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    names = sorted({*before, *after})
    changed = [name for name in names if before.get(name) != after.get(name)]
    return [_setting(name, before.get(name), after.get(name)) for name in changed]


def _setting(name: str, before: object, after: object) -> Difference:
    old, new = (None if value is None else str(value) for value in (before, after))
    told = f"{name}: {'unset' if old is None else old} -> {'unset' if new is None else new}"
    return Difference("environment", name, old, new, told, told)


def _of_words(before: object, after: object) -> list[Difference]:
    """What differs of two command lines, nothing where one of them was not recorded."""
    known = isinstance(before, list) and isinstance(after, list)
    return list(_of_commands(_words(before), _words(after))) if known else []


def _ours(each: Difference) -> Difference:
    """A difference of our own options."""
    told = f"{each.told} (of supervise)"
    return each._replace(kind="option", told=told, short=told)


def _of_commands(before: Sequence[str], after: Sequence[str]) -> Iterator[Difference]:
    (old_words, old), (new_words, new) = _taken_apart(before), _taken_apart(after)
    if old_words != new_words:
        yield moved("command", "command", " ".join(old_words), " ".join(new_words))
    for name in new:
        if name not in old:
            told = f"added {_flag(name, new[name])}"
            yield Difference("flag", name, None, " ".join(new[name]), told, told)
    for name in old:
        if name not in new:
            told = f"removed {_flag(name, old[name])}"
            yield Difference("flag", name, " ".join(old[name]), None, told, told)
    for name in old:
        if name in new and old[name] != new[name]:
            told = f"{name} {_value(old[name])} -> {_value(new[name])}"
            yield Difference("flag", name, " ".join(old[name]), " ".join(new[name]), told, told)


def _taken_apart(argv: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The words in front of the first flag, and the flags with what follows each of them."""
    words: list[str] = []
    flags: dict[str, list[str]] = {}
    values = words
    for word in argv:
        if not word.startswith("-") or _NEGATIVE.match(word):
            values.append(word)
            continue
        name, equals, value = word.partition("=")
        # The engines take --max_model_len for --max-model-len.
        values = flags.setdefault(name.replace("_", "-") if name.startswith("--") else name, [])
        values += [value] if equals else []
    return words, flags


def _flag(name: str, values: Sequence[str]) -> str:
    return f"{name} {_value(values)}" if values else name


def _value(values: Sequence[str]) -> str:
    return " ".join(values) or "(no value)"


def _told(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _boot(attempt: Mapping[str, Any]) -> object:
    host = attempt.get("host")
    return host.get("boot_id") if isinstance(host, dict) else None


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []
