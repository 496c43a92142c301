"""What is said about a package that was compared: nothing if it is as it should be. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from supervise.model.slate import Finding, Ownership
from supervise.text import plural, printable

if TYPE_CHECKING:
    from supervise.host.git import GitState
    from supervise.slate.packages import Package

KIND = "package"
_SHOWN = 5
_HOW = {"": "--force-reinstall", "--prefix": "--ignore-installed", "--target": "--upgrade"}


def judge(package: Package, executable: str) -> Iterator[Finding]:
    """What is to be said about a package: nothing if it is as in its wheel, or as in its last commit.

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
            counts.append(f"{len(package.unread)} could not be compared")
        named = [
            *(f"modified {path}" for path in package.modified),
            *(f"added {path}" for path in package.added),
            *(f"missing {path}" for path in package.missing),
            *(f"not compared {path}" for path in package.unread),
        ]
        yield _remark(f"{package.title}: {', '.join(counts)}", _first(named), restoring(package, executable))


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


def restoring(package: Package, executable: str) -> str:
    """The commands that bring it back to what its wheel was; a reinstallation leaves alone what it does not list.

    Args:
        package: its files are those that they are for.
        executable: its Python.
    """
    commands = []
    if package.modified or package.missing:
        commands.append(_reinstalling(package, shlex.quote(executable)))
    if package.added:
        paths = [shlex.quote(os.path.join(package.site, path)) for path in package.added[:_SHOWN]]
        more = f" (and {len(package.added) - _SHOWN} more)" if len(package.added) > _SHOWN else ""
        commands.append(
            f"{'a reinstallation leaves what was added: ' if commands else ''}rm -- {' '.join(paths)}{more}"
        )
    return printable("; ".join(commands))


def _reinstalling(package: Package, python: str) -> str:
    """Without words that lead to the place that was looked at, an installer would replace another copy."""
    wanted = shlex.quote(package.origin or f"{package.name}=={package.version}")
    if package.place is None:
        return f"install {wanted} into {shlex.quote(package.site)} again, as it was installed there"
    where = "".join(f" {shlex.quote(word)}" for word in package.place)
    if package.installer == "uv":
        name = shlex.quote(package.name)
        return f"uv pip install --python {python} --no-deps --reinstall-package {name}{where} {wanted}"
    # What pip would remove before is the copy that it sees, not the one in that place.
    how = _HOW[package.place[0] if package.place else ""]
    return f"{python} -m pip install {how} --no-deps{where} {wanted}"
