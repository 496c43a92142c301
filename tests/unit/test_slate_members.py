"""Who belongs to a dead attempt, as a table: by record, marker, log and cgroup; and who must never be taken for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervise.attempts.store import Store
from supervise.model.process import HostId, Marker, Process, ProcessId
from supervise.model.slate import Await, EndProcesses, Ownership, RemoveCgroup
from supervise.model.snapshot import LOST_ID, Record, Snapshot
from supervise.profiles.load import load
from supervise.slate import policy
from supervise.slate.judge import judge
from supervise.slate.request import SlateRequest

HOST = HostId("boot", 4026531836)
RUN = "vllm-8000"
REQUEST = SlateRequest(RUN, None, ())
LOG = "/state/vllm-8000/attempts/0003/server.log"
LEAF = "/sys/fs/cgroup/supervise-vllm-8000-0123456789ab"
INIT = Process(ProcessId(1, 1), 0, 1, 1, "S", "systemd", 0, ("/sbin/init",))
RECORD = Record(
    RUN,
    3,
    "id3",
    HOST,
    supervisor=ProcessId(20, 200),
    keeper=ProcessId(21, 210),
    leader=ProcessId(22, 220),
    members=(ProcessId(22, 220), ProcessId(30, 300)),
    guard=ProcessId(23, 230),
    cgroup=LEAF,
    log=LOG,
)
OTHER = Record(
    "b", 1, "idb", HOST, ProcessId(50, 500), ProcessId(51, 510), ProcessId(52, 520), guard=ProcessId(53, 530)
)


def process(pid: int, **more) -> Process:
    plain = Process(ProcessId(pid, pid * 10), 1, pid, pid, "S", "x", 1000, ("x",), namespace=HOST.pid_namespace)
    return replace(plain, **more)


def snapshot(*processes: Process, **more) -> Snapshot:
    more.setdefault("records", (RECORD,))
    return Snapshot(HOST, 1000, more.pop("lineage", frozenset({1})), {p.pid: p for p in (INIT, *processes)}, **more)


def writing(*processes: Process, log: str = LOG, **more) -> Snapshot:
    return snapshot(*processes, writing={process.id: log for process in processes}, **more)


def inside(*processes: Process, leaf: str = LEAF, **more) -> Snapshot:
    return snapshot(*processes, inside={process.id: leaf for process in processes}, **more)


MEMBER, STRANGER = process(30), process(40)


@pytest.mark.parametrize(
    ("taken", "evidence"),
    [
        (snapshot(process(22)), "leader of attempt 3 by its record"),
        (snapshot(MEMBER), "member of attempt 3 by its record"),
        (snapshot(process(40, marker=Marker(RUN, 3, "id3"))), "marker of attempt 3"),
        (writing(STRANGER), "writes the log of attempt 3"),
        (inside(STRANGER), "in the cgroup of attempt 3"),
        (writing(MEMBER), "member of attempt 3 by its record"),
        (writing(process(40, marker=Marker(RUN, 3, "id3"))), "marker of attempt 3"),
        (writing(STRANGER, inside={STRANGER.id: LEAF}), "writes the log of attempt 3"),
    ],
)
def test_a_member_of_a_dead_attempt_is_ended_and_the_best_proof_is_told(taken: Snapshot, evidence: str) -> None:
    (finding,) = judge(taken, REQUEST)
    assert (finding.evidence[0], finding.ownership, finding.blocking) == (evidence, Ownership.STALE, True)
    assert isinstance(finding.action, EndProcesses)


ELSEWHERE = replace(RECORD, host=HostId("another boot", 1))
SAME_NAMESPACE_NUMBER = replace(RECORD, host=HostId("boot", 1))
OF_B = process(40, marker=Marker("b", 1, "idb"))


@pytest.mark.parametrize(
    "taken",
    [
        snapshot(process(30, id=ProcessId(30, 301))),
        snapshot(replace(MEMBER, state="Z")),
        snapshot(MEMBER, lineage=frozenset({1, 30})),
        snapshot(MEMBER, records=(ELSEWHERE,)),
        snapshot(MEMBER, records=(replace(RECORD, run="b"),)),
        snapshot(replace(MEMBER, marker=Marker("c", 1, "idc"))),
        snapshot(process(52), records=(replace(RECORD, members=(OTHER.leader,)), OTHER)),
        *(
            case
            for claim in (writing, inside)
            for case in (
                claim(STRANGER, lineage=frozenset({1, 40})),
                claim(replace(STRANGER, state="Z")),
                claim(STRANGER, records=(ELSEWHERE,)),
                claim(STRANGER, records=(SAME_NAMESPACE_NUMBER,)),
                claim(STRANGER, records=(replace(RECORD, run="b"),)),
                claim(STRANGER, records=(replace(RECORD, log=None, cgroup=None),)),
                claim(process(19)),
                claim(OF_B),
                claim(process(50), records=(RECORD, OTHER)),
                claim(process(53), records=(RECORD, OTHER)),
            )
        ),
        writing(STRANGER, log="/state/b/attempts/0003/server.log"),
        inside(STRANGER, leaf=f"{LEAF}/supervise-b-0123456789ab"),
    ],
)
def test_nobody_else_is_taken_for_one(taken: Snapshot) -> None:
    assert [finding for finding in judge(taken, REQUEST) if finding.blocking or finding.action] == []


@pytest.mark.parametrize("claim", [writing, inside])
@pytest.mark.parametrize(
    ("alive", "ownership", "why"),
    [
        (20, Ownership.LIVE, None),
        (21, Ownership.OURS, "its keeper is ending it"),
        (23, Ownership.OURS, "its guard is ending it"),
    ],
)
def test_a_group_that_somebody_still_contains_is_not_touched(claim, alive, ownership, why) -> None:
    taken = claim(STRANGER)
    taken.processes[alive] = process(alive)
    (finding,) = judge(taken, REQUEST)
    assert finding.ownership is ownership
    assert finding.action == (Await(why, (STRANGER.id,)) if why else None)


def test_one_that_two_attempts_claim_is_live_if_either_is() -> None:
    newer = replace(RECORD, attempt=4, marker_id="id4", supervisor=ProcessId(25, 250), members=(), log="/new")
    taken = snapshot(MEMBER, process(25), records=(RECORD, newer), writing={MEMBER.id: "/new"})
    (finding,) = judge(taken, REQUEST)
    assert (finding.ownership, finding.action) == (Ownership.LIVE, None)


def test_another_user_s_process_in_the_cgroup_refuses_the_launch() -> None:
    (finding,) = judge(inside(process(40, uid=0)), REQUEST)
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.FOREIGN, None, True)
    assert finding.remedy == "sudo kill -KILL 40"


@pytest.mark.parametrize("alive", [20, 21, 23])
def test_an_empty_cgroup_goes_once_nobody_contains_its_attempt(alive: int) -> None:
    empty = snapshot(empty_cgroups=frozenset({LEAF}))
    (finding,) = judge(empty, REQUEST)
    assert (finding.kind, finding.action, finding.blocking) == ("cgroup", RemoveCgroup(LEAF), False)
    assert judge(replace(empty, processes={1: INIT, alive: process(alive)}), REQUEST) == ()


@pytest.mark.parametrize("record", [ELSEWHERE, replace(RECORD, run="b"), replace(RECORD, cgroup=None)])
def test_an_empty_cgroup_of_others_stays(record: Record) -> None:
    assert judge(snapshot(records=(record,), empty_cgroups=frozenset({LEAF})), REQUEST) == ()


OLD = {
    "id": "id1",
    "host": HOST._asdict(),
    "supervisor": {"pid": 20, "ticks": 200},
    "keeper": None,
    "leader": None,
}


@pytest.mark.parametrize(
    ("keys", "members", "guard", "cgroup"),
    [
        ({}, (), None, None),
        ({"members": [], "guard": None, "cgroup": None}, (), None, None),
        (
            {"members": [[30, 300], [31, 310]], "guard": {"pid": 23, "ticks": 230}, "cgroup": LEAF},
            (ProcessId(30, 300), ProcessId(31, 310)),
            ProcessId(23, 230),
            LEAF,
        ),
    ],
    ids=["of an older supervise", "empty", "full"],
)
def test_a_record_is_read_back_as_it_was_written(tmp_path, keys, members, guard, cgroup) -> None:
    run = Store(str(tmp_path)).run(RUN)
    run.create()
    attempt = run.open_attempt()
    attempt.write("attempt", OLD | keys)
    (record,) = Store(str(tmp_path)).records()
    assert (record.members, record.guard, record.cgroup, record.log) == (members, guard, cgroup, attempt.log)
    assert (record.run, record.attempt, record.supervisor) == (RUN, 1, ProcessId(20, 200))


@pytest.mark.parametrize("damaged", [{"members": [[1]]}, {"members": "x"}, {"guard": {"pid": 1}}, {"cgroup": 5}])
def test_of_a_damaged_record_the_log_is_left(tmp_path, damaged) -> None:
    run = Store(str(tmp_path)).run(RUN)
    run.create()
    attempt = run.open_attempt()
    attempt.write("attempt", OLD | damaged)
    (record,) = Store(str(tmp_path)).records()
    assert (record.marker_id, record.log, record.members, record.leader) == (LOST_ID, attempt.log, (), None)


def test_run_json_tells_of_its_attempt_who_ran_in_it(tmp_path) -> None:
    run = Store(str(tmp_path)).run(RUN)
    run.create()
    run.open_attempt()
    told = {"host": HOST._asdict(), "leader": {"pid": 30, "ticks": 300}}
    run.write_state({"attempt": 1, **told})
    assert [record.leader for record in Store(str(tmp_path)).records()] == [ProcessId(30, 300)]
    run.write_state({"attempt": 2, **told})
    assert [record.leader for record in Store(str(tmp_path)).records()] == [None]


def test_whoever_bears_the_name_of_a_lost_record_refuses_the_launch_and_is_not_touched() -> None:
    """A run of the same name in another state directory has the same marker, but for its id."""
    bearer = replace(process(40), marker=Marker(RUN, RECORD.attempt, "unknown"), environ_read=True)
    lost = replace(RECORD, marker_id=LOST_ID, members=(), leader=None)
    (finding,) = judge(snapshot(bearer, records=(lost,)), REQUEST)
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.UNKNOWN, None, True)
    assert judge(snapshot(bearer, records=(RECORD,)), REQUEST) == ()


# A live run that was started by a member of the dead attempt: what it is made of, and what it has started.
INSIDE = (
    process(50, ppid=30, marker=Marker(RUN, 3, "id3"), comm="supervise"),
    process(53, ppid=50),
    process(51, ppid=53),
    process(52, ppid=51, marker=Marker("b", 1, "idb")),
    process(60, ppid=52),
)


def test_a_run_at_work_below_a_dead_attempt_is_left_alone():
    member = process(30, marker=Marker(RUN, 3, "id3"))
    noted = replace(RECORD, members=(*RECORD.members, *(each.id for each in INSIDE)))
    there = snapshot(member, *INSIDE, records=(noted, OTHER))
    assert [finding.action for finding in judge(there, REQUEST)] == [EndProcesses((member.id,))]
    assert policy.spared([member.id], there, REQUEST) == {50, 51, 52, 53, 60}


def test_of_a_dead_run_below_it_what_bears_our_marker_is_ours():
    """Twin: nobody contains it any more."""
    member = process(30, marker=Marker(RUN, 3, "id3"))
    there = snapshot(member, process(60, ppid=30, marker=Marker(RUN, 3, "id3")), records=(RECORD, OTHER))
    assert len(judge(there, REQUEST)) == 2
    assert policy.spared([member.id], there, REQUEST) == frozenset()


@pytest.mark.parametrize("proof", [{"marker": Marker(RUN, 3, "id3")}, {}], ids=["marker", "record"])
def test_what_is_protected_outlives_even_its_own_attempt(proof):
    vllm = load("vllm")
    cache = process(30, argv=("/venv/bin/vllm", "preload", "m"), comm="vllm", **proof)
    (finding,) = judge(snapshot(cache), replace(REQUEST, profiles=(vllm,)))
    assert (finding.ownership, finding.action, finding.blocking) == (Ownership.PROTECTED, None, False)
    member = process(40, marker=Marker(RUN, 3, "id3"))
    below = snapshot(member, replace(cache, ppid=40), process(41, ppid=30))
    assert policy.spared([member.id], below, replace(REQUEST, profiles=(vllm,))) == {30, 41}
