"""Survey: one reading of everything that the judgement looks at."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import replace

from supervise.host import procfs, shm, sockets
from supervise.model.need import DeviceKind, Need
from supervise.model.process import Process
from supervise.model.slate import FileId, Gpus, GpuStatus, PortReading, PortState, Segment, Snapshot, StaleSocket
from supervise.slate import orphans
from supervise.slate.request import Host, SlateRequest


def survey(request: SlateRequest, host: Host) -> Snapshot:
    """Read the host once.

    Args:
        request: what the slate is for: it decides which ports, GPUs and segments are looked at.
        host: the readers.

    Returns:
        The snapshot; blocking, for as long as a scan of /proc and a call into the driver take.
    """
    processes = host.scan()
    known = _interesting(request, processes)
    processes.update({p.pid: replace(p, namespace=host.namespace(p.pid)) for p in known})
    need = request.need
    return Snapshot(
        host=host.host_id(),
        uid=os.geteuid(),
        lineage=host.lineage(),
        processes=processes,
        records=request.records,
        ports=tuple(_port(host, port.host, port.number, processes) for port in need.ports) if need else (),
        gpus=host.gpus() if need and need.devices.kind is not DeviceKind.NONE else Gpus(GpuStatus.ABSENT),
        segments=_segments(request, host),
        ages_s={p.pid: procfs.age_s(p.id.ticks) for p in processes.values()},
        serving=_serving(known),
        stale_socket=_stale_socket(need) if need else None,
        directories=frozenset(
            r.runtime_dir for r in request.records if r.runtime_dir and os.path.lexists(r.runtime_dir)
        ),
    )


def _interesting(request: SlateRequest, processes: dict[int, Process]) -> list[Process]:
    """Processes with a marker or an engine's title: of these it matters where they live and what they serve."""
    return [p for p in processes.values() if p.marker or orphans.engine(p, request.profiles)]


def _port(host: Host, address: str, number: int, processes: dict[int, Process]) -> PortReading:
    reading = host.probe_port(address, number)
    if reading.state is not PortState.HELD:
        return reading
    return replace(reading, holders=sockets.holders(host.listeners(number), processes.values()))


def _serving(processes: Iterable[Process]) -> dict[int, tuple[int, ...]]:
    """Which TCP ports each of these listens on; the kernel walks a large table for it, so that nobody asks in vain."""
    held = {p.pid: inodes for p in processes if (inodes := procfs.sockets_of(p.pid))}
    if not held:
        return {}
    table = sockets.listening_ports()
    return {pid: tuple(sorted({table[i] for i in inodes if i in table})) for pid, inodes in held.items()}


def _segments(request: SlateRequest, host: Host) -> tuple[Segment, ...]:
    """Segments that ended attempts of this run wrote down as theirs, with who uses them now."""
    ours = {file for record in request.records if record.run == request.run for file in record.segments}
    found = [segment for segment in host.segments() if segment.file in ours] if ours else []
    used, known = shm.users({segment.file for segment in found})
    return tuple(replace(s, users=used.get(s.file, ()), users_known=known) for s in found)


def _stale_socket(need: Need) -> StaleSocket | None:
    """A socket file where the server wants to listen, if nobody listens on it."""
    if need.uds is None or need.uds in sockets.unix_listeners():
        return None
    try:
        state = os.lstat(need.uds)
    except OSError:
        return None
    if not stat.S_ISSOCK(state.st_mode):
        return None
    return StaleSocket(need.uds, FileId(state.st_dev, state.st_ino), state.st_uid)
