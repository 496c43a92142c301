"""Sessions of clusters: told with the command, never touched."""

from dataclasses import replace

from supervise.model.litter import FileId, FileType, FoundFile, Litter, SessionReading
from supervise.model.process import HostId, Marker, Process, ProcessId
from supervise.model.slate import Ownership
from supervise.model.snapshot import Snapshot
from supervise.slate.request import SlateRequest
from supervise.slate.sessions import judge

REQUEST = SlateRequest("x", None, ())
RAYLET = Process(ProcessId(7, 70), 1, 7, 7, "S", "raylet", 1000, ("raylet", "--x"))
WORKER = Process(ProcessId(6, 60), 7, 7, 7, "S", "ray::IDLE", 1000, ("ray::IDLE",))


def session(number: int = 1, **more) -> FoundFile:
    made = FoundFile(f"/tmp/ray/session_{number}", FileId(1, number), FileType.DIRECTORY, 4096, 1000, number * 60.0)
    return replace(made, **more)


def judged(*found: FoundFile, processes=(RAYLET, WORKER)):
    litter = Litter(sessions=tuple(map(SessionReading, found)))
    findings = list(
        judge(Snapshot(HostId("b", 1), 1000, frozenset(), {p.pid: p for p in processes}, litter=litter), REQUEST)
    )
    assert all(finding.action is None and not finding.blocking for finding in findings)
    return findings


def test_all_that_nobody_is_in_are_one_remark():
    (finding,) = judged(session(1), session(2), session(3))
    assert (finding.subject, finding.ownership) == ("/tmp/ray", Ownership.STALE)
    assert finding.evidence == ("3 sessions", "the newest 60 s old", "no process uses them")
    assert finding.remedy == "rm -rf -- /tmp/ray/session_3 /tmp/ray/session_2 /tmp/ray/session_1"


def test_one_is_named():
    (finding,) = judged(session(1))
    assert finding.subject == "/tmp/ray/session_1"
    assert finding.evidence[-1] == "no process uses it"


def test_the_command_is_quoted_and_short():
    (finding,) = judged(session(1, path="/tmp/my ray/session_'x"))
    assert finding.remedy == """rm -rf -- '/tmp/my ray/session_'"'"'x'"""
    (finding,) = judged(*map(session, range(1, 101)))
    assert finding.evidence[0] == "100 sessions"
    assert finding.remedy.count("session_") == 8
    assert finding.remedy.startswith("rm -rf -- /tmp/ray/session_100 ")


def test_a_live_raylet_is_named():
    (finding,) = judged(session(users=(6, 7)))
    assert (finding.ownership, finding.evidence) == (Ownership.LIVE, ("raylet pid 7",))
    assert finding.remedy.startswith("ray stop")


def test_live_and_idle_ones_are_told_apart():
    live, idle = sorted(judged(session(1, users=(7,)), session(2)), key=lambda finding: finding.ownership)
    assert (live.ownership, live.subject) == (Ownership.LIVE, "/tmp/ray/session_1")
    assert idle.remedy == "rm -rf -- /tmp/ray/session_2"


def test_without_its_raylet_whoever_is_in_it_is_named():
    (finding,) = judged(session(users=(6,)))
    assert finding.evidence == ("in use by pid 6",)


def test_a_user_that_has_ended_since_still_keeps_it():
    (finding,) = judged(session(users=(99,)))
    assert (finding.ownership, finding.evidence) == (Ownership.LIVE, ("in use by pid 99",))


def test_a_cluster_of_this_run_is_no_remark():
    ours = replace(RAYLET, marker=Marker("x", 1, "id"))
    assert judged(session(users=(7,)), processes=(ours,)) == []


def test_another_user_s_is_no_matter_of_ours():
    assert judged(session(uid=1001)) == []
    (finding,) = judged(session(uid=1001, users=(7,)))
    assert (finding.ownership, finding.remedy) == (Ownership.FOREIGN, "")


def test_no_command_where_its_users_cannot_be_read():
    (finding,) = judged(session(users_known=False))
    assert (finding.ownership, finding.remedy) == (Ownership.UNKNOWN, "")


def test_no_session_is_no_remark():
    assert judged() == []
