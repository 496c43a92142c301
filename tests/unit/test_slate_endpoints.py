"""Socket files in the temporary directory as a table: which are removed, and which are not ours to touch."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, FoundFile, Litter, unfinished
from supervise.model.process import HostId, Process, ProcessId
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.slate import endpoints
from supervise.slate.request import SlateRequest

UUID = "0a1b2c3d-0000-4000-8000-0123456789ab"
RULES = LeftoverRules(sockets=(re.compile("[0-9a-f-]{36}"), re.compile(r"trace_(?P<pid>\d+)\.sock")))
REQUEST = SlateRequest("r", None, (), rules=RULES)
STALE = FoundFile(f"/tmp/{UUID}", FileId(1, 7), FileType.SOCKET, 0, 1000, 3600.0)
OF_A_PID = replace(STALE, path="/tmp/trace_77.sock")


def judged(*found: FoundFile, request: SlateRequest = REQUEST, uid: int = 1000, state: str | None = None):
    processes = {77: Process(ProcessId(77, 1), 1, 77, 77, state, "x", uid, ())} if state else {}
    snapshot = Snapshot(HostId("b", 1), uid, frozenset(), processes, litter=Litter(sockets=found))
    return list(endpoints.judge(snapshot, request))


@pytest.mark.parametrize("evict", [Evict.STALE, Evict.ENGINES, Evict.ALL])
def test_a_stale_one_is_removed_and_refuses_nothing(evict: Evict) -> None:
    (finding,) = judged(STALE, request=replace(REQUEST, evict=evict))
    assert finding.action == Remove(STALE.path, STALE.file, FileType.SOCKET, 1000)
    assert not finding.blocking
    assert finding.evidence == ("a socket file that nobody has bound", "60 min old")


def test_hundreds_are_a_finding_each() -> None:
    found = [replace(STALE, path=f"/tmp/{number:036x}") for number in range(300)]
    assert len([finding for finding in judged(*found) if finding.action]) == 300


@pytest.mark.parametrize("state", ["S", "D", "T"])
def test_one_whose_name_tells_of_a_living_process_is_left_alone(state: str) -> None:
    assert judged(OF_A_PID, state=state) == []


@pytest.mark.parametrize("state", [None, "Z"])
def test_one_whose_process_is_gone_is_removed(state: str | None) -> None:
    assert judged(OF_A_PID, state=state)[0].action


def test_a_young_one_is_left_alone_without_a_word() -> None:
    assert judged(replace(STALE, age_s=1.0)) == []


@pytest.mark.parametrize(
    ("change", "request_", "uid", "ownership", "said", "remedy"),
    [
        ({"uid": 1001}, REQUEST, 1000, Ownership.FOREIGN, "uid 1001", ""),
        ({"uid": 1001}, REQUEST, 0, Ownership.FOREIGN, "uid 1001", "--evict-user 1001"),
        ({"uid": 1001}, replace(REQUEST, evict_uids=frozenset({1001})), 1000, Ownership.FOREIGN, "uid 1001", ""),
        ({"links": 2}, REQUEST, 1000, Ownership.UNKNOWN, "has 2 names, left alone", ""),
        ({"users_known": False}, REQUEST, 1000, Ownership.UNKNOWN, "cannot be told", ""),
        ({}, replace(REQUEST, evict=Evict.OWN), 1000, Ownership.STALE, "nobody", "--evict stale"),
    ],
)
def test_what_is_left_is_one_remark(change, request_, uid, ownership, said, remedy) -> None:
    found = [replace(STALE, path=f"/tmp/{number:036x}", **change) for number in range(3)]
    (finding,) = judged(*found, request=request_, uid=uid)
    assert (finding.ownership, finding.action, finding.blocking) == (ownership, None, False)
    assert finding.subject == "/tmp"
    assert finding.evidence[0] == "3 socket files"
    assert said in finding.evidence[1]
    assert finding.remedy == remedy
    (single,) = judged(found[0], request=request_, uid=uid)
    assert single.subject == found[0].path


def test_root_may_be_told_to_treat_a_user_as_itself() -> None:
    request = replace(REQUEST, evict_uids=frozenset({1000}))
    (finding,) = judged(STALE, request=request, uid=0)
    assert finding.action == Remove(STALE.path, STALE.file, FileType.SOCKET, 1000)


def test_an_unfinished_search_is_told_beside_what_it_found() -> None:
    removal, remark = judged(STALE, unfinished("/tmp"))
    assert removal.action
    assert (remark.action, remark.blocking, remark.ownership) == (None, False, Ownership.UNKNOWN)
    assert remark.evidence[0] == "the search in /tmp could not be finished"
