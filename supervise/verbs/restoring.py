"""`supervise clean --restore`: files of packages made as their wheels had them, and that verified by hash."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from supervise.attempts.roles import living
from supervise.attempts.store import Run, Store
from supervise.host import compiled, importers, interpreter, procfs, putting_back
from supervise.host.belongings import Belongings, own_directories
from supervise.host.compiled import Candidate
from supervise.host.saving import NotPutBackError, Saving
from supervise.model.process import Process
from supervise.model.sources import Change
from supervise.report.console import Console
from supervise.runner.plan import Options
from supervise.slate import differences
from supervise.text import home, plural, printable
from supervise.verbs import debug_code
from supervise.verbs.debug_code import Debugged, Left
from supervise.verbs.engines import of_run

_COMPILED_WITHIN_S = 60.0


class Became(NamedTuple):
    """What became of a file: `did` in words, `why` a phrase where not all was done.

    `compiled` is bytecode of it that could not be removed, and may be believed.
    """

    path: str
    did: str
    why: str = ""
    compiled: tuple[str, ...] = ()


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
    """By what it was launched with, and by what its members are; what is not known counts as yes."""
    engine = of_run(run, Options())
    if isinstance(engine, str):
        return True
    python, _ = interpreter.find(engine.program, engine.env, before=engine.before)
    if python is None or importers.searches(python, sites):
        return True
    state = run.read_state()
    if living(state, "supervisor") is None and living(state, "keeper") is None:
        return True
    return importers.any_may(_members(run.name, state), sites)


def _members(name: str, state: dict[str, Any] | None) -> list[Process]:
    """All that were started below a run, and those that have its marker, without us."""
    processes = procfs.scan()
    roots = [process for role in ("supervisor", "keeper", "leader") if (process := living(state, role))]
    found = {each.pid: each for root in roots for each in procfs.descendants(processes, root.pid)}
    found |= {pid: each for pid, each in processes.items() if each.marker and each.marker.run == name}
    ours = {root.pid for root in roots if root != living(state, "leader")} | {os.getpid()}
    return [each for pid, each in sorted(found.items()) if pid not in ours and not each.gone]


def restore(left: Debugged, copies: Saving, store: Store, *, dry_run: bool) -> Restored:
    """Put back what is known, remove what was recorded, and compare all of it again.

    Args:
        left: a package, as it was found a moment ago.
        copies: takes what is overwritten or removed.
        store: where digests are remembered.
        dry_run: only say what would be done.
    """
    package = left.package
    belongings = Belongings(package.installed, package.record) if package.installed else None
    became = tuple(_restore(left, file, belongings, copies, dry_run=dry_run) for file in left.files)
    again = left if dry_run else _again(left, store)
    leftover = dict.fromkeys(path for each in became for path in each.compiled)
    leftover |= dict.fromkeys(() if dry_run and left.files else _believed(left))
    sound = bool(differences.check(again.package)) and not leftover
    remedies = [left.remedy if dry_run else differences.restoring(again.package, left.python)]
    remedies += [f"rm -- {' '.join(map(shlex.quote, leftover))}"] if leftover else []
    sentence = debug_code.in_a_line(again)
    if leftover:
        sentence += f"; Python may believe {plural(len(leftover), 'file')} compiled of something else"
    return Restored(left, became, sound, sentence, printable("; ".join(filter(None, remedies))))


def _believed(left: Debugged) -> list[str]:
    """Bytecode that Python takes for that of a file of the package, and that is not, or may not be."""
    package, deadline = left.package, time.monotonic() + _COMPILED_WITHIN_S
    prefix, doubtful, unread = left.engine.env.get("PYTHONPYCACHEPREFIX", ""), list[Candidate](), list[str]()
    for top in own_directories(package.record) if package.installed else ():
        place = os.path.join(left.site, top)
        doubtful += compiled.candidates(place, deadline, prefix=prefix, unread=unread)
    told = compiled.prove(doubtful, left.python, deadline) if doubtful else {}
    return [*(each.path for each in doubtful if told.get(each, True)), *unread]


def _again(left: Debugged, store: Store) -> Debugged:
    """The same one, looked at once more."""
    engine = left.engine._replace(packages=(left.package.name,))
    return replace(left, package=debug_code.compared(engine, store).packages[0])


def _restore(left: Debugged, file: Left, belongings: Belongings | None, copies: Saving, *, dry_run: bool) -> Became:
    if not file.restorable:
        why = "no attempt has recorded it" if file.change is Change.ADDED else "what it was is not known here"
        return Became(file.path, "left", why)
    if why := "whose it is is not known" if belongings is None else belongings.keeps_from(file.path):
        return Became(file.path, "left", why)
    did, act = _act(left, file, copies)
    if dry_run:
        return Became(file.path, f"would be {did}")
    try:
        act()
    except NotPutBackError as error:
        return Became(file.path, "left", str(error))
    stale = putting_back.forget_bytecode(_path(left, file), left.engine.env.get("PYTHONPYCACHEPREFIX", ""))
    why = f"compiled Python is left: {', '.join(stale)}" if stale else ""
    return Became(file.path, did, why, tuple(stale))


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
