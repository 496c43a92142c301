"""GPUs on the slate: is enough memory free on every device of the Need, and if not, who holds it? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from supervise.model.need import DeviceKind, MemoryRule, Need
from supervise.model.process import FIRST_PID_NAMESPACE
from supervise.model.slate import Await, Finding, Ownership
from supervise.model.snapshot import GpuReading, GpuStatus, Snapshot
from supervise.slate.devices import enough, needed, order_assumed
from supervise.slate.holders import Holder, describe, settle, whose
from supervise.slate.processes import ending
from supervise.slate.request import SlateRequest
from supervise.text import plural

_GIB = 2**30
# SGLang takes a fraction of what is free; its own killall calls a GPU used from a tenth on (FIELD.md C5).
_WORTH_TELLING = 0.1
_MOST_OPENERS = 5
_MOST_POINTS = 8


class _View(NamedTuple):
    """What every question about a device needs. `passing` are pids that are being ended, or have been by us."""

    need: Need
    snapshot: Snapshot
    request: SlateRequest
    passing: frozenset[int]
    order_assumed: bool


class _Held(NamedTuple):
    """A holder of a device; `known` says who it is, None for a pid that /proc does not show."""

    pid: int
    memory: int | None
    known: Holder | None

    @property
    def told(self) -> str:
        size = f"holds {self.memory / _GIB:.1f} GiB" if self.memory is not None else "holds an unknown amount"
        who = self.known.evidence if self.known else (f"pid {self.pid} of another PID namespace",)
        return ", ".join((*who, size))


def judge(snapshot: Snapshot, request: SlateRequest, owners: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for every needed device that has too little memory free, or cannot be read."""
    need = request.need
    if need is None or need.devices.kind is DeviceKind.NONE:
        return
    assumed = order_assumed(need.devices, snapshot.gpus, request.env)
    view = _View(need, snapshot, request, ending(owners) | {process.pid for process in snapshot.ended}, assumed)
    if snapshot.gpus.status is GpuStatus.ABSENT:
        yield from _rocm(view)
        return
    if snapshot.gpus.status is GpuStatus.FAILED:
        remedy = "make nvidia-smi work first; with CUDA_VISIBLE_DEVICES= (empty) no GPU is looked at"
        yield Finding("gpu", "GPUs", Ownership.UNKNOWN, (f"cannot be read: {snapshot.gpus.error}",), remedy=remedy)
        return
    wanted, missing = needed(need.devices, snapshot.gpus.devices)
    for name in missing:
        remedy = "correct CUDA_VISIBLE_DEVICES; nvidia-smi -L lists what there is"
        subject = name if name.startswith(("GPU-", "MIG-")) else f"GPU {name}"
        yield Finding("gpu", subject, Ownership.UNKNOWN, ("not on this host",), remedy=remedy)
    for device in wanted:
        if finding := _device(device, view):
            yield finding
    if assumed:
        names = dict.fromkeys(device.name for device in snapshot.gpus.devices if device.name)
        told = ("device order assumed: CUDA counts the fastest GPU first, NVML by PCI bus", *names)
        remedy = "CUDA_DEVICE_ORDER=PCI_BUS_ID makes both the same"
        yield Finding("gpu", "GPU numbers", Ownership.UNKNOWN, told, blocking=False, remedy=remedy)


def retold(finding: Finding, readings: Sequence[GpuReading], *, over: bool = False) -> Finding:
    """A finding about a device's memory, with what became of it while it was waited for.

    Args:
        finding: one of `judge`, with what was free in front of its evidence.
        readings: of that device, since the wait began.
        over: whether the time to wait is over.

    Returns:
        The same with the history of its free memory; if it still grows, with the advice to wait longer.
    """
    points = [f"{reading.free / _GIB:.1f}" for reading in readings if reading.total]
    changes = [point for place, point in enumerate(points) if place == 0 or point != points[place - 1]]
    if len(changes) < 2:
        return finding
    most = min(len(changes), _MOST_POINTS)
    shown = [changes[round(place * (len(changes) - 1) / (most - 1))] for place in range(most)]
    trail = f"{' → '.join(shown)} of {readings[-1].total / _GIB:.1f} GiB free"
    retold_ = replace(finding, evidence=(trail, *finding.evidence[1:]))
    if over and readings[-1].free > readings[len(readings) // 2].free:
        return replace(retold_, remedy="it is still returning: start again, or wait longer with --slate-timeout")
    return retold_


def _device(device: GpuReading, view: _View) -> Finding | None:
    if device.error:
        told, remedy = f"cannot be read: {device.error}", "make nvidia-smi show it first, or choose other devices"
        return Finding("gpu", device.label, Ownership.UNKNOWN, (told,), remedy=f"{remedy} with CUDA_VISIBLE_DEVICES")
    if device.mig:
        told, remedy = "in MIG mode, and without an instance", "create one (nvidia-smi mig -cgi), or end MIG mode"
        return Finding("gpu", device.label, Ownership.UNKNOWN, (told,), remedy=remedy)
    gone = [pid for pid, _ in device.holders if _leaves(pid, view)]
    staying = [_held(pid, memory, view) for pid, memory in device.holders if pid not in gone]
    if enough(device, view.need):
        if view.passing.intersection(gone) - view.snapshot.processes.keys():
            return _awaited(device, gone, view)
        return _sharers(device, staying, view)
    unseen = all(held.known is None for held in staying)
    # What we end may be listed under the pid that it has in another namespace: seen from a container, all are.
    if gone or not staying or (unseen and view.passing):
        return _awaited(device, gone, view, *(held.told for held in staying))
    return _blocked(device, staying, view)


def _leaves(pid: int, view: _View) -> bool:
    """Whether a holder is ending, or has ended and the driver has yet to notice (FIELD.md A1 rows 10 and 29)."""
    process = view.snapshot.processes.get(pid)
    if process is not None:
        ended = {each.pid: each for each in view.snapshot.ended}.get(pid, process.id)
        return process.gone or (pid in view.passing and ended == process.id)
    return pid in view.passing or _sees_all(view.snapshot)


def _sees_all(snapshot: Snapshot) -> bool:
    """Whether a pid that /proc does not show is one of nobody; with hidepid= not even init is shown (proc(5))."""
    return snapshot.host.pid_namespace == FIRST_PID_NAMESPACE and 1 in snapshot.processes


def _held(pid: int, memory: int | None, view: _View) -> _Held:
    process = None if _means_another(pid, view.snapshot) else view.snapshot.processes.get(pid)
    return _Held(pid, memory, describe(process, view.snapshot, view.request) if process else None)


def _means_another(pid: int, snapshot: Snapshot) -> bool:
    """Whether the driver speaks of another namespace's process with that number: ours has no GPU open."""
    opened = {opener for path, pids in snapshot.gpu_files.items() if path.startswith("/dev/nvidia") for opener in pids}
    return not _sees_all(snapshot) and bool(opened) and pid not in opened


def _free(device: GpuReading, need: Need) -> tuple[str, ...]:
    free = f"{device.free / _GIB:.1f} of {device.total / _GIB:.1f} GiB free"
    if enough(device, need):
        return (free,)
    return (free, f"{(need.memory_fraction or 0.0) * device.total / _GIB:.1f} wanted")


def _less(need: Need) -> str:
    other = "choose other devices with CUDA_VISIBLE_DEVICES"
    return other if need.memory_fraction is None else f"{other}, or ask for less than {need.memory_fraction}"


def _awaited(device: GpuReading, gone: Sequence[int], view: _View, *told: str) -> Finding:
    """Asynchronous: a driver gives memory back some time after its owner's end. The remedy is for when it does not."""
    listed = [f"pid {pid} {_state(pid, view.snapshot)}, still listed by the driver" for pid in gone]
    openers = [] if gone or told else _openers(device, view)
    nobody = [] if gone or told or openers else ["no visible owner"]
    evidence = (*_free(device, view.need), *_assumed(view), *listed, *told, *openers, *nobody)
    alive = [pid for pid in gone if pid in view.snapshot.processes and not view.snapshot.processes[pid].gone]
    if alive:
        remedy = f"it returns when pid {alive[0]} has ended"
    elif openers or told:
        remedy = f"end who has it, or {_less(view.need)}"
    else:
        remedy = f"{_reset(device, view.snapshot)}; or {_less(view.need)}"
    action = Await("memory of what has ended returns")
    return Finding("gpu", device.label, Ownership.STALE, evidence, action, remedy=remedy)


def _state(pid: int, snapshot: Snapshot) -> str:
    process = snapshot.processes.get(pid)
    if process is None:
        return (
            "ended"
            if pid in {each.pid for each in snapshot.ended}
            else "not in /proc: ended, or of another PID namespace"
        )
    return "ended" if process.gone else "ending"


def _reset(device: GpuReading, snapshot: Snapshot) -> str:
    """What is left to do once waiting has not helped; said, never done (FIELD.md A1 row 10)."""
    unless = "" if _sees_all(snapshot) and snapshot.uid == 0 else "unless another user or container holds it, "
    number = device.index if device.parent is None else device.parent
    return (
        f"{unless}only a driver reset (as root: nvidia-smi --gpu-reset -i {number}) or a reboot gives it back; "
        "supervise never resets a GPU"
    )


def _assumed(view: _View) -> tuple[str, ...]:
    return ("device order assumed",) if view.order_assumed else ()


def _openers(device: GpuReading, view: _View) -> list[str]:
    """Who has the device open, where the driver names nobody: no proof of holding memory, but where to look."""
    files = view.snapshot.gpu_files
    if device.minor is None:
        paths = [path for path in files if path.startswith("/dev/nvidia")]
    else:
        paths = [f"/dev/nvidia{device.minor}"]
    return _people(dict.fromkeys(pid for path in paths for pid in files.get(path, ())), paths, view)


def _people(pids: Iterable[int], paths: Iterable[str], view: _View) -> list[str]:
    """Those of them who are none of ours, with what they have open of these files."""
    processes, files = view.snapshot.processes, view.snapshot.gpu_files
    others = [pid for pid in pids if pid in processes and pid not in view.passing | view.snapshot.lineage]
    told = []
    for pid in others[:_MOST_OPENERS]:
        who = describe(processes[pid], view.snapshot, view.request).evidence
        told.append(", ".join((*who, f"has {' and '.join(path for path in paths if pid in files.get(path, ()))} open")))
    more = len(others) - len(told)
    return [*told, f"and {plural(more, 'process')} more"] if more else told


def _blocked(device: GpuReading, staying: Sequence[_Held], view: _View) -> Finding:
    """Somebody who is none of ours holds too much; what he may be made to give back is for the policy to decide."""
    known = [held.known for held in staying if held.known]
    asked = _asked(device, staying, view.need)
    action, eviction = settle(asked, view.request) if asked else (None, None)
    evidence = (*_free(device, view.need), *_assumed(view), *(held.told for held in staying))
    remedies = dict.fromkeys(holder.remedy for holder in known if holder.remedy)
    remedy = ", or ".join((*remedies, _less(view.need)))
    ownership = whose(known) if len(known) == len(staying) else Ownership.FOREIGN
    return Finding("gpu", device.label, ownership, evidence, action, remedy=remedy, eviction=eviction)


def _asked(device: GpuReading, staying: Sequence[_Held], need: Need) -> list[Holder]:
    """Whom it would take to let go: those who may be ended if that is certain to be enough, else all or nobody."""
    willing = [held for held in staying if held.known and held.known.eviction]
    freed = device.free + sum(held.memory or 0 for held in willing)
    chosen = willing if enough(replace(device, free=freed), need) else staying
    known = [held.known for held in chosen if held.known]
    return known if len(known) == len(chosen) else []


def _sharers(device: GpuReading, staying: Sequence[_Held], view: _View) -> Finding | None:
    """A remark on who else uses a device of which the engine will take a share of what is free."""
    used = device.total - device.free
    large = [held for held in staying if (used if held.memory is None else held.memory) > _WORTH_TELLING * device.total]
    if view.need.memory_rule is not MemoryRule.OF_FREE or not large:
        return None
    remedies = dict.fromkeys(held.known.remedy for held in large if held.known and held.known.remedy)
    evidence = (*_free(device, view.need), *_assumed(view), *(held.told for held in large))
    remedy = f"if too little is left: {', or '.join((*remedies, _less(view.need)))}"
    return Finding("gpu", device.label, Ownership.FOREIGN, evidence, blocking=False, remedy=remedy)


def _rocm(view: _View) -> Iterator[Finding]:
    """Without NVML the device file is all there is to see; who has it open need not hold much (FIELD.md A1 row 3)."""
    files = view.snapshot.gpu_files
    if told := _people(files.get("/dev/kfd", ()), files, view):
        evidence = ("memory not checked without NVML", *told)
        yield Finding("gpu", "ROCm GPUs", Ownership.FOREIGN, evidence, blocking=False)
