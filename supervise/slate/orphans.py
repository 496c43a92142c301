"""Orphaned engine processes: what they are called, and what proves that nobody owns them any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from supervise.model.process import Process
from supervise.model.profile import Profile

_INIT_NAMES = frozenset({"systemd", "init", "tini", "dumb-init", "catatonit", "docker-init"})


def engine(process: Process, profiles: Iterable[Profile]) -> Profile | None:
    """The engine whose renamed process this is.

    Only a retitled process counts: its title is its only argument. A command line that merely mentions an engine (an
    editor, a pager, a shell, a benchmark client) has more, or is not a title.

    Args:
        process: the process.
        profiles: all profiles.

    Returns:
        The profile, None if the title is no engine's.
    """
    if process.argv is None or len(process.argv) != 1:
        return None
    title = process.argv[0].strip()
    return next((p for p in profiles if any(pattern.fullmatch(title) for pattern in p.titles)), None)


def protected(process: Process, profiles: Iterable[Profile]) -> bool:
    """Whether a profile says never to touch it: weight caches and the like, whose purpose is to outlive servers."""
    title = process.title
    return any(pattern.search(title) for profile in profiles for pattern in profile.protected)


def why_orphan(process: Process, processes: Mapping[int, Process]) -> tuple[str, ...] | None:
    """The proof that an engine process is orphaned, None if there is none.

    A renamed process is always the child of a launcher; one whose parent is the reaper of orphans has lost it, whatever
    became of its session. As PID 1 of a container the launcher itself may be that parent: then its children share its
    session, and only a known init counts as a reaper.

    Args:
        process: the process.
        processes: all processes of the same reading.

    Returns:
        Proofs, as people read them.
    """
    parent = processes.get(process.ppid)
    if parent is None:
        return None
    if parent.comm in _INIT_NAMES and parent.uid in (0, process.uid):
        return (f"its launcher is gone, ppid {parent.pid} {parent.comm}",)
    if parent.pid == 1 and parent.sid != process.sid:
        return ("its launcher is gone, ppid 1",)
    return None
