"""`supervise profiles`: what engines are known, from which file; and whether what is known of failures holds."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from supervise.diagnosis.proving import TooLongError, count, prove
from supervise.model.diagnosis import Signature, SignatureSet, Trap
from supervise.model.exits import Exit
from supervise.model.profile import Form, Profile
from supervise.profiles import data_dir
from supervise.profiles.errors import ProfileError
from supervise.profiles.load import load, names
from supervise.profiles.own import joined
from supervise.profiles.signatures import available_sets, parse_signatures
from supervise.verbs.output import answering

CHECK = "check"
"""The word that is no profile's name."""

_STDIN = "-"
# An entry is proven in some milliseconds, unless its pattern explodes on something that its structure does not tell.
_ENTRY_S = 5.0


def profiles(name: str | None, files: Sequence[str] = ()) -> int:
    """List all profiles, show one, or check what is known of failures.

    Args:
        name: the profile; None for all, "check" to prove all signatures.
        files: with "check", files of signatures to prove instead of all that come along.

    Returns:
        0; 2 if something is not proven.

    Raises:
        ProfileError: there is none of that name, or one is damaged.
    """
    if name == CHECK:
        with answering():
            return check(files)
    if files:
        raise ProfileError("profiles", "", f"takes one name, and there is {files[0]!r}, too", "NAME, or check FILE…")
    if name is None:
        known = [load(each) for each in names()]
        sys.stdout.write("".join(f"{profile.name:<10} {profile.summary}\n" for profile in known))
    else:
        sys.stdout.write(_show(load(name)))
    return 0


# --- check ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """A file of signatures; `read` is None if it cannot be read, `problem` says why."""

    path: str
    read: SignatureSet | None
    problem: str = ""

    @property
    def name(self) -> str:
        return os.path.basename(self.path)


def check(files: Sequence[str]) -> int:
    """Prove signatures on their samples: one line that counts them, or one line for each fault.

    Args:
        files: files of signatures, `-` for standard input; one that is named like a set that comes along stands in
            for it, and so does an entry with the id of one that comes along. Without any, all sets that come along.

    Returns:
        0 if all hold, otherwise 2.
    """
    own = [os.path.join(data_dir(), "signatures", f"{name}.toml") for name in available_sets()]
    read = [_read(path) for path in files or own]
    named = {each.name for each in read}
    others = [_read(path) for path in own if os.path.basename(path) not in named] if files else []
    faults = [each.problem for each in read if each.problem]
    faults += _twins(read)
    faults += _repeated(read, others)
    everything = joined(_joined(others), _joined(read))
    for each in read:
        if each.read is not None:
            told = each.path if files else each.name
            faults += map(str, prove(told, each.read, everything, time.thread_time, _limited))
    if faults:
        sys.stdout.write("".join(f"{fault}\n" for fault in faults))
        return Exit.USAGE
    signatures, traps, samples = count([each.read for each in read if each.read is not None])
    what = "1 file" if len(read) == 1 else f"{len(read)} files"
    for stand_in in _stand_ins(read, others):
        sys.stdout.write(f"{stand_in}\n")
    sys.stdout.write(f"{signatures} signatures and {traps} traps in {what} hold on {samples} samples\n")
    return Exit.OK


def _read(path: str) -> _File:
    name = "standard input" if path == _STDIN else path
    try:
        with open(sys.stdin.fileno() if path == _STDIN else path, "rb", closefd=path != _STDIN) as file:
            entries = parse_signatures(file.read(), name)
    except ProfileError as error:
        return _File(name, None, str(error))
    except OSError as error:
        return _File(name, None, f"{name}: cannot be read: {error.strerror}; name a file of [[signature]] tables")
    if not _entries(entries):
        return _File(name, None, f"{name}: there is nothing in it; allowed: [[signature]] and [[trap]] tables")
    return _File(name, entries)


@contextmanager
def _limited() -> Iterator[None]:
    """Break off what takes too much of the processor: a search looks for signals now and then."""

    def end(signum: int, frame: object) -> None:
        del signum, frame
        raise TooLongError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, _ENTRY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _twins(read: Sequence[_File]) -> list[str]:
    seen: dict[str, str] = {}
    faults = []
    for file in read:
        for entry in _entries(file.read):
            if entry.id in seen:
                faults.append(f"{file.path}: {entry.id}: the id is used in {seen[entry.id]}, too; choose another")
            seen.setdefault(entry.id, file.name)
    return faults


def _repeated(read: Sequence[_File], others: Sequence[_File]) -> list[str]:
    """Entries that say word for word what one that comes along says."""
    shipped = {entry: file.name for file in others for entry in _entries(file.read)}
    return [
        f"{file.path}: {entry.id}: the id is used in {shipped[entry]}, too, word for word; leave it out"
        for file in read
        for entry in _entries(file.read)
        if entry in shipped
    ]


def _stand_ins(read: Sequence[_File], others: Sequence[_File]) -> list[str]:
    shipped = {entry.id: file.name for file in others for entry in _entries(file.read)}
    return [
        f"{file.path}: {entry.id}: the id is used in {shipped[entry.id]}, too; this one stands in for it"
        for file in read
        for entry in _entries(file.read)
        if entry.id in shipped
    ]


def _entries(known: SignatureSet | None) -> tuple[Signature | Trap, ...]:
    return (*known.signatures, *known.traps) if known else ()


def _joined(files: Sequence[_File]) -> SignatureSet:
    sets = [each.read for each in files if each.read is not None]
    return SignatureSet(
        tuple(signature for each in sets for signature in each.signatures),
        tuple(trap for each in sets for trap in each.traps),
    )


# --- show -------------------------------------------------------------------------------------------------------------


def _show(profile: Profile) -> str:
    lines = [
        f"{profile.name}: {profile.summary}",
        f"file      {profile.source}",
        *(f"starts as {_form(form)}" for form in profile.forms),
        f"ready     {' or '.join(line.pattern for line in profile.ready.lines) or 'no line'}; GET {profile.ready.http}",
        f"phases    {', '.join(dict.fromkeys(phase.name for phase in profile.phases))}",
        f"titles    {', '.join(title.pattern for title in profile.titles)}",
        f"protected {', '.join(title.pattern for title in profile.protected)}",
        f"grace     {profile.grace_s:.0f} s, then everybody is told; a fatal line may linger {profile.linger_s:.0f} s",
        f"causes    {', '.join(profile.signatures)}",
    ]
    return "\n".join(lines) + "\n"


def _form(form: Form) -> str:
    start = f"python -m {form.module}" if form.module else form.program or "any program"
    return " ".join((start, *form.words))
