"""Orphaned engine processes: what they are called, and what proves that nobody owns them any more. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from supervise.model.process import Process
from supervise.model.profile import Profile
from supervise.profiles.load import GENERIC
from supervise.profiles.match import match, started

INIT_NAMES = frozenset({"systemd", "init", "tini", "dumb-init", "catatonit", "docker-init"})
_COMM_BYTES = 15
# A title's pattern up to its first group, class or quantifier.
_LITERAL = re.compile(r"(?:\\\W|[\w:-])+(?![*?{])")
# What engines start to compile kernels (FIELD.md A3 row 56, C6); ninja runs the others.
_COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "nvlink", "ninja", "cc1plus"})
_COMPILE_WORKER = "torch/_inductor/compile_worker/__main__.py"
# Names that other programs have as well: torch's own for a main thread, MPI's for any pool (FIELD.md A1 rows 9, 22).
_OLD_COMM = "pt_main_thread"
_OLD_MODULE = "mpi4py.futures.server"


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


def engine_by_comm(process: Process, profiles: Iterable[Profile]) -> Profile | None:
    """The engine whose title the kernel's 15-byte name begins with, where there is no command line to tell.

    A weak hint: it wants a second proof.

    Args:
        process: the process.
        profiles: all profiles.

    Returns:
        The profile, None if it is no engine's or has a command line.
    """
    if process.argv or process.gone:
        return None
    for profile in profiles:
        for pattern in profile.titles:
            literal = _LITERAL.match(pattern.pattern)
            beginning = re.sub(r"\\(\W)", r"\1", literal[0])[:_COMM_BYTES] if literal else ""
            if "::" in beginning and process.comm.startswith(beginning):
                return profile
    return None


def is_engine(process: Process, profiles: Iterable[Profile]) -> bool:
    """Whether it is an engine's by its title, or was started as one (`vllm serve …`)."""
    known = {profile.name: profile for profile in profiles}
    if engine(process, known.values()) is not None:
        return True
    return GENERIC in known and bool(process.argv) and match(process.argv or (), known).profile.name != GENERIC


def compiler(process: Process) -> str | None:
    """What is compiled with, if it is a compiler of kernels or one of torch's compile workers; None if it is not."""
    argv = process.argv or ("",)
    if any(word.endswith(_COMPILE_WORKER) for word in argv[1:3]):
        return "compile worker"
    name = argv[0].rpartition("/")[2]
    return name if name in _COMPILERS else None


def old_name(process: Process) -> str | None:
    """A name that processes of old or other engines have, and not only those; None if it has none such."""
    if process.comm == _OLD_COMM:
        return _OLD_COMM
    return _OLD_MODULE if process.argv and started(process.argv) == _OLD_MODULE else None


def notable(process: Process, profiles: Iterable[Profile]) -> bool:
    """Whether it is worth knowing where it lives and whom it serves."""
    known = tuple(profiles)
    return bool(engine(process, known) or engine_by_comm(process, known) or compiler(process))


def protected(process: Process, profiles: Iterable[Profile]) -> bool:
    """Whether a profile says never to touch it: weight caches and the like, whose purpose is to outlive servers."""
    title = process.title
    return any(pattern.search(title) for profile in profiles for pattern in profile.protected)


def why_orphan(process: Process, processes: Mapping[int, Process]) -> tuple[str, ...] | None:
    """The proof that an engine process is orphaned, None if there is none.

    A renamed process is always the child of a launcher; one whose parent is the reaper of orphans has lost it, whatever
    became of its session. As PID 1 of a container the launcher itself may be that parent: then it counts as a reaper
    only for those whose session or process group has lost the leader that made it.

    Args:
        process: the process.
        processes: all processes of the same reading.

    Returns:
        Proofs, as people read them.
    """
    parent = processes.get(process.ppid)
    if parent is None:
        return None
    if _is_init(parent) and parent.uid in (0, process.uid):
        return (f"its launcher is gone, ppid {parent.pid} {parent.comm}",)
    if parent.pid != 1:
        return None
    for what, number, first in (("session", process.sid, parent.sid), ("process group", process.pgid, parent.pgid)):
        leader = processes.get(number)
        # 0 stands for a leader in another PID namespace (credentials(7)).
        if number not in (0, first, process.pid) and (leader is None or leader.gone):
            return (f"its launcher is gone, ppid 1, leader {number} of its {what} is gone",)
    return None


def _is_init(process: Process) -> bool:
    """Whether it only reaps orphans, by both its names: a script that somebody calls `init` has one of them only."""
    called = process.argv[0].rpartition("/")[2] if process.argv else ""
    return process.comm in INIT_NAMES and called in INIT_NAMES
