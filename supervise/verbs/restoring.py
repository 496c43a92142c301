"""`supervise clean --restore`: files of packages made as their wheels had them, and that verified by hash."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from supervise.attempts.store import Run, Store
from supervise.host import interpreter, putting_back
from supervise.host.interpreter import Interpreter
from supervise.host.putting_back import NotPutBackError, Saving
from supervise.model.sources import Change
from supervise.report.console import Console
from supervise.runner.plan import Options
from supervise.slate import differences
from supervise.text import home, plural
from supervise.verbs import debug_code
from supervise.verbs.debug_code import Debugged, Left
from supervise.verbs.engines import of_run


class Became(NamedTuple):
    """What became of a file: `did` in words, `why` a phrase where it is as it was."""

    path: str
    did: str
    why: str = ""


class Restored(NamedTuple):
    """A package after it: `sound` if every file was compared again and is as in the wheel; `sentence` says how it is.

    `remedy` is what to type for what is left.
    """

    left: Debugged
    became: tuple[Became, ...]
    sound: bool
    sentence: str
    remedy: str = ""


def saving(store: Store) -> Saving:
    """Where copies of what is overwritten go: a directory for each time, which nobody removes but its owner."""
    return Saving(os.path.join(store.root, ".saved", f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"))


@contextmanager
def nobody_uses(sites: Iterable[str], store: Store) -> Iterator[list[str]]:
    """Keep the runs that are not live from being launched, and look who imports packages from these directories.

    Args:
        sites: directories with links resolved.
        store: all runs.

    Yields:
        Names of live runs that do, or of which it is not known.
    """
    wanted = set(sites)
    with contextlib.ExitStack() as held:
        using = []
        for run in store.runs():
            lock = run.lock()
            if lock is not None:
                held.callback(os.close, lock)
            elif _may_import(run, wanted):
                using.append(run.name)
        yield using


def _may_import(run: Run, sites: set[str]) -> bool:
    """What is not known counts as yes."""
    engine = of_run(run, Options())
    if isinstance(engine, str):
        return True
    python, _ = interpreter.find(engine.program, engine.env, before=engine.before)
    return python is None or _imports(python, sites)


def _imports(python: Interpreter, sites: set[str]) -> bool:
    return any(os.path.realpath(path) in sites for path in python.site)


def restore(left: Debugged, copies: Saving, store: Store, *, dry_run: bool) -> Restored:
    """Put back what is known, remove what was recorded, and compare all of it again.

    Args:
        left: a package, as it was found a moment ago.
        copies: takes what is overwritten or removed.
        store: where digests are remembered.
        dry_run: only say what would be done.
    """
    became = tuple(_restore(left, file, copies, dry_run=dry_run) for file in left.files)
    again = left if dry_run else _again(left, store)
    sound = bool(differences.check(again.package))
    remedy = left.remedy if dry_run else differences.restoring(again.package, left.python)
    return Restored(left, became, sound, debug_code.in_a_line(again), remedy)


def _again(left: Debugged, store: Store) -> Debugged:
    """The same one, looked at once more."""
    engine = left.engine._replace(packages=(left.package.name,))
    return replace(left, package=debug_code.compared(engine, store).packages[0])


def _restore(left: Debugged, file: Left, copies: Saving, *, dry_run: bool) -> Became:
    if not file.restorable:
        why = "no attempt has recorded it" if file.change is Change.ADDED else "what it was is not known here"
        return Became(file.path, "left", why)
    did, act = _act(left, file, copies)
    if dry_run:
        return Became(file.path, f"would be {did}")
    try:
        act()
    except NotPutBackError as error:
        return Became(file.path, "left", str(error))
    compiled = putting_back.forget_bytecode(_path(left, file), left.engine.env.get("PYTHONPYCACHEPREFIX", ""))
    return Became(file.path, did, f"compiled Python is left: {', '.join(compiled)}" if compiled else "")


def _act(left: Debugged, file: Left, copies: Saving) -> tuple[str, Callable[[], None]]:
    path, original = _path(left, file), file.original
    if original is None:
        return "removed", lambda: putting_back.remove(path, file.digest, copies)
    return "put back", lambda: putting_back.put(path, original, copies)


def _path(left: Debugged, file: Left) -> str:
    return os.path.normpath(os.path.join(left.site, file.path))


def tell(console: Console, done: Sequence[Restored], copies: Saving) -> None:
    """Say what became of it, and where the copies are."""
    for each in done:
        for file in each.became:
            console.note(f"{file.did:<9} {file.path}{f'  ({file.why})' if file.why else ''}")
        if each.sound:
            console.line("verified", f"{each.sentence}, by hash")
        else:
            console.line("NOT CLEAN", each.sentence)
            if each.remedy:
                console.note(f"by hand: {each.remedy}")
    if copies.kept:
        console.line("saved", f"{plural(len(copies.kept), 'file')} as before: {home(copies.directory)}")


def to_json(done: Restored, copies: Saving) -> dict[str, Any]:
    """What became of a package."""
    return {
        "became": [file._asdict() for file in done.became],
        "as_published": done.sound,
        "remedy": done.remedy or None,
        "saved": copies.directory if copies.kept else None,
    }
