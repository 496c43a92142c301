"""The door to the Python that a server's command line runs in, found without running it.

Read are only names, links, the first bytes of a script and pyvenv.cfg; the rules are those of CPython's getpath.py and
site.py, and of the scripts that pip, uv and conda write (distlib: a `#!` longer than 127 bytes becomes `/bin/sh` with
an `exec` that Python reads as a string).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_PYTHON = re.compile(r"(?:python|pypy)(?:\d+(?:\.\d+)?t?)?")
_VERSION = re.compile(r"(\d+\.\d+)")
_LIBRARY = re.compile(r"python(3\.\d+t?)")
_EXEC = "'''exec' "
# What uv writes into a relocatable environment: the directory of the script itself, links resolved.
_BESIDE = re.compile(r'"\$\(dirname -- "\$\(realpath -- "\$0"\)"\)"')
_HEAD = 4096
_LINKS = 8
# They put an environment of their own choice in front of PATH.
_CHOOSERS = frozenset({"uv", "uvx", "conda", "mamba", "micromamba", "pixi", "poetry", "pipenv", "hatch", "pdm", "rye"})
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_VALUED, _LAST = "WXQ", "cm"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python installation: its program, and the directories that it imports packages from, in its own order.

    `options`: the letters of those that it is started with, on its command line or in the `#!` of a script.
    """

    executable: str
    site: tuple[str, ...]
    options: frozenset[str] = frozenset()


def find(
    program: Sequence[str], env: Mapping[str, str], *, before: Sequence[str] = (), cwd: str | None = None
) -> tuple[Interpreter | None, str]:
    """Which Python runs a command line.

    Args:
        program: the engine's own command line, without wrappers.
        env: the environment that it will see.
        before: the wrappers' words in front of it; some of them choose an environment.
        cwd: where it is started; our own directory by default.

    Returns:
        The interpreter, or None and a phrase that says why it is not known.
    """
    cwd = cwd or os.getcwd()
    if not program:
        return None, "no command"
    if "/" not in program[0] and (chooser := next((w for w in before if os.path.basename(w) in _CHOOSERS), None)):
        return None, f"{os.path.basename(chooser)} chooses the Python"
    path = _which(program[0], env, cwd)
    if path is None:
        return None, f"{program[0]} is not found"
    words: Sequence[str] = (path, *program[1:])
    for _ in range(_LINKS):
        if _is_python(words[0]):
            return _described(words, env, cwd)
        inner, why = _behind_script(words, env, cwd)
        if inner is None:
            return None, why
        words = inner
    return None, f"{path}: scripts without end"


def _which(name: str, env: Mapping[str, str], cwd: str) -> str | None:
    """As execvp(3) finds it."""
    if "/" in name:
        path = os.path.normpath(os.path.join(cwd, name))
        return path if os.path.isfile(path) else None
    for directory in env.get("PATH", os.defpath).split(":"):
        path = os.path.normpath(os.path.join(cwd, directory, name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _is_python(path: str) -> bool:
    """By name, but no script of that name: a version manager's shim is one."""
    named = any(_PYTHON.fullmatch(os.path.basename(p)) for p in (path, os.path.realpath(path)))
    return named and not _head(path).startswith("#!")


def _head(path: str) -> str:
    """The beginning of a regular file; nothing if it cannot be read."""
    try:
        with open(path, "rb", opener=_opener) as file:
            return file.read(_HEAD).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _behind_script(words: Sequence[str], env: Mapping[str, str], cwd: str) -> tuple[Sequence[str] | None, str]:
    """The command line that the kernel makes of a script (execve(2)), as far as it leads towards a Python."""
    path = words[0]
    lines = _head(path).split("\n", 2)
    if not lines[0].startswith("#!"):
        return None, f"{path} is not a Python script"
    interpreter, _, argument = lines[0][2:].strip().partition(" ")
    argument = argument.strip()
    if os.path.basename(interpreter) == "env":
        named = _of_env(argument) or "env"
        interpreter, argument = _which(named, env, cwd) or named, ""
    if os.path.basename(interpreter) in _SHELLS:
        inner = _of_exec(lines[1] if len(lines) > 1 else "", path)
        return ((inner, path), "") if inner else (None, f"{path} is a shell script")
    if not os.path.isfile(interpreter):
        return None, f"{path}: its interpreter {interpreter or '(none)'} is not found"
    return (interpreter, *([argument] if argument else []), path), ""


def _of_env(argument: str) -> str | None:
    """The program in `#!/usr/bin/env [-S] [NAME=VALUE] python3 -s`."""
    words = argument.removeprefix("-S").split()
    return next((word for word in words if not word.startswith("-") and "=" not in word), None)


def _of_exec(line: str, script: str) -> str | None:
    """The program in `'''exec' "/a/long/path/python" "$0" "$@"`."""
    if not line.startswith(_EXEC):
        return None
    beside = os.path.dirname(os.path.realpath(script))
    try:
        words = shlex.split(_BESIDE.sub(lambda _: shlex.quote(beside), line[len(_EXEC) :]))
    except ValueError:
        return None
    return os.path.normpath(words[0]) if words and os.path.isabs(words[0]) else None


def _described(words: Sequence[str], env: Mapping[str, str], cwd: str) -> tuple[Interpreter | None, str]:
    executable, options = words[0], _options(words[1:])
    where = _prefixes(executable, env)
    if where is None:
        return None, f"the libraries of {executable} are not found"
    isolated = "I" in options
    paths: list[str] = []
    if "m" in options and not isolated and not _safe_path(options, env):
        paths.append(cwd)
    if not isolated and "E" not in options:
        paths += [os.path.join(cwd, path) for path in env.get("PYTHONPATH", "").split(":") if path]
    if "S" not in options:
        paths += _site(where, env, user=not isolated and "s" not in options)
    return Interpreter(executable, tuple(_existing(paths)), frozenset(options)), ""


def _options(words: Sequence[str]) -> set[str]:
    """The one-letter options of a Python command line, up to what it runs."""
    given: set[str] = set()
    index = 0
    while index < len(words) and words[index].startswith("-") and len(words[index]) > 1:
        word = words[index]
        index += 1
        if word.startswith("--"):
            index += word == "--check-hash-based-pycs"
            continue
        for at, letter in enumerate(word[1:], 2):
            given.add(letter)
            if letter in _LAST:
                return given
            if letter in _VALUED:
                index += at == len(word)
                break
    return given


def _safe_path(options: set[str], env: Mapping[str, str]) -> bool:
    return "P" in options or ("E" not in options and bool(env.get("PYTHONSAFEPATH")))


@dataclass(frozen=True, slots=True)
class _Where:
    """Prefixes: that of a virtual environment if it is one, and the real one if its packages are seen."""

    version: str
    environment: str | None
    base: str | None


def _prefixes(executable: str, env: Mapping[str, str]) -> _Where | None:
    if home := env.get("PYTHONHOME"):
        return _based(home.split(":")[0], executable)
    settings = _settings(executable)
    if settings is None:
        found = _base(os.path.dirname(os.path.realpath(executable)), executable)
        return None if found is None else _Where(found[1], None, found[0])
    prefix, values = settings
    base = _base(values.get("home", ""), executable) or _base(os.path.dirname(os.path.realpath(executable)), executable)
    version = _only(_libraries(prefix), base[1] if base else _of_version(values))
    if version is None:
        return None
    shared = values.get("include-system-site-packages", "").lower() == "true"
    if shared and base is None:
        return None
    return _Where(version, prefix, base[0] if base and shared else None)


def _based(prefix: str, executable: str) -> _Where | None:
    version = _only(_libraries(prefix), _of_name(executable))
    return None if version is None else _Where(version, None, prefix)


def _settings(executable: str) -> tuple[str, dict[str, str]] | None:
    """The prefix of a virtual environment with what its pyvenv.cfg says; the link is not followed, as in getpath.py."""
    here = os.path.dirname(executable)
    for directory in (here, os.path.dirname(here)):
        path = os.path.join(directory, "pyvenv.cfg")
        if os.path.isfile(path):
            pairs = (line.partition("=") for line in _head(path).splitlines())
            return os.path.dirname(here), {key.strip().lower(): value.strip() for key, _, value in pairs}
    return None


def _base(directory: str, executable: str) -> tuple[str, str] | None:
    """The nearest prefix above a directory that has a standard library, and its version."""
    while directory and directory != "/":
        version = _only(_libraries(directory, landmark="os.py"), _of_name(executable))
        if version is not None:
            return directory, version
        directory = os.path.dirname(directory)
    return None


def _libraries(prefix: str, landmark: str = "") -> set[str]:
    """Versions that have a directory below a prefix."""
    found: set[str] = set()
    for library in ("lib", "lib64"):
        try:
            names = os.listdir(os.path.join(prefix, library))
        except OSError:
            continue
        matches = (match for name in names if (match := _LIBRARY.fullmatch(name)))
        found.update(m[1] for m in matches if os.path.exists(os.path.join(prefix, library, m[0], landmark)))
    return found


def _only(versions: set[str], wanted: str | None) -> str | None:
    """The version that is wanted; where nothing says which, the only one."""
    if wanted in versions:
        return wanted
    return next(iter(versions)) if wanted is None and len(versions) == 1 else None


def _of_name(executable: str) -> str | None:
    match = _LIBRARY.fullmatch(os.path.basename(os.path.realpath(executable)))
    return match[1] if match else None


def _of_version(values: Mapping[str, str]) -> str | None:
    """Of pyvenv.cfg: `version` is what venv writes, `version_info` what virtualenv and uv do."""
    match = _VERSION.match(values.get("version_info") or values.get("version") or "")
    return match[1] if match else None


def _site(where: _Where, env: Mapping[str, str], *, user: bool) -> Iterator[str]:
    """The directories of site.py: the environment's, the user's, the installation's."""
    if where.environment is not None:
        yield from _packages(where.environment, where.version)
    if where.base is not None:
        if user and not env.get("PYTHONNOUSERSITE"):
            base = env.get("PYTHONUSERBASE") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local")
            yield os.path.join(base, "lib", f"python{where.version}", "site-packages")
        yield from _packages(where.base, where.version)


def _packages(prefix: str, version: str) -> Iterator[str]:
    """Debian keeps what it installs itself in dist-packages, and what its user installs below /usr/local."""
    library = f"python{version}"
    if os.path.isdir(os.path.join(prefix, "lib/python3/dist-packages")):
        yield os.path.join(prefix, "local/lib", library, "dist-packages")
        yield os.path.join(prefix, "lib/python3/dist-packages")
        yield os.path.join(prefix, "lib", library, "dist-packages")
        return
    places = [os.path.join(prefix, "local"), prefix] if prefix == "/usr" else [prefix]
    for place in places:
        for name in ("lib64", "lib"):
            if not os.path.islink(os.path.join(place, name)):
                yield os.path.join(place, name, library, "site-packages")


def _existing(paths: Iterable[str]) -> Iterator[str]:
    """Each directory once, by the first of its names."""
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)
        if real not in seen and os.path.isdir(path):
            seen.add(real)
            yield os.path.normpath(path)
