"""Programs that run another one: what of a command line belongs to them, as data, and where the rest begins."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

_DEPTH = 16
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How one wrapper reads its own words, by its manual page.

    `valued` options take the next word unless it is joined to them. `words` is how many words follow the options
    before the command, `runs_nothing` are options with which there is no command. `verbs` come before the options.
    """

    valued: frozenset[str] = frozenset()
    words: int = 0
    runs_nothing: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ()


@dataclass(slots=True)
class Unwrapped:
    """A command without its wrappers, and what `env` among them did: None unsets a variable, `cleared` all of them."""

    program: tuple[str, ...]
    env: dict[str, str | None] = field(default_factory=dict)
    cleared: bool = False


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UV = _set(
    "--from --extra --no-extra --group --no-group --only-group --env-file --with --with-editable --with-requirements "
    "--package --python -p --directory --project --index --default-index --index-url -i --extra-index-url "
    "--find-links -f --cache-dir --config-file --color --python-platform --link-mode --resolution --prerelease "
    "--index-strategy --keyring-provider --upgrade-package -P --refresh-package --reinstall-package "
    "--config-setting -C --exclude-newer --allow-insecure-host -w"
)

WRAPPERS = {
    "chrt": Wrapper(_set("-T --sched-runtime -P --sched-period -D --sched-deadline"), 1, _set("-p --pid -m --max")),
    "conda": Wrapper(_set("-n --name -p --prefix --cwd"), verbs=("run",)),
    "dumb-init": Wrapper(_set("-r --rewrite")),
    "ionice": Wrapper(_set("-c --class -n --classdata"), 0, _set("-p --pid -P --pgid -u --uid")),
    "nice": Wrapper(_set("-n --adjustment")),
    "nohup": Wrapper(),
    "numactl": Wrapper(
        _set(
            "-i --interleave -w --weighted-interleave -p --preferred -P --preferred-many -N --cpunodebind -m --membind "
            "-C --physcpubind -S --shm -f --file -I --shmid -L --length -o --offset -M --shmmode"
        ),
        0,
        _set("-H --hardware -s --show"),
    ),
    "prlimit": Wrapper(runs_nothing=_set("-p --pid")),
    "setpriv": Wrapper(
        _set(
            "--ruid --euid --rgid --egid --reuid --regid --groups --inh-caps --ambient-caps --bounding-set "
            "--securebits --pdeathsig --selinux-label --apparmor-profile --landlock-access --landlock-rule "
            "--seccomp-filter --ptracer"
        ),
        0,
        _set("-d --dump"),
    ),
    "setsid": Wrapper(),
    "stdbuf": Wrapper(_set("-i --input -o --output -e --error")),
    "taskset": Wrapper(frozenset(), 1, _set("-p --pid")),
    "time": Wrapper(_set("-f --format -o --output")),
    "timeout": Wrapper(_set("-k --kill-after -s --signal"), 1),
    "tini": Wrapper(_set("-p -e")),
    "uv": Wrapper(_UV, 0, _set("-m --module -s --script --gui-script"), verbs=("run",)),
    "uvx": Wrapper(_UV),
}
"""By basename. `sh -c` and its like are not here: what a shell makes of a string is not ours to guess."""

_ENV_VALUED = _set("-u --unset -C --chdir -S --split-string -a --argv0")


def unwrap(argv: Sequence[str]) -> Unwrapped:
    """Take the wrappers off a command line.

    Args:
        argv: as the user gave it.

    Returns:
        The command within, the whole line if there is no wrapper, nothing if a wrapper has no command.
    """
    state = Unwrapped(tuple(argv))
    for _ in range(_DEPTH):
        inner = _step(state)
        if inner is None:
            break
        state.program = inner
    return state


def _step(state: Unwrapped) -> tuple[str, ...] | None:
    if not state.program:
        return None
    name = os.path.basename(state.program[0])
    if name == "env":
        return _env(state, list(state.program[1:]))
    wrapper = WRAPPERS.get(name)
    return None if wrapper is None else _inner(wrapper, state.program[1:])


def _inner(wrapper: Wrapper, words: Sequence[str]) -> tuple[str, ...] | None:
    index, given = _options(wrapper.valued, words, 0)
    if wrapper.verbs:
        if words[index : index + 1] != wrapper.verbs:
            return None
        index, more = _options(wrapper.valued, words, index + 1)
        given |= more
    if given & wrapper.runs_nothing:
        return None
    return tuple(words[index + wrapper.words :]) or None


def _options(valued: frozenset[str], words: Sequence[str], start: int) -> tuple[int, set[str]]:
    """Where the options end that begin at `start`, and which ones there were."""
    index, given = start, set()
    while index < len(words) and words[index].startswith("-") and words[index] != "-":
        word = words[index]
        index += 1
        if word == "--":
            break
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        given.add(name)
        index += word in valued
    return index, given


def _env(state: Unwrapped, words: list[str]) -> tuple[str, ...] | None:
    """Read what env(1) does to the environment: options, then assignments, then the command."""
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if word in ("-", "-i", "--ignore-environment"):
            state.cleared = True
            state.env.clear()
        elif word.startswith("-"):
            words = _env_option(state, word, words)
        else:
            words.insert(0, word)
            break
    while words and _is_assignment(words[0]):
        name, _, value = words.pop(0).partition("=")
        state.env[name] = value
    return tuple(words) or None


def _env_option(state: Unwrapped, word: str, rest: list[str]) -> list[str]:
    name, value, rest = _with_value(word, rest)
    if name in ("-u", "--unset") and value:
        state.env[value] = None
    elif name in ("-S", "--split-string"):
        return _split(value) + rest
    elif name.startswith("-i") and len(word) > 2:
        state.cleared = True
        state.env.clear()
        return [f"-{word[2:]}", *rest]
    return rest


def _with_value(word: str, rest: list[str]) -> tuple[str, str, list[str]]:
    if word.startswith("--"):
        name, joined, value = word.partition("=")
        return (name, value, rest) if joined or name not in _ENV_VALUED else (name, *_shift(rest))
    name, value = word[:2], word[2:]
    return (name, value, rest) if value or name not in _ENV_VALUED else (name, *_shift(rest))


def _shift(rest: list[str]) -> tuple[str, list[str]]:
    return (rest[0], rest[1:]) if rest else ("", [])


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _is_assignment(word: str) -> bool:
    return _ASSIGNMENT.match(word) is not None
