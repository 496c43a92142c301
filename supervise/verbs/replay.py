"""`supervise replay`: an attempt launched once more, with what it was launched with, if its code is what it was."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Run, Store
from supervise.model.exits import Exit
from supervise.report.console import Console, for_stream
from supervise.runner import plan, recording
from supervise.runner.plan import PACKAGE, Clearing, Options, Plan
from supervise.text import home, plural, printable
from supervise.verbs import restoring, then_and_now
from supervise.verbs.recorded_command import Recorded, option, recorded
from supervise.verbs.select import choose, kept, say, store
from supervise.verbs.then_and_now import Comparison

_MOST = 20


@dataclass(frozen=True, slots=True)
class How:
    """What becomes of differences: they are accepted, put back before, shown with their lines."""

    anyway: bool = False
    put_back: bool = False
    diff: bool = False


def replay(name: str | None, number: int | None, how: How) -> int | list[str]:
    """Prepare an attempt to be launched once more: afterwards directory and environment are those of then.

    Args:
        name: the run; None for the only one.
        number: the attempt; None for the newest.
        how: what becomes of differences.

    Returns:
        The words for `supervise`, or an exit status with nothing launched: 2 if it is not clear which attempt is meant
        or something has to be set before, 94 if its code is not what it was, or is not known.

    Raises:
        ProfileError: a profile is damaged.
        StoreError: the state directory cannot be used.
    """
    run = choose(name, live_only=False)
    if run is None:
        return Exit.USAGE
    attempt = kept(run, run.latest() if number is None else run.attempt(number), number)
    if attempt is None:
        return Exit.USAGE
    said = recorded(attempt.read("attempt"), os.environ)
    if said.lacking or not _gone_back(said):
        for lack in said.lacking:
            say(f"supervise replay: attempt {attempt.number} of {run.name}: {lack}")
        return Exit.USAGE
    console = for_stream()
    if not _as_then(run, attempt, said, how, console):
        return Exit.SLATE
    return ["run", "--name", run.name, *(said.own or ()), *said.argv]


def _gone_back(said: Recorded) -> bool:
    """Take directory and environment of then; whether there was such a directory."""
    if said.cwd:
        try:
            os.chdir(said.cwd)
        except OSError as error:
            say(f"supervise replay: it was started in {said.cwd}: {error.strerror}; make that directory, then again")
            return False
    for variable, value in said.environment.items():
        if value is None:
            del os.environ[variable]
        else:
            os.environ[variable] = value
    return True


def _as_then(run: Run, attempt: Attempt, said: Recorded, how: How, console: Console) -> bool:
    """Whether it may be launched: its code is what it was, or was put back, or that is not asked for."""
    planned = plan.make(said.argv, os.environ, _options(run, said))
    known = store()
    found = _look(planned, attempt, said, known)
    if how.put_back and found.files:
        if not _put_back(found, planned, known, console):
            return False
        found = _look(planned, attempt, said, known)
    what = f"attempt {attempt.number} of {run.name}"
    if found.same:
        console.line("replay", f"{what}, with the code that it had")
        return True
    console.line("replay", f"{what} {'although' if how.anyway else 'is not launched:'} its code is not what it was")
    lines = list(then_and_now.told(found, said.began, whole=how.diff))
    for line in lines if how.diff else lines[:_MOST]:
        console.note(line)
    if not how.diff and len(lines) > _MOST:
        console.note(f"and {plural(len(lines) - _MOST, 'more difference')}: --diff shows all")
    if not how.anyway:
        console.note(_remedy(found, how, known))
    return how.anyway


def _remedy(found: Comparison, how: How, known: Store) -> str:
    anyway = "--anyway launches it all the same"
    if how.put_back or not found.files:
        return anyway
    count = sum(not why for _, why in then_and_now.refused(found, known))
    all_of_them = plural(len(found.files), "file")
    told = all_of_them if count == len(found.files) else f"{count} of {all_of_them}"
    return f"--put-back puts {told} back; {anyway}" if count else f"--put-back can put none of them back; {anyway}"


def _look(planned: Plan, attempt: Attempt, said: Recorded, known: Store) -> Comparison:
    if not planned.packages and not planned.options.watch and sources.read(attempt) is None:
        # Of a program without packages nothing is recorded, and there is nothing to compare.
        return Comparison(unknown=said.unknown)
    now, contents = recording.look(planned, known)
    found = then_and_now.compare(attempt, now, contents, known)
    return Comparison(found.files, found.others, (*said.unknown, *found.unknown))


def _put_back(found: Comparison, planned: Plan, known: Store, console: Console) -> bool:
    places = {os.path.realpath(each.root.directory) for each in found.files}
    with restoring.nobody_uses(places, known) as using:
        if using:
            for name in using:
                say(f"supervise replay: run {name} is live and may import these files; first: supervise stop {name}")
            return False
        copies = restoring.saving(known)
        done = then_and_now.put_back(found, copies, known, planned.env.get("PYTHONPYCACHEPREFIX", ""))
    console.line("code", f"{plural(len(found.files) - len(done.left), 'file')} put back as that attempt had them")
    for line in done.left:
        console.note(line)
    if copies.kept:
        console.line("saved", f"{plural(len(copies.kept), 'file')} as before: {home(copies.directory)}")
    if done.compiled:
        removed = " ".join(map(shlex.quote, done.compiled))
        console.line("replay", printable(f"not launched: Python may believe what was compiled before: rm -- {removed}"))
    return not done.compiled


def _options(run: Run, said: Recorded) -> Options:
    """What of our options says which code is looked at."""
    own: Sequence[str] = said.own or ()
    profile = option(own, "--profile")
    watched = tuple(
        path if path.startswith(PACKAGE) else os.path.abspath(os.path.expanduser(path))
        for path in option(own, "--watch")
    )
    return Options(
        name=run.name,
        profile=profile[-1] if profile else None,
        clearing=Clearing(packages=option(own, "--package")),
        watch=watched,
    )
