"""The judgement as tables: whose it is, what may be done, and above all what must never be touched."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.model.litter import FileId, FileType, Litter, Segment
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need, Port
from supervise.model.process import HostId, Marker, Process, ProcessId
from supervise.model.slate import Await, EndProcesses, Ownership, Remove, RemoveTree
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, PortReading, PortState, Record, Snapshot, SocketPath
from supervise.profiles.load import load
from supervise.slate.judge import judge
from supervise.slate.request import SlateRequest

HOST = HostId("boot", 4026531836)
GIB = 2**30
PROFILE = load("vllm")
NEED = Need("vllm", "vllm-8000", (), (), ports=(Port(8000, "", "http", "default"),))
REQUEST = SlateRequest("vllm-8000", NEED, (PROFILE,))
INIT = Process(ProcessId(1, 1), 0, 1, 1, "S", "systemd", 0, ("/sbin/init",))


def process(pid: int, *argv: str, ppid: int = 1, sid: int | None = None, uid: int = 1000, **more) -> Process:
    comm = more.pop("comm", argv[0][:15] if argv else "x")
    return Process(
        ProcessId(pid, pid * 10),
        ppid,
        sid or pid,
        sid or pid,
        "S",
        comm,
        uid,
        argv,
        namespace=HOST.pid_namespace,
        **more,
    )


def snapshot(*processes: Process, **more) -> Snapshot:
    everything = {p.pid: p for p in (INIT, *processes)}
    return Snapshot(HOST, 1000, more.pop("lineage", frozenset({1, 500})), everything, **more)


def record(attempt: int = 6, **more) -> Record:
    more.setdefault("run", "vllm-8000")
    return Record(
        attempt=attempt,
        marker_id=more.pop("marker_id", "id6"),
        host=more.pop("host", HOST),
        supervisor=more.pop("supervisor", ProcessId(90, 900)),
        keeper=more.pop("keeper", ProcessId(91, 910)),
        leader=more.pop("leader", ProcessId(92, 920)),
        **more,
    )


def only(snapshot_: Snapshot, request: SlateRequest = REQUEST):
    found = judge(snapshot_, request)
    assert len(found) == 1, found
    return found[0]


MARKED = Marker("vllm-8000", 6, "id6")
ORPHAN = process(4711, "VLLM::EngineCore", sid=92)

DECOYS = [
    process(10, "vim", "vllm.md"),
    process(11, "tail", "-f", "vllm.log"),
    process(12, "python", "bench.py", "--backend", "vllm"),
    process(13, "bash", "-c", "vllm serve /models/tiny --port 8000"),
    process(14, "less", "VLLM::EngineCore"),
    process(15, "vllm", "serve", "m"),
    process(16, "grep", "VLLM::Worker"),
    process(17, "VLLM::EngineCore", ppid=15),
    process(18, "VLLM::EngineCore", uid=0),
    process(19, "python", "-m", "vllm.weight_cache.daemon"),
    process(20, "ssh", "gpu1", "VLLM::Worker_TP0"),
    process(21, "xVLLM::EngineCore"),
    process(22, "VLLM::EngineCore-notes.txt.swp", "--x"),
    replace(process(23, "VLLM::EngineCore"), namespace=4026539999),
    replace(process(24, "VLLM::EngineCore"), namespace=None),
    replace(process(25, "VLLM::EngineCore"), state="Z"),
    replace(process(26, "VLLM::EngineCore", ppid=15), argv=None),
    process(27, "someone's", marker=Marker("vllm-8000", 6, "an id that we have no record of")),
    process(28, "other", marker=Marker("vllm-9999", 1, "other")),
]


@pytest.mark.parametrize("decoy", DECOYS, ids=lambda decoy: decoy.title[:30])
def test_a_decoy_is_no_finding(decoy):
    assert judge(snapshot(decoy, process(15, "vllm", "serve", "m"), records=(record(),)), REQUEST) == ()


def test_all_decoys_together_are_no_finding():
    assert judge(snapshot(*DECOYS, records=(record(),)), REQUEST) == ()


def test_an_orphan_by_title_is_stale():
    finding = only(snapshot(ORPHAN))
    assert finding.ownership is Ownership.STALE
    assert finding.action == EndProcesses((ORPHAN.id,))


def test_an_orphan_counts_although_the_shell_of_its_session_lives():
    assert only(snapshot(ORPHAN, process(92, "bash"))).ownership is Ownership.STALE


def test_an_orphan_that_serves_another_port_is_left_alone():
    finding = only(snapshot(ORPHAN, serving={4711: (8001,)}))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.UNKNOWN, None, False)


def test_a_child_of_a_container_s_first_process_in_its_session_is_no_orphan():
    first = replace(INIT, comm="python3", argv=("python3", "serve.py"))
    child = process(30, "VLLM::EngineCore", sid=1)
    taken = Snapshot(HOST, 1000, frozenset({500}), {1: first, 30: child})
    (remark,) = judge(taken, REQUEST)
    assert (remark.action, remark.blocking, remark.ownership) == (None, False, Ownership.UNKNOWN)
    lost = replace(child, sid=77)
    (orphan,) = judge(replace(taken, processes={1: first, 30: lost}), REQUEST)
    assert orphan.action == EndProcesses((child.id,))
    grouped = replace(child, pgid=77)
    (orphan,) = judge(replace(taken, processes={1: first, 30: grouped}), REQUEST)
    assert orphan.action == EndProcesses((child.id,))
    for others in ({30: replace(child, sid=30, pgid=30)}, {30: lost, 77: process(77, "bash")}):
        (remark,) = judge(replace(taken, processes={1: first, **others}), REQUEST)
        assert remark.action is None
    server = replace(first, comm="vllm", argv=("python3", "/bin/vllm", "serve", "m"))
    engines = replace(REQUEST, profiles=(PROFILE, load("generic")))
    assert judge(replace(taken, processes={1: server, 30: child}), engines) == ()


@pytest.mark.parametrize("argv", [("sh", "./init"), ("python3", "/app/init"), None, ()])
def test_a_launcher_that_is_called_init_is_none(argv):
    launcher = replace(process(7, "x", ppid=1), comm="init", argv=argv)
    assert judge(snapshot(launcher, replace(ORPHAN, ppid=7)), REQUEST) == ()
    reaper = replace(launcher, argv=("/sbin/init", "--user"))
    assert len(judge(snapshot(reaper, replace(ORPHAN, ppid=7)), REQUEST)) == 1


@pytest.mark.parametrize("argv", [("VLLM::Worker_TP0",), ("python", "x.py"), ("sleep", "9")])
def test_a_member_by_marker_of_a_recorded_attempt_is_stale_whatever_it_is_called(argv):
    finding = only(snapshot(process(40, *argv, marker=MARKED), records=(record(),)))
    assert (finding.ownership, finding.action) == (Ownership.STALE, EndProcesses((ProcessId(40, 400),)))


def test_a_member_whose_supervise_lives_is_live_and_untouched():
    finding = only(snapshot(process(40, "x", marker=MARKED), process(90, "supervise"), records=(record(),)))
    assert (finding.ownership, finding.action) == (Ownership.LIVE, None)
    assert finding.remedy == "supervise stop vllm-8000"


def test_a_member_whose_keeper_lives_is_awaited():
    finding = only(snapshot(process(40, "x", marker=MARKED), process(91, "keeper"), records=(record(),)))
    assert isinstance(finding.action, Await)


def test_a_recorded_leader_is_stale_by_its_record_alone():
    leader = process(92, "python", "-m", "whatever")
    assert only(snapshot(leader, records=(record(),))).action == EndProcesses((leader.id,))


@pytest.mark.parametrize(
    "spoiled",
    [record(host=HostId("another boot", HOST.pid_namespace)), record(leader=ProcessId(92, 921)), record(run="b")],
)
def test_a_record_of_another_boot_process_or_run_proves_nothing(spoiled):
    assert judge(snapshot(process(92, "python", "x"), records=(spoiled,)), REQUEST) == ()


def test_our_own_lineage_is_never_touched():
    ours = process(500, "VLLM::EngineCore", marker=MARKED)
    assert judge(snapshot(ours, records=(record(leader=ours.id),)), REQUEST) == ()


def held(*holders: Process) -> PortReading:
    return PortReading(8000, "", PortState.HELD, tuple(holder.id for holder in holders))


def test_a_free_port_is_no_finding():
    assert judge(snapshot(ports=(PortReading(8000, "", PortState.FREE),)), REQUEST) == ()


def test_a_port_held_by_a_stranger_is_an_obstacle_that_names_him():
    stranger = process(60, "nginx")
    finding = only(snapshot(stranger, ports=(held(stranger),)))
    assert (finding.ownership, finding.action) == (Ownership.FOREIGN, None)
    assert "pid 60 nginx" in finding.evidence[0]
    assert "kill 60" in finding.remedy


def test_a_port_held_by_what_is_being_ended_is_awaited():
    found = judge(snapshot(ORPHAN, ports=(held(ORPHAN),)), REQUEST)
    assert [type(finding.action) for finding in found] == [EndProcesses, Await]


def test_a_port_held_invisibly_is_an_obstacle():
    finding = only(snapshot(ports=(held(),)))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.UNKNOWN, None, True)


def test_whoever_listens_invisibly_is_told_by_his_user():
    finding = only(snapshot(ports=(replace(held(), listening=(0,)),)))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.FOREIGN, None, True)
    assert "a socket of uid 0 listens on it" in finding.evidence


def test_a_package_that_is_nowhere_is_told():
    finding = only(snapshot(), replace(REQUEST, missing=("nosuch",)))
    assert (finding.kind, finding.subject, finding.blocking) == ("package", "nosuch", False)


def test_a_port_that_cannot_be_tried_is_not_free():
    finding = only(snapshot(ports=(PortReading(8000, "", PortState.UNKNOWN, error="denied"),)))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.UNKNOWN, None, True)


def test_a_port_held_by_a_live_run_names_the_run():
    other = process(61, "python", marker=Marker("b", 2, "idb"))
    lively = record(2, run="b", marker_id="idb", supervisor=ProcessId(95, 950))
    finding = only(snapshot(other, process(95, "supervise"), ports=(held(other),), records=(lively,)))
    assert (finding.ownership, finding.action) == (Ownership.LIVE, None)
    assert finding.remedy == "supervise stop b; or choose another port than 8000"


def gpu(index: int, free: float, *holders: tuple[int, int | None]) -> GpuReading:
    return GpuReading(index, f"GPU-{index}{index}", "H200", 100 * GIB, int(free * GIB), holders)


def gpus(*devices: GpuReading) -> Gpus:
    return Gpus(GpuStatus.READ, devices)


def wanting(fraction: float = 0.9, **devices) -> SlateRequest:
    need = replace(NEED, ports=(), memory_fraction=fraction, memory_rule=MemoryRule.OF_TOTAL)
    return replace(REQUEST, need=replace(need, devices=Devices(**devices)) if devices else need)


def test_enough_memory_on_every_device_is_no_finding():
    assert judge(snapshot(gpus=gpus(gpu(0, 95), gpu(1, 90))), wanting()) == ()


def test_one_device_short_is_an_obstacle_that_names_the_holder():
    finding = only(snapshot(process(70, "train.py"), gpus=gpus(gpu(0, 95), gpu(1, 50, (70, 45 * GIB)))), wanting())
    assert finding.subject == "GPU 1"
    assert any("pid 70 train.py" in told for told in finding.evidence)


def test_a_holder_of_another_namespace_is_said_to_be_one():
    finding = only(snapshot(gpus=gpus(gpu(0, 10, (99999, None)))), wanting())
    assert any("another PID namespace" in told for told in finding.evidence)


def test_memory_of_an_orphan_that_is_being_ended_is_awaited():
    found = judge(snapshot(ORPHAN, gpus=gpus(gpu(0, 10, (4711, 85 * GIB)))), wanting())
    assert [type(finding.action) for finding in found] == [EndProcesses, Await]


@pytest.mark.parametrize(
    ("devices", "subjects"),
    [
        ({"kind": DeviceKind.LISTED, "ids": ("0",)}, []),
        ({"kind": DeviceKind.LISTED, "ids": ("1",)}, ["GPU 1"]),
        ({"kind": DeviceKind.LISTED, "ids": ("GPU-1",)}, ["GPU 1"]),
        ({"kind": DeviceKind.LISTED, "ids": ("7",)}, ["GPU 7"]),
        ({"kind": DeviceKind.LISTED, "ids": ("MIG-x",)}, ["MIG-x"]),
        ({"kind": DeviceKind.NONE}, []),
        ({"kind": DeviceKind.ALL, "count": 1}, []),
        ({"kind": DeviceKind.ALL}, ["GPU 1"]),
        ({"kind": DeviceKind.LISTED, "ids": ("0", "1"), "count": 1}, []),
    ],
)
def test_only_the_devices_of_the_need_are_looked_at(devices, subjects):
    taken = snapshot(gpus=gpus(gpu(0, 95), gpu(1, 5, (70, None))))
    assert [finding.subject for finding in judge(taken, wanting(**devices))] == subjects


def test_gpus_that_cannot_be_read_are_an_obstacle_unless_none_is_wanted():
    broken = snapshot(gpus=Gpus(GpuStatus.FAILED, error="GPU is lost"))
    assert only(broken, wanting()).ownership is Ownership.UNKNOWN
    assert judge(broken, wanting(kind=DeviceKind.NONE)) == ()


def segment(**more) -> Segment:
    return replace(Segment("psm_1", FileId(1, 2), 1, 1000, 5.0), **more)


def test_a_stale_socket_is_removed_only_if_it_is_ours():
    ours = SocketPath("/tmp/s", "/tmp/s", FileId(1, 3), 1000)
    assert only(snapshot(socket_path=ours)).action == Remove("/tmp/s", FileId(1, 3), FileType.SOCKET, 1000)
    assert only(snapshot(socket_path=ours._replace(uid=0))).action is None


def test_the_private_directory_of_an_attempt_goes_once_nobody_is_at_work_in_it():
    left = record(runtime_dir="/tmp/sv-x")
    there = frozenset({"/tmp/sv-x"})
    assert only(snapshot(records=(left,), directories=there)).action == RemoveTree("/tmp/sv-x", "id6")
    assert judge(snapshot(process(91, "keeper"), records=(left,), directories=there), REQUEST) == ()
    assert judge(snapshot(records=(left,)), REQUEST) == ()


TITLES = st.sampled_from(["VLLM::EngineCore", "VLLM::Worker_TP0", "vim", "bash", "python"])
MARKERS = st.sampled_from([None, MARKED, Marker("vllm-8000", 7, "?"), Marker("b", 1, "idb")])
PROCESSES = st.builds(
    lambda pid, title, extra, ppid, sid, uid, state, marker: replace(
        process(pid, title, *extra, ppid=ppid, sid=sid, uid=uid, marker=marker), state=state
    ),
    st.integers(2, 120),
    TITLES,
    st.sampled_from([(), ("a",)]),
    st.sampled_from([1, 5, 90, 500]),
    st.integers(1, 120),
    st.sampled_from([0, 1000]),
    st.sampled_from(["S", "Z", "D", "T"]),
    MARKERS,
)


@given(st.lists(PROCESSES, unique_by=lambda p: p.pid), st.sets(st.integers(2, 120)))
def test_only_what_is_ours_or_stale_is_ever_acted_upon(processes, lineage):
    records = (record(), record(1, run="b", marker_id="idb", supervisor=ProcessId(80, 800)))
    taken = snapshot(*processes, lineage=frozenset(lineage | {1}), records=records)
    for finding in judge(taken, REQUEST):
        if finding.action is None:
            continue
        assert finding.ownership in (Ownership.OURS, Ownership.STALE)
        if isinstance(finding.action, EndProcesses):
            for target in finding.action.targets:
                doomed = taken.processes[target.pid]
                assert target.pid not in taken.lineage
                assert doomed.uid == taken.uid
                assert doomed.marker == MARKED or doomed.id == ProcessId(92, 920) or doomed.title.startswith("VLLM::")


OTHER = record(2, run="b", marker_id="idb", supervisor=ProcessId(95, 950))
OF_OTHER = process(61, "python", marker=Marker("b", 2, "idb"))


def test_what_a_dead_run_left_is_told_once_and_not_touched():
    second = process(62, "python", marker=Marker("b", 2, "idb"))
    finding = only(snapshot(OF_OTHER, second, records=(OTHER,)))
    assert (finding.action, finding.blocking, finding.remedy) == (None, False, "supervise clean --name b")
    assert finding.evidence[0].startswith("2 processes")


@pytest.mark.parametrize(
    "calm",
    [
        snapshot(OF_OTHER, process(95, "supervise"), records=(OTHER,)),
        snapshot(OF_OTHER, process(95, "supervise"), records=(OTHER,), lineage=frozenset({1, 95, 500})),
        snapshot(OF_OTHER, records=(replace(OTHER, host=HostId("another boot", 1)),)),
        snapshot(replace(OF_OTHER, state="Z"), records=(OTHER,)),
        snapshot(OF_OTHER, records=(OTHER,), lineage=frozenset({1, 61})),
    ],
    ids=["live", "live and our ancestor", "another boot", "zombie", "lineage"],
)
def test_a_run_that_left_nothing_is_not_mentioned(calm):
    assert judge(calm, REQUEST) == ()


def test_a_port_that_outlives_what_this_sweep_ended_is_awaited():
    finding = only(snapshot(ports=(held(),), ended=frozenset({ORPHAN.id})))
    assert isinstance(finding.action, Await)


def test_a_port_that_somebody_else_has_taken_meanwhile_is_an_obstacle():
    stranger = process(60, "nginx")
    assert only(snapshot(stranger, ports=(held(stranger),), ended=frozenset({ORPHAN.id}))).action is None


def test_what_a_keeper_is_ending_holds_its_port_and_memory_for_a_while_only():
    member = process(40, "x", marker=MARKED)
    taken = snapshot(
        member,
        process(91, "keeper"),
        records=(record(),),
        ports=(held(member),),
        gpus=gpus(gpu(0, 10, (40, 80 * GIB))),
    )
    request = replace(wanting(), need=replace(wanting().need, ports=NEED.ports))
    assert [type(finding.action) for finding in judge(taken, request)] == [Await] * 3


def test_memory_of_what_this_sweep_ended_is_awaited_while_the_driver_lists_it():
    finding = only(snapshot(gpus=gpus(gpu(0, 10, (4711, None))), ended=frozenset({ORPHAN.id})), wanting())
    assert isinstance(finding.action, Await)


def test_a_gpu_that_shares_the_host_s_memory_is_not_judged():
    shared = GpuReading(0, "GPU-0", "GB10", 0, 0)
    assert judge(snapshot(gpus=gpus(shared)), wanting()) == ()


def test_segments_of_an_attempt_at_work_are_its_own_business():
    working = record(segments=(FileId(1, 2),))
    assert (
        judge(snapshot(process(90, "supervise"), records=(working,), litter=Litter(segments=(segment(),))), REQUEST)
        == ()
    )


@pytest.mark.parametrize(
    ("more", "ownership"),
    [
        ({"in_use": True}, Ownership.UNKNOWN),
        ({"in_use": True, "holders": (ProcessId(60, 600),)}, Ownership.FOREIGN),
        ({"is_socket": False}, Ownership.UNKNOWN),
        ({"uid": 0}, Ownership.FOREIGN),
    ],
)
def test_what_is_where_the_socket_should_be_is_an_obstacle(more, ownership):
    there = SocketPath("/tmp/s", "/tmp/s", FileId(1, 3), 1000)._replace(**more)
    finding = only(snapshot(process(60, "nginx"), socket_path=there))
    assert (finding.ownership, finding.action, finding.blocking) == (ownership, None, True)
    assert finding.remedy
