"""Policy: who may be ended at all, and how far `--evict` must go for it. Pure.

Some are never ended, whatever the level: ourselves, our ancestors and helpers; what another run's supervise, keeper or
guard still contains; what a profile protects; the services of the host; other users' processes and those of another PID
namespace. As ending a process ends everything below it, the same is asked of all its descendants.
"""

from __future__ import annotations

from collections.abc import Iterable

from supervise.model.evict import Evict
from supervise.model.process import Process, ProcessId
from supervise.model.slate import EndProcesses, Eviction
from supervise.model.snapshot import Snapshot
from supervise.slate import orphans, runs
from supervise.slate.request import SlateRequest

# Whose end takes a login, a desktop, all containers or a whole node along. They protect themselves, not what is below
# them: everything on a host is below one of them. Names as the kernel has them, cut at 15 bytes.
_SERVICES = orphans.INIT_NAMES | {
    "(sd-pam)", "sshd", "sshd-session", "sshd-auth", "dbus-daemon", "dbus-broker", "login", "cron", "crond",
    "dockerd", "docker-proxy", "containerd", "containerd-shim", "conmon", "crio", "rootlessport", "podman", "kubelet",
    "slurmd", "slurmstepd", "Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "plasmashell", "sway",
    "weston", "Hyprland", "screen", "tmux", "tmux: server",
}  # fmt: skip
_CLUSTER = frozenset({"raylet", "gcs_server"})


# --- who may be ended -------------------------------------------------------------------------------------------------


def permitted(process: Process, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether its user is ours, or one that root was told to treat so."""
    if process.uid is None:
        return False
    return process.uid == snapshot.uid or (snapshot.uid == 0 and process.uid in request.evict_uids)


def guarded(process: Process, snapshot: Snapshot, request: SlateRequest) -> Process | None:
    """What protects a process: itself as a service of the host, or whoever in its line is protected by a profile."""
    if process.comm in _SERVICES:
        return process
    line = (process, *snapshot.above(process))
    return next((each for each in line if orphans.protected(each, request.profiles)), None)


def kept(process: Process, snapshot: Snapshot, request: SlateRequest) -> bool:
    """Whether a process outlives even the attempt that it belongs to: what a profile or the user protects.

    A Ray cluster that a member of the attempt has started is none of the host's services: it goes with its run.
    """
    line = (process, *snapshot.above(process))
    return process.comm not in _CLUSTER and any(
        orphans.protected(each, request.profiles) and each.comm not in _CLUSTER for each in line
    )


def spared(targets: Iterable[ProcessId], snapshot: Snapshot, request: SlateRequest) -> frozenset[int]:
    """What is not ended although it is below processes that are.

    Args:
        targets: what is ended.
        snapshot: the reading they are from.
        request: whose slate it is.

    Returns:
        Pids below them of what is kept, and of runs at work; all that is below these is spared as well.
    """
    roots = {target.pid: snapshot.processes[target.pid] for target in targets if target.pid in snapshot.processes}
    return frozenset(
        process.pid
        for process in snapshot.with_all_below(roots)
        if process.pid not in roots and (kept(process, snapshot, request) or runs.claimed(process, snapshot, request))
    )


def why_not(targets: Iterable[Process], snapshot: Snapshot, request: SlateRequest) -> str | None:
    """Why these may not be ended with everything below them.

    Args:
        targets: the processes.
        snapshot: the reading they are from.
        request: whose slate it is.

    Returns:
        The reason, as people read it; None if they may.
    """
    doomed = {target.pid: target for target in targets}
    for target in doomed.values():
        if target.namespace != snapshot.host.pid_namespace:
            return f"pid {target.pid} is of another PID namespace"
        if holder := guarded(target, snapshot, request):
            return f"{holder.id} {holder.comm} is protected"
    for member in snapshot.with_all_below(doomed):
        if reason := _refusal(member, snapshot, request):
            return f"{member.id} {reason}"
    return None


def _refusal(process: Process, snapshot: Snapshot, request: SlateRequest) -> str | None:
    if process.pid in snapshot.lineage:
        return "is one of ours"
    if not permitted(process, snapshot, request):
        return f"belongs to uid {process.uid}"
    # Unreadable is what has just ended, as the user is ours.
    if process.namespace not in (None, snapshot.host.pid_namespace):
        return "is of another PID namespace"
    if process.comm in _SERVICES or orphans.protected(process, request.profiles):
        return f"{process.comm} is protected"
    if runs.run_of(process, snapshot, request) is not None:
        return "belongs to a run at work"
    return None


# --- what would clear a holder away -----------------------------------------------------------------------------------


def eviction(holder: Process, snapshot: Snapshot, request: SlateRequest) -> Eviction | None:
    """What would make a process let go of what it holds, and the lowest level of `--evict` that goes as far.

    Args:
        holder: holds what the launch needs: nothing else may be asked about here.
        snapshot: the reading it is from.
        request: whose slate it is in the way of.

    Returns:
        For a process of an engine the end of its whole server; None if it may not be ended at any level.
    """
    top = server(holder, snapshot, request)
    targets = [holder] if top is None or top.pid == holder.pid else [top, holder]
    if holder.gone or why_not(targets, snapshot, request):
        return None
    action = EndProcesses(tuple(target.id for target in targets))
    return Eviction(_level(holder, top, snapshot, request), action)


def server(process: Process, snapshot: Snapshot, request: SlateRequest) -> Process | None:
    """The topmost engine process of the same user that a process is, or is below of; None if there is none."""
    top = None
    for each in (process, *snapshot.above(process)):
        if each.pid in snapshot.lineage or each.uid != process.uid:
            break
        if not each.gone and each.comm not in _SERVICES and orphans.is_engine(each, request.profiles):
            top = each
    return top


def abandoned(process: Process, snapshot: Snapshot, request: SlateRequest) -> tuple[str, ...] | None:
    """The proof that a retitled engine process is nobody's any more and serves nobody; None if there is none."""
    if orphans.engine(process, request.profiles) is None or serves_elsewhere(process, snapshot, request):
        return None
    return orphans.why_orphan(process, snapshot.processes)


def serves_elsewhere(process: Process, snapshot: Snapshot, request: SlateRequest) -> set[int]:
    """The ports it listens on apart from those of the launch: somebody may be using it."""
    wanted = {port.number for port in request.need.ports} if request.need else set()
    return set(snapshot.serving.get(process.pid, ())) - wanted


def covered(asked: Eviction, request: SlateRequest) -> bool:
    """Whether the policy goes as far, or the user has agreed to exactly this."""
    return request.evict.covers(asked.level) or request.consent.issuperset(asked.action.targets)


def together(asked: Iterable[Eviction | None]) -> Eviction | None:
    """What clears several holders of one thing away; None if one of them may not be ended: then none need be."""
    known = list(asked)
    found = [each for each in known if each is not None]
    if not found or len(found) < len(known):
        return None
    level = next(level for level in reversed(Evict) if any(each.level is level for each in found))
    targets = dict.fromkeys(target for each in found for target in each.action.targets)
    return Eviction(level, EndProcesses(tuple(targets)))


def _level(holder: Process, top: Process | None, snapshot: Snapshot, request: SlateRequest) -> Evict:
    if top is not None:
        return Evict.STALE if abandoned(top, snapshot, request) else Evict.ENGINES
    # By the kernel's name alone it could be anybody's; that it is orphaned and holds what we need is the second proof.
    by_comm = orphans.engine_by_comm(holder, request.profiles)
    if by_comm and orphans.why_orphan(holder, snapshot.processes) and not serves_elsewhere(holder, snapshot, request):
        return Evict.STALE
    return Evict.ALL
