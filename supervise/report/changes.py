"""What is recorded differently of two attempts. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NEGATIVE = re.compile(r"-\d")
_PACKAGE = re.compile(r"(?P<name>[\w.-]+) (?P<state>\d\S* (?:as in its wheel|at \w+ in ).*|at \w+ in .*)")
# What attempt.json has of the circumstances, and what people call it.
_CIRCUMSTANCES = {
    "profile": "engine profile",
    "cwd": "directory",
    "python": "Python of supervise",
    "ports": "ports",
    "tiers": "held by",
    "limits_raised": "limits raised",
}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs between the records of two attempts.

    Args:
        before: attempt.json of the earlier one.
        after: of the later one.

    Returns:
        A phrase for each difference; none if nothing that both have recorded differs.
    """
    phrases = _of_commands(_words(before.get("argv")), _words(after.get("argv")))
    for key, name in _CIRCUMSTANCES.items():
        old, new = before.get(key), after.get(key)
        if key in before and key in after and old != new:
            phrases.append(f"{name}: {_told(old)} -> {_told(new)}")
    phrases += _of_settings(before.get("environment"), after.get("environment"))
    if (one := _boot(before)) and (other := _boot(after)) and one != other:
        phrases.append("another host, or the host was booted in between")
    return phrases


def package_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs of the engine's packages.

    Args:
        before: slate.json of the earlier attempt.
        after: of the later one.

    Returns:
        A phrase for each package that both looked at and found in different states.
    """
    old, new = packages(before), packages(after)
    return [f"package {name}: {old[name]} -> {new[name]}" for name in old if name in new and old[name] != new[name]]


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


def _of_settings(before: object, after: object) -> list[str]:
    """Variables that engines read; of a secret only its coming and going is known."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return []
    names = sorted({*before, *after})
    changed = [name for name in names if before.get(name) != after.get(name)]
    return [f"{name}: {_setting(before.get(name))} -> {_setting(after.get(name))}" for name in changed]


def _setting(value: object) -> str:
    return "unset" if value is None else str(value)


def _of_commands(before: Sequence[str], after: Sequence[str]) -> list[str]:
    (old_words, old), (new_words, new) = _taken_apart(before), _taken_apart(after)
    phrases = []
    if old_words != new_words:
        phrases.append(f"command: {' '.join(old_words)} -> {' '.join(new_words)}")
    phrases += [f"added {_flag(name, new[name])}" for name in new if name not in old]
    phrases += [f"removed {_flag(name, old[name])}" for name in old if name not in new]
    phrases += [
        f"changed {name} {_value(old[name])} -> {_value(new[name])}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    return phrases


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
