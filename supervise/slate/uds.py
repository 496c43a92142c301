"""The path of a Unix socket on the slate: bound by whom, or left behind. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from supervise.model.litter import FileType
from supervise.model.slate import Finding, Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.slate.ports import held
from supervise.slate.processes import ending
from supervise.slate.request import SlateRequest


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding if there is anything where the server wants its socket: it does not remove even its own."""
    there = snapshot.socket_path
    if there is None:
        return
    if not there.is_socket:
        remedy = f"choose another --uds than {there.path}, or move what is there"
        yield Finding("socket", there.path, Ownership.UNKNOWN, ("exists, and is no socket",), remedy=remedy)
    elif there.in_use:
        passing = ending(owners) | {process.pid for process in snapshot.ended}
        holders = [snapshot.processes[h.pid] for h in there.holders if h.pid in snapshot.processes]
        yield held("socket", there.path, holders, passing, snapshot, request)
    elif there.uid == snapshot.uid:
        action = Remove(there.real, there.file, FileType.SOCKET, there.uid)
        yield Finding("socket", there.path, Ownership.STALE, ("a socket file that nobody has bound",), action)
    else:
        evidence = ("a socket file that nobody has bound", f"uid {there.uid}")
        yield Finding("socket", there.path, Ownership.FOREIGN, evidence, remedy=f"sudo rm {shlex.quote(there.path)}")
