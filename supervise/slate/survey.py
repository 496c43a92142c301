"""Survey: one reading of everything that the judgement looks at."""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable
from dataclasses import replace

from supervise.host import containers, gpudevices, procfs, sockets
from supervise.model.litter import FileId
from supervise.model.need import DeviceKind
from supervise.model.process import FIRST_PID_NAMESPACE, Process, ProcessId
from supervise.model.snapshot import NO_GPUS, Gpus, PortReading, PortState, Snapshot, SocketPath
from supervise.slate import devices, litter, orphans
from supervise.slate.cgroups import Population
from supervise.slate.request import Host, SlateRequest


def survey(request: SlateRequest, host: Host, ended: frozenset[ProcessId] = frozenset()) -> Snapshot:
    """Read the host once.

    Args:
        request: what the slate is for: it decides which ports, GPUs and segments are looked at.
        host: the readers.
        ended: what this sweep has already ended.

    Returns:
        The snapshot; blocking, for as long as a scan of /proc and a call into the driver take.
    """
    processes = host.scan()
    known = _interesting(request, processes)
    processes.update({p.pid: replace(p, namespace=host.namespace(p.pid)) for p in known})
    need = request.need
    ports = tuple(_port(host, port.host, port.number, processes) for port in need.ports) if need else ()
    socket_path = _socket_path(need.uds, processes) if need and need.uds else None
    gpus = host.gpus() if need and need.devices.kind is not DeviceKind.NONE else NO_GPUS
    holders = _holders(ports, socket_path, gpus)
    # To end one of them is to end what is above and below it: of all these it matters where they live.
    related = _related(holders, {p.pid for p in known}, processes)
    processes.update({pid: replace(processes[pid], namespace=host.namespace(pid)) for pid in related})
    here = [record for record in request.records if record.host == host.host_id()]
    own = [record for record in here if record.run == request.run]
    # Of all runs, since one may have been started inside another; but the usual launch has no record and reads nothing.
    population = host.cgroups(here, processes) if own else Population({}, frozenset())
    return Snapshot(
        host=host.host_id(),
        uid=os.geteuid(),
        lineage=host.lineage() | request.helpers,
        processes=processes,
        records=request.records,
        ports=ports,
        gpus=gpus,
        litter=litter.survey(request, host),
        ages_s={p.pid: procfs.age_s(p.id.ticks) for p in processes.values()},
        serving=_serving(known),
        socket_path=socket_path,
        directories=frozenset(
            r.runtime_dir for r in request.records if r.runtime_dir and os.path.lexists(r.runtime_dir)
        ),
        ended=ended,
        writing=host.writers(processes.values(), [record.log for record in own if record.log]) if own else {},
        inside=population.inside,
        empty_cgroups=population.empty,
        containers=containers.containers_of(holders),
        gpu_files=gpudevices.openers() if devices.unexplained(gpus, need, namesakes=_namesakes(host)) else {},
    )


def _interesting(request: SlateRequest, processes: dict[int, Process]) -> list[Process]:
    """Processes with a marker or an engine's name: of these it matters where they live and what they serve."""
    return [p for p in processes.values() if p.marker or orphans.notable(p, request.profiles)]


def _holders(ports: Iterable[PortReading], socket_path: SocketPath | None, gpus: Gpus) -> frozenset[int]:
    """Pids of all who hold what the launch needs, or a GPU."""
    bound = [*(holder for port in ports for holder in port.holders), *(socket_path.holders if socket_path else ())]
    return frozenset(holder.pid for holder in bound) | {pid for device in gpus.devices for pid, _ in device.holders}


def _related(holders: Iterable[int], known: Container[int], processes: dict[int, Process]) -> frozenset[int]:
    """Them, all above them, and all below them and below every engine above them: the whole of their servers."""
    found: set[int] = set()
    roots = []
    for pid in holders:
        roots.append(pid)
        while pid in processes and pid not in found:
            found.add(pid)
            roots += [pid] if pid in known else []
            pid = processes[pid].ppid
    below = (child.pid for root in roots for child in procfs.descendants(processes, root))
    return frozenset(found.union(below)) & processes.keys()


def _namesakes(host: Host) -> bool:
    """Whether the driver may speak of other namespaces' processes by numbers that mean others here."""
    return host.host_id().pid_namespace != FIRST_PID_NAMESPACE


def _port(host: Host, address: str, number: int, processes: dict[int, Process]) -> PortReading:
    reading = host.probe_port(address, number)
    if reading.state is not PortState.HELD:
        return reading
    listening = host.listeners(number, address)
    inodes = (*(listener.inode for listener in listening), *host.bound(number))
    uids = tuple(dict.fromkeys(listener.uid for listener in listening))
    return replace(reading, holders=sockets.holders(inodes, processes.values()), listening=uids)


def _serving(processes: Iterable[Process]) -> dict[int, tuple[int, ...]]:
    """Which TCP ports each of these listens on; the kernel walks a large table for it, so that nobody asks in vain."""
    held = {p.pid: inodes for p in processes if (inodes := procfs.sockets_of(p.pid))}
    if not held:
        return {}
    table = sockets.listening_ports()
    return {pid: tuple(sorted({table[i] for i in inodes if i in table})) for pid, inodes in held.items()}


def _socket_path(path: str, processes: dict[int, Process]) -> SocketPath | None:
    """What is in the way of a Unix socket."""
    try:
        state = os.lstat(path)
    except OSError:
        return None
    file = FileId(state.st_dev, state.st_ino)
    real = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(path))), os.path.basename(path))
    if not stat.S_ISSOCK(state.st_mode):
        return SocketPath(path, real, file, state.st_uid, is_socket=False)
    holders = sockets.holders(sockets.unix_listeners().get(path, ()), processes.values())
    return SocketPath(path, real, file, state.st_uid, in_use=sockets.unix_path_in_use(path), holders=holders)
