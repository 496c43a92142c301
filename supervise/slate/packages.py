"""Installed packages that are not what their wheel was: forgotten debug code, shown before it is believed.

Nothing here is ever repaired: what somebody changed on purpose looks the same. What could not be compared is said.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from supervise.host import distribution, git, interpreter, wheel
from supervise.host.distribution import Distribution
from supervise.host.git import GitState
from supervise.host.interpreter import Interpreter
from supervise.model.slate import Finding, Ownership
from supervise.text import plural, printable

KIND = "package"
_SHOWN = 5
# At a launch, thousands of small files; on request, also the binaries of several GB.
_LAUNCH_S, _THOROUGH_S = 20.0, 600.0


@dataclass(frozen=True, slots=True)
class Package:
    """One package as it was found.

    Paths are relative to `site`, the directory that it is imported from. `by_size` counts the large files of which only
    the size was compared, `unread` are those that could not be. `checkout` is there instead where it is imported from
    a directory of sources; `unknown` is a phrase that says why there is no comparison at all, `absent` if it is just
    not installed there.
    """

    name: str
    version: str = ""
    site: str = ""
    installer: str = ""
    origin: str = ""
    modified: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    by_size: int = 0
    checkout: GitState | None = None
    unknown: str = ""
    absent: bool = False

    @property
    def title(self) -> str:
        """`vllm 0.32.0`."""
        return printable(f"{self.name} {self.version}".strip())


def examine(
    program: Sequence[str],
    env: Mapping[str, str],
    packages: Sequence[str],
    cache_file: str,
    *,
    thorough: bool,
    before: Sequence[str] = (),
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """Compare packages with their wheels in the Python that a server's command line runs in.

    Args:
        program: the engine's own command line, without wrappers.
        env: the environment that it will see.
        packages: names of distributions or packages; an absolute directory is looked at as a working tree.
        cache_file: where digests of files are remembered.
        thorough: whether large files are read, too.
        before: the words of the wrappers in front of `program`.

    Returns:
        Remarks, and sentences about what is as it should be; blocking: tens of milliseconds when all was seen before,
        at most 20 s for each package, ten minutes if thorough. Only then it is said that one is not installed: a
        command that is merely called like an engine is nothing to remark upon at every launch.
    """
    python, why = interpreter.find(program, env, before=before)
    looked = [_look(name, python, why, cache_file, thorough=thorough) for name in packages]
    found = [package for package in looked if thorough or not package.absent]
    executable = python.executable if python else "python"
    findings = tuple(finding for package in found for finding in judge(package, executable))
    return findings, tuple(sentence for package in found if (sentence := check(package)))


def directories(
    program: Sequence[str], env: Mapping[str, str], packages: Sequence[str], *, before: Sequence[str] = ()
) -> tuple[dict[str, str], str | None]:
    """Where the code of packages lies that a server's command line would import.

    Args:
        program: the engine's own command line, without wrappers.
        env: the environment that it will see.
        packages: names of packages, or absolute directories.
        before: the words of the wrappers in front of `program`.

    Returns:
        Absolute directories by the names of the packages, without those that do not exist, and the interpreter, None
        if it is not known.
    """
    python, _ = interpreter.find(program, env, before=before)
    site = python.site if python else ()
    found = {name: place for name in packages if (place := next(_places(name, site), None))}
    return found, python.executable if python else None


def _places(name: str, site: Sequence[str]) -> Iterator[str]:
    if os.path.isabs(name):
        yield from [os.path.normpath(name)] if os.path.isdir(name) else []
        return
    package = distribution.normal(name)
    yield from (path for directory in site if os.path.isdir(path := os.path.join(directory, package)))
    for installed in distribution.find(name, site):
        source = distribution.directory_of(installed.origin[0])
        for directory in (source, f"{source}/src") if source else ():
            if os.path.isdir(os.path.join(directory, package)):
                yield os.path.join(directory, package)


def _look(name: str, python: Interpreter | None, why: str, cache_file: str, *, thorough: bool) -> Package:
    if os.path.isabs(name):
        return _checkout(Package(name), name)
    if python is None:
        return Package(name, unknown=why)
    return compare(name, python, cache_file, thorough=thorough)


def compare(name: str, python: Interpreter, cache_file: str, *, thorough: bool) -> Package:
    """Compare one package with its wheel, or its working tree with its last commit.

    Args:
        name: of the distribution, or of the package.
        python: where it is looked for.
        cache_file: where digests of files are remembered.
        thorough: whether large files are read, too.
    """
    found = distribution.find(name, python.site)
    if not found:
        return _without_metadata(name, python)
    if len(found) > 1:
        versions = ", ".join(printable(f"{each.name} {each.version}") for each in found)
        return Package(name, unknown=f"{found[0].site} has metadata of more than one: {versions}")
    installed = found[0]
    origin, editable = installed.origin
    package = Package(installed.name, installed.version, installed.site, installed.installer, origin)
    if editable:
        directory = distribution.directory_of(origin)
        return _checkout(package, directory) if directory else replace(package, unknown=f"editable from {origin}")
    try:
        return _compared(package, installed, python, wheel.Digests(cache_file), thorough=thorough)
    except (FileNotFoundError, NotADirectoryError):
        by = f" (installed by {printable(package.installer)})" if package.installer else ""
        return replace(package, unknown=f"its metadata has no RECORD{by}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "damaged"
        return replace(package, unknown=f"its RECORD cannot be read ({reason})")


def _compared(
    package: Package, installed: Distribution, python: Interpreter, digests: wheel.Digests, *, thorough: bool
) -> Package:
    record = installed.record()
    own = wheel.own_directories(record)
    if not own:
        return replace(package, unknown="its RECORD lists no package")
    if shadow := _shadow(own, installed.site, python):
        return _checkout(replace(package, version=""), *shadow)
    deadline = time.monotonic() + (_THOROUGH_S if thorough else _LAUNCH_S)
    seen = wheel.compare(installed, record, digests, thorough=thorough, deadline=deadline)
    return replace(
        package,
        modified=tuple(seen.modified),
        added=tuple(seen.added),
        missing=tuple(seen.missing),
        unread=tuple(seen.unread),
        by_size=seen.by_size,
    )


def _shadow(own: Sequence[str], site: str, python: Interpreter) -> tuple[str, str] | None:
    """A directory that Python searches before `site`, and one of its packages in there: that one is imported."""
    for directory in python.site[: python.site.index(site)]:
        for top in own:
            if os.path.exists(os.path.join(directory, top, "__init__.py")):
                return directory, top
    return None


def _without_metadata(name: str, python: Interpreter) -> Package:
    """What Python imports under a name that no metadata knows."""
    if directory := distribution.linked(name, python.site):
        return _checkout(Package(name), directory)
    for directory in python.site:
        if os.path.exists(os.path.join(directory, name, "__init__.py")):
            return _checkout(Package(name), directory, name)
    return Package(name, unknown=f"not installed for {python.executable}", absent=True)


def _checkout(package: Package, directory: str, below: str = ".") -> Package:
    try:
        return replace(package, site=directory, checkout=git.state(directory, below))
    except git.GitError as error:
        return replace(package, site=directory, unknown=f"imported from {directory}, {error}")


def judge(package: Package, executable: str) -> Iterator[Finding]:
    """What is to be said about a package: nothing if it is as in its wheel, or as in its last commit. Pure.

    Args:
        package: as it was found.
        executable: the Python of the command that restores it.
    """
    if package.unknown:
        yield _remark(f"{package.title}: not compared with its wheel", (package.unknown,))
    elif package.checkout is not None:
        yield from _judge_checkout(package, package.checkout)
    elif package.modified or package.added or package.missing or package.unread:
        counts = [f"{len(getattr(package, what))} {what}" for what in ("modified", "added", "missing")]
        if package.unread:
            counts.append(f"{len(package.unread)} could not be read")
        named = [
            *(f"modified {path}" for path in package.modified),
            *(f"added {path}" for path in package.added),
            *(f"missing {path}" for path in package.missing),
            *(f"not read {path}" for path in package.unread),
        ]
        yield _remark(f"{package.title}: {', '.join(counts)}", _first(named), _restoring(package, executable))


def check(package: Package) -> str:
    """The sentence for a package that is as it should be; empty for any other."""
    if any(judge(package, "")):
        return ""
    if package.checkout is not None:
        return f"{package.title} at {package.checkout.head} in {printable(package.site)}, nothing changed"
    large = f" ({plural(package.by_size, 'large file')} by size)" if package.by_size else ""
    return f"{package.title} as in its wheel{large}"


def _judge_checkout(package: Package, state: GitState) -> Iterator[Finding]:
    if state.changed or state.untracked:
        counts = f"{len(state.changed)} changed, {len(state.untracked)} untracked"
        named = [*(f"changed {path}" for path in state.changed), *(f"untracked {path}" for path in state.untracked)]
        where = printable(f"{state.head} in {state.directory}")
        remedy = f"git -C {shlex.quote(state.directory)} status"
        yield _remark(f"{package.title} at {where}: {counts}", _first(named), printable(remedy))


def _remark(subject: str, evidence: Sequence[str], remedy: str = "") -> Finding:
    said = tuple(printable(phrase) for phrase in evidence)
    return Finding(KIND, subject, Ownership.UNKNOWN, said, None, blocking=False, remedy=remedy)


def _first(named: Sequence[str]) -> list[str]:
    more = [f"and {len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
    return [*named[:_SHOWN], *more]


def _restoring(package: Package, executable: str) -> str:
    """The commands that bring it back to what its wheel was; a reinstallation leaves alone what it does not list."""
    commands = []
    if package.modified or package.missing:
        wanted = shlex.quote(package.origin or f"{package.name}=={package.version}")
        python = shlex.quote(executable)
        if package.installer == "uv":
            name = shlex.quote(package.name)
            commands.append(f"uv pip install --python {python} --no-deps --reinstall-package {name} {wanted}")
        else:
            commands.append(f"{python} -m pip install --force-reinstall --no-deps {wanted}")
    if package.added:
        paths = [shlex.quote(os.path.join(package.site, path)) for path in package.added[:_SHOWN]]
        more = f" (and {len(package.added) - _SHOWN} more)" if len(package.added) > _SHOWN else ""
        commands.append(
            f"{'a reinstallation leaves what was added: ' if commands else ''}rm -- {' '.join(paths)}{more}"
        )
    return printable("; ".join(commands))
