"""GPUs, judged: every device of the launch, nothing certain said that is not, nobody ended who is not ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervise.model.evict import Evict
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need
from supervise.model.process import HostId, Process, ProcessId
from supervise.model.slate import Await, EndProcesses, Finding, Ownership
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, Snapshot
from supervise.profiles.load import load
from supervise.slate import devices, gpus
from supervise.slate.request import SlateRequest

GIB = 2**30
FIRST = HostId("boot", 0xEFFFFFFC)
INNER = HostId("boot", 4026532000)
INIT = Process(ProcessId(1, 1), 0, 1, 1, "S", "systemd", 0, ("/sbin/init",))


def process(pid: int, *argv: str, host: HostId = FIRST, **more) -> Process:
    more = {"ppid": 1, "pgid": pid, "sid": pid, "state": "S", "uid": 1000} | more
    return Process(ProcessId(pid, pid * 10), comm=argv[0][:15], argv=argv, namespace=host.pid_namespace, **more)


TRAINING = process(70, "train.py")
ENGINE = process(4711, "VLLM::EngineCore")
ENDED = frozenset({ENGINE.id})


def gpu(index: int, free: float, *holders: tuple[int, float | None], **more) -> GpuReading:
    held = tuple((pid, None if size is None else int(size * GIB)) for pid, size in holders)
    reading = GpuReading(index, f"GPU-{index}{index}", "H200", 100 * GIB, int(free * GIB), held, minor=index)
    return replace(reading, **more)


def instance(parent: int, index: int, uuid: str, free: float, *holders: tuple[int, float | None]) -> GpuReading:
    return gpu(index, free, *holders, uuid=uuid, parent=parent, minor=parent)


def divided(index: int) -> GpuReading:
    return gpu(index, 0, mig=True, total=0)


def wanting(*ids: str, rule: MemoryRule | None = MemoryRule.OF_TOTAL, count: int | None = None, **more) -> SlateRequest:
    wanted = Devices(DeviceKind.LISTED, ids, count) if ids else Devices(DeviceKind.ALL, count=count)
    need = Need("vllm", "r", (), (), devices=wanted, memory_fraction=0.9, memory_rule=rule)
    return SlateRequest("r", need, (load("vllm"),), **more)


def judged(
    *readings: GpuReading,
    request: SlateRequest | None = None,
    people: tuple[Process, ...] = (),
    owners: tuple[Finding, ...] = (),
    host: HostId = FIRST,
    **more,
) -> list[Finding]:
    more.setdefault("gpus", Gpus(GpuStatus.READ, readings))
    processes = {each.pid: each for each in (INIT, *people)}
    snapshot = Snapshot(host, more.pop("uid", 1000), frozenset({1, 500}), processes, **more)
    return list(gpus.judge(snapshot, request or wanting(), owners))


def told(finding: Finding) -> str:
    return ", ".join(finding.evidence)


# --- which devices ----------------------------------------------------------------------------------------------------

PLAIN = (gpu(0, 95), gpu(1, 95))
MIXED = (gpu(0, 95), divided(1), instance(1, 0, "MIG-x", 95), instance(1, 2, "MIG-y", 95), divided(2))


@pytest.mark.parametrize(
    ("present", "ids", "count", "labels", "missing"),
    [
        (PLAIN, (), None, ["GPU 0", "GPU 1"], []),
        (PLAIN, (), 1, ["GPU 0"], []),
        (PLAIN, ("1", "0"), 1, ["GPU 1"], []),
        (PLAIN, ("GPU-1",), None, ["GPU 1"], []),
        (PLAIN, ("7", "GPU-x", "MIG-x"), None, [], ["7", "GPU-x", "MIG-x"]),
        (MIXED, ("MIG-x",), None, ["GPU 1 MIG 0"], []),
        (MIXED, ("MIG-y",), None, ["GPU 1 MIG 2"], []),
        (MIXED, ("MIG-z",), None, [], ["MIG-z"]),
        (MIXED, ("1",), None, ["GPU 1 MIG 0"], []),
        (MIXED, ("GPU-11",), None, ["GPU 1 MIG 0"], []),
        (MIXED, ("2",), None, ["GPU 2"], []),
        (MIXED, (), None, ["GPU 0", "GPU 1 MIG 0"], []),
        ((divided(0),), (), None, ["GPU 0"], []),
    ],
)
def test_the_devices_of_a_launch(present, ids, count, labels, missing):
    wanted = Devices(DeviceKind.LISTED, ids, count) if ids else Devices(DeviceKind.ALL, count=count)
    found, unmatched = devices.needed(wanted, present)
    assert ([device.label for device in found], unmatched) == (labels, missing)


def test_an_instance_is_judged_by_its_own_memory():
    present = (divided(0), instance(0, 0, "MIG-x", 95), instance(0, 1, "MIG-y", 5, (70, 90)))
    assert judged(*present, request=wanting("MIG-x"), people=(TRAINING,)) == []
    (finding,) = judged(*present, request=wanting("MIG-y"), people=(TRAINING,))
    assert (finding.subject, finding.blocking) == ("GPU 0 MIG 1", True)
    assert "pid 70 train.py" in told(finding)


@pytest.mark.parametrize("ids", [("MIG-z",), ("7",), ("GPU-77",)])
def test_a_name_that_matches_nothing_is_unknown(ids):
    (finding,) = judged(*MIXED, request=wanting(*ids))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.UNKNOWN, None, True)
    assert ids[0] in finding.subject


def test_nothing_can_run_on_a_divided_gpu_without_instances():
    (finding,) = judged(divided(0))
    assert (finding.ownership, finding.blocking) == (Ownership.UNKNOWN, True)
    assert "in MIG mode" in told(finding)


def test_an_unreadable_device_blocks_only_if_it_is_needed():
    present = (gpu(0, 0, total=0, error="GPU is lost"), gpu(1, 95))
    assert judged(*present, request=wanting("1")) == []
    for request in (wanting("0"), wanting("0", rule=MemoryRule.OF_FREE), wanting("0", rule=None), wanting()):
        (finding,) = judged(*present, request=request)
        assert (finding.subject, finding.ownership, finding.blocking) == ("GPU 0", Ownership.UNKNOWN, True)
        assert "GPU is lost" in told(finding)


@pytest.mark.parametrize(
    ("ids", "count", "env", "names", "assumed"),
    [
        (("0",), None, {}, ("H200", "L4"), True),
        ((), 1, {}, ("H200", "L4"), True),
        (("0",), None, {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, ("H200", "L4"), True),
        (("0",), None, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, ("H200", "L4"), False),
        (("0",), None, {}, ("H200", "H200"), False),
        (("0",), None, {}, ("H200", ""), False),
        (("GPU-00",), None, {}, ("H200", "L4"), False),
        ((), 2, {}, ("H200", "L4"), False),
        ((), None, {}, ("H200", "L4"), False),
    ],
)
def test_the_order_of_different_models_is_only_assumed(ids, count, env, names, assumed):
    present = [gpu(index, 95, name=name) for index, name in enumerate(names)]
    found = judged(*present, request=wanting(*ids, count=count, env=env))
    assert [(finding.subject, finding.blocking) for finding in found] == [("GPU numbers", False)] * assumed
    assert all("device order assumed" in told(finding) for finding in found)


# --- too little memory ------------------------------------------------------------------------------------------------


def test_every_device_is_looked_at():
    found = judged(gpu(0, 95), gpu(1, 5, (70, 90)), gpu(2, 5, (70, 90)), people=(TRAINING,))
    assert [finding.subject for finding in found] == ["GPU 1", "GPU 2"]


def test_who_ended_but_is_still_listed_is_awaited_although_there_is_enough():
    (finding,) = judged(gpu(0, 95, (4711, 1)), ended=ENDED)
    assert isinstance(finding.action, Await)
    assert "pid 4711 ended, still listed by the driver" in told(finding)
    assert judged(gpu(0, 95, (4711, 1))) == []
    assert judged(gpu(0, 95), ended=ENDED) == []
    generic = wanting(rule=None)
    assert [type(each.action) for each in judged(gpu(0, 95, (4711, 1)), request=generic, ended=ENDED)] == [Await]


def test_a_pid_that_somebody_else_has_now_is_nobody_s_we_ended():
    other = replace(process(4711, "train.py"), id=ProcessId(4711, 99999))
    assert judged(gpu(0, 95, (4711, 1)), people=(other,), ended=ENDED) == []
    (finding,) = judged(gpu(0, 5, (4711, 90)), people=(other,), ended=ENDED)
    assert not isinstance(finding.action, Await)


def test_the_memory_of_a_zombie_is_awaited():
    (finding,) = judged(gpu(0, 5, (70, 90)), people=(replace(TRAINING, state="Z"),))
    assert isinstance(finding.action, Await)


def test_nobody_listed_is_awaited_and_said_plainly_once_that_has_not_helped():
    (finding,) = judged(gpu(0, 5), uid=0)
    assert isinstance(finding.action, Await)
    assert "no visible owner" in told(finding)
    assert "only a driver reset (as root: nvidia-smi --gpu-reset -i 0) or a reboot gives it back" in finding.remedy
    assert "supervise never resets a GPU" in finding.remedy
    assert not finding.remedy.startswith("unless")


@pytest.mark.parametrize("more", [{"uid": 1000}, {"uid": 0, "host": INNER}])
def test_where_not_all_can_be_seen_that_is_said(more):
    (finding,) = judged(gpu(0, 5), **more)
    assert finding.remedy.startswith("unless another user or container holds it, only a driver reset")


def test_who_has_the_device_open_is_named_where_nvml_names_nobody():
    files = {"/dev/nvidia1": (70, 500), "/dev/nvidia0": (71,)}
    people = (TRAINING, process(71, "else.py"), process(500, "supervise"))
    (finding,) = judged(gpu(0, 95), gpu(1, 5), people=people, gpu_files=files)
    assert "pid 70 train.py" in told(finding)
    assert "has /dev/nvidia1 open" in told(finding)
    assert "else.py" not in told(finding)
    assert "pid 500" not in told(finding)
    assert "no visible owner" not in finding.evidence


@pytest.mark.parametrize(
    ("reading", "looked"),
    [
        (Gpus(GpuStatus.READ, (gpu(0, 5),)), True),
        (Gpus(GpuStatus.READ, (gpu(0, 5, (70, 90)),)), False),
        (Gpus(GpuStatus.READ, (gpu(0, 95),)), False),
        (Gpus(GpuStatus.READ, (gpu(0, 95), gpu(1, 5))), False),
        (Gpus(GpuStatus.READ, (gpu(0, 0, error="lost"),)), False),
        (Gpus(GpuStatus.FAILED), False),
        (Gpus(GpuStatus.ABSENT), True),
    ],
)
def test_device_files_are_looked_at_only_where_nothing_else_tells(reading, looked):
    need = wanting("0").need
    assert devices.unexplained(reading, need) is looked
    assert devices.unexplained(reading, None) is False
    assert devices.unexplained(reading, replace(need, devices=Devices(DeviceKind.NONE))) is False


def test_a_pid_of_another_namespace_is_named_and_not_waited_for():
    (finding,) = judged(gpu(0, 5, (99999, None)), host=INNER)
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.FOREIGN, None, True)
    assert "pid 99999 of another PID namespace, holds an unknown amount" in finding.evidence


def test_what_we_ended_may_be_listed_under_a_pid_of_another_namespace():
    (finding,) = judged(gpu(0, 5, (99999, 90)), host=INNER, ended=ENDED)
    assert isinstance(finding.action, Await)
    assert "pid 99999 of another PID namespace, holds 90.0 GiB" in finding.evidence


def test_where_proc_shows_everybody_a_pid_that_is_not_there_has_ended():
    (finding,) = judged(gpu(0, 5, (99999, 90)))
    assert isinstance(finding.action, Await)
    assert "pid 99999 not in /proc" in told(finding)


# --- eviction ---------------------------------------------------------------------------------------------------------

LIVE = process(80, "vllm", "serve", "m")
WORKER = process(81, "VLLM::EngineCore", ppid=80, sid=80, pgid=80)


def test_a_live_server_is_offered_but_not_ended_by_default():
    (finding,) = judged(gpu(0, 5, (81, 90)), people=(LIVE, WORKER))
    assert (finding.action, finding.blocking) == (None, True)
    assert finding.eviction is not None
    assert finding.eviction.level is Evict.ENGINES
    assert "--evict engines" in finding.remedy


def test_it_is_ended_where_the_policy_goes_as_far():
    (finding,) = judged(gpu(0, 5, (81, 90)), people=(LIVE, WORKER), request=wanting(evict=Evict.ENGINES))
    assert isinstance(finding.action, EndProcesses)
    assert WORKER.id in finding.action.targets


def test_several_are_one_eviction_of_the_highest_level():
    (finding,) = judged(gpu(0, 5, (81, 50), (70, 40)), people=(LIVE, WORKER, TRAINING))
    assert finding.eviction is not None
    assert finding.eviction.level is Evict.ALL
    assert {WORKER.id, TRAINING.id} <= set(finding.eviction.action.targets)


FOREIGN = process(90, "theirs.py", uid=2000)


@pytest.mark.parametrize(("theirs", "offered"), [(1, True), (30, False), (None, False)])
def test_nobody_is_ended_in_vain(theirs, offered):
    """What may not be ended holds too much: then the rest need not go either."""
    ours = 90 if theirs == 1 else 65
    (finding,) = judged(gpu(0, 4, (81, ours), (90, theirs)), people=(LIVE, WORKER, FOREIGN))
    assert (finding.eviction is not None) is offered


@pytest.mark.parametrize(("theirs", "offered"), [(1, True), (30, False)])
def test_beside_an_unseen_holder_others_are_ended_only_if_that_is_enough(theirs, offered):
    people = (process(80, "vllm", "serve", "m", host=INNER), process(81, "VLLM::EngineCore", ppid=80, host=INNER))
    (finding,) = judged(gpu(0, 4, (81, 95 - theirs), (99999, theirs)), people=people, host=INNER)
    assert (finding.eviction is not None) is offered


def test_an_unseen_holder_is_never_evicted():
    request = wanting(evict=Evict.ALL)
    (finding,) = judged(gpu(0, 5, (99999, 90)), host=INNER, request=request)
    assert (finding.action, finding.eviction) == (None, None)


# --- a share of what is free ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("holder", "named"),
    [((70, 50), True), ((70, 10), False), ((70, None), True), ((4711, 50), False), ((500, 0.1), False)],
)
def test_with_a_fraction_of_what_is_free_a_large_holder_is_a_remark(holder, named):
    owners = (Finding("process", "x", Ownership.STALE, (), EndProcesses((ENGINE.id,))),)
    people = (TRAINING, ENGINE, process(500, "supervise"))
    found = judged(gpu(0, 45, holder), request=wanting(rule=MemoryRule.OF_FREE), people=people, owners=owners)
    assert [(finding.blocking, finding.action) for finding in found] == [(False, None)] * named
    assert all("pid 70 train.py" in told(finding) for finding in found)


# --- ROCm -------------------------------------------------------------------------------------------------------------


def test_who_has_kfd_open_is_a_remark():
    files = {"/dev/kfd": (70, 500, 4711), "/dev/dri/renderD128": (70,)}
    people = (TRAINING, process(500, "supervise"))
    (finding,) = judged(gpus=Gpus(GpuStatus.ABSENT), gpu_files=files, people=people)
    assert (finding.blocking, finding.action) == (False, None)
    assert "pid 70 train.py" in told(finding)
    assert "has /dev/kfd and /dev/dri/renderD128 open" in told(finding)
    assert "pid 500" not in told(finding)
    assert judged(gpus=Gpus(GpuStatus.ABSENT), gpu_files={"/dev/dri/renderD128": (70,)}, people=people) == []


# --- history ----------------------------------------------------------------------------------------------------------


def waited(*free: float) -> str:
    finding = Finding("gpu", "GPU 0", Ownership.STALE, ("5.0 of 100.0 GiB free", "90.0 wanted"))
    return gpus.retold(finding, [gpu(0, each) for each in free]).evidence[0]


def test_the_history_has_the_first_the_last_and_few_between():
    assert waited(3.1, 20.5, 79.2) == "3.1 → 20.5 → 79.2 of 100.0 GiB free"
    assert waited(3.1, 3.1, 3.1, 20.5, 20.5, 79.2) == "3.1 → 20.5 → 79.2 of 100.0 GiB free"
    many = waited(*range(95)).removesuffix(" of 100.0 GiB free").split(" → ")
    assert (many[0], many[-1], len(many)) == ("0.0", "94.0", 8)


def test_without_a_change_there_is_no_history():
    assert waited() == waited(5) == waited(5, 5, 5) == "5.0 of 100.0 GiB free"


def test_what_still_returns_at_the_deadline_is_no_case_for_a_reset():
    finding = judged(gpu(0, 5))[0]
    readings = [gpu(0, free) for free in (5, 20, 40, 60)]
    assert "--slate-timeout" in gpus.retold(finding, readings, over=True).remedy
    assert gpus.retold(finding, readings).remedy == finding.remedy
    stuck = [gpu(0, free) for free in (5, 20, 20, 20)]
    assert gpus.retold(finding, stuck, over=True).remedy == finding.remedy
