"""The command line of an attempt, as it can be run again: what was a secret is taken from the environment of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from supervise.text import HIDDEN, hides, plural, settings
from supervise.verbs.records import text, words

# Where an engine takes from its environment what it was given as a flag (vllm's envs.py and its api_server.py,
# huggingface_hub's constants.py, the help of llama-server).
_VARIABLES = {
    ("vllm", "--api-key"): "VLLM_API_KEY",
    ("vllm", "--hf-token"): "HF_TOKEN",
    ("llama-server", "--api-key"): "LLAMA_API_KEY",
    ("llama-server", "--hf-token"): "HF_TOKEN",
}
_NEW = ("run",)


@dataclass(frozen=True, slots=True)
class Recorded:
    """What an attempt was launched with, and what is missing to launch it again.

    `own` are options of ours, None if they are not known. `environment` has the variables that engines read, None for
    those that were not set then. `lacking` are sentences: what has to be done before; `unknown` phrases: what cannot be
    compared with then.
    """

    argv: tuple[str, ...] = ()
    own: tuple[str, ...] | None = None
    cwd: str = ""
    environment: Mapping[str, str | None] = field(default_factory=dict)
    lacking: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    began: float | None = None


def recorded(record: Mapping[str, Any] | None, env: Mapping[str, str]) -> Recorded:
    """Read it from an attempt's record.

    Args:
        record: attempt.json, None if it is missing or damaged.
        env: our environment.
    """
    argv, cwd = words(record, "argv"), text(record, "cwd")
    if record is None or not argv or len(argv) != len(record["argv"]):
        return Recorded(lacking=("its command line is not known: attempt.json is missing or damaged",))
    lacking: list[str] = []
    unknown: list[str] = []
    taken: set[str] = set()
    command = _with_secrets(argv, text(record, "profile") or "", env, lacking, taken)
    if cwd is None:
        unknown.append("the directory it was started in")
    environment = _environment(record.get("environment"), env, taken, lacking)
    if environment is None:
        unknown.append("its environment")
    began = record.get("began")
    return Recorded(
        argv=tuple(command),
        own=_own(record, lacking, unknown),
        cwd=cwd or "",
        environment=environment or {},
        lacking=tuple(dict.fromkeys(lacking)),
        unknown=tuple(unknown),
        began=float(began) if isinstance(began, int | float) else None,
    )


def option(own: Sequence[str], name: str) -> tuple[str, ...]:
    """The values that one of our options was given, in either form.

    Args:
        own: our words.
        name: `--watch`.
    """
    apart = [value for word, value in pairwise(own) if word == name]
    return (*apart, *(word.partition("=")[2] for word in own if word.startswith(f"{name}=")))


def _own(record: Mapping[str, Any], lacking: list[str], unknown: list[str]) -> tuple[str, ...] | None:
    own = words(record, "options")
    if not isinstance(record.get("options"), list) or len(own) != len(record["options"]):
        unknown.append("its options of supervise; those of now are the defaults")
        return None
    own = own[1:] if own[:1] == _NEW else own
    if own and not own[0].startswith("-"):
        unknown.append(f"its options of supervise: it was an attempt of supervise {own[0]}")
        return None
    if any(HIDDEN in word for word in own):
        lacking.append("an option of supervise was a secret and is not recorded: launch it by hand")
    # Whoever has the run now is not ended for it: that is to be asked for anew.
    return tuple(word for word in own if word != "--replace")


def _with_secrets(
    argv: Sequence[str], profile: str, env: Mapping[str, str], lacking: list[str], taken: set[str]
) -> list[str]:
    """The command line without the flags whose values are in the environment, and with assignments from there."""
    command: list[str] = []
    hidden = False
    for at, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if word == HIDDEN:
            if not hidden:
                lacking.append(f"word {at + 1} of its command line was a secret and is not recorded: launch it by hand")
            continue
        hidden = False
        if equals and value == HIDDEN and not name.startswith("-"):
            if name not in env:
                lacking.append(f"{name} was a secret of its command line and is not recorded: set it, then again")
            command.append(f"{name}={env.get(name, '')}")
            continue
        if (equals and value == HIDDEN) or HIDDEN in argv[at + 1 : at + 2]:
            hidden = True
            _flag(name, profile, env, lacking, taken)
            continue
        if hides(word):
            lacking.append(f"word {at + 1} of its command line had a password and is not recorded: launch it by hand")
        command.append(word)
    return command


def _flag(flag: str, profile: str, env: Mapping[str, str], lacking: list[str], taken: set[str]) -> None:
    variable = _VARIABLES.get((profile, flag.replace("_", "-")))
    if variable is None:
        lacking.append(f"{flag} was a secret and is not recorded: launch it by hand with that flag")
    elif variable in env:
        taken.add(variable)
    else:
        lacking.append(f"{flag} was a secret and is not recorded: set {variable} to it, then again")


def _environment(
    said: object, env: Mapping[str, str], taken: set[str], lacking: list[str]
) -> dict[str, str | None] | None:
    if not isinstance(said, dict) or not all(isinstance(value, str) and "\0" not in value for value in said.values()):
        return None
    then: dict[str, str | None] = {name: None for name in settings(env) if name not in said and name not in taken}
    secrets = [name for name, value in said.items() if hides(value)]
    if missing := [name for name in secrets if name not in env]:
        lacking.append(f"{plural(len(missing), 'secret')} of its environment not recorded: set {', '.join(missing)}")
    return then | {name: value for name, value in said.items() if not hides(value)}
