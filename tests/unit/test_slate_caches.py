"""Caches that were asked to be moved aside: when they are, and what prevents it."""

from dataclasses import replace

import pytest

from supervise.model.litter import CacheReading, FileId, FileType, FoundFile, Litter
from supervise.model.process import HostId, Process, ProcessId
from supervise.model.rules import LeftoverRules
from supervise.model.slate import MoveAside, Ownership
from supervise.model.snapshot import Snapshot
from supervise.slate.caches import judge
from supervise.slate.request import SlateRequest

PATH = "/home/ada/.cache/vllm/torch_compile_cache"
ASIDE = "torch_compile_cache.aside-20260801-101112"
RULES = LeftoverRules(caches={"compile": ("~/.cache/vllm/torch_compile_cache",)})
REQUEST = SlateRequest("x", None, (), rules=RULES, env={"HOME": "/home/ada"}, purge=("compile",))
FOUND = FoundFile(PATH, FileId(1, 2), FileType.DIRECTORY, 4096, 1000, 10800.0, links=7)
READING = CacheReading(FOUND, "compile", ASIDE)
ENGINE = Process(ProcessId(7, 70), 1, 7, 7, "S", "VLLM::EngineCor", 1000, ("VLLM::EngineCore",))


def judged(*readings: CacheReading, request: SlateRequest = REQUEST):
    taken = Snapshot(HostId("boot", 1), 1000, frozenset(), {7: ENGINE}, litter=Litter(caches=readings))
    return list(judge(taken, request))


def test_a_cache_that_nobody_is_in_is_moved():
    (finding,) = judged(READING)
    assert finding.action == MoveAside(PATH, FileId(1, 2), 1000, ASIDE)
    assert (finding.ownership, finding.blocking) == (Ownership.OURS, True)
    assert finding.evidence == ("compile cache", "last changed 3 h ago", f"aside as {ASIDE}")


@pytest.mark.parametrize(
    ("reading", "ownership", "why"),
    [
        (replace(READING, found=replace(FOUND, users=(7,))), Ownership.LIVE, "in use by pid 7 VLLM::EngineCore"),
        (replace(READING, found=replace(FOUND, users=(8,))), Ownership.LIVE, "in use by pid 8"),
        (replace(READING, found=replace(FOUND, users_known=False)), Ownership.UNKNOWN, "its users cannot be read"),
        (replace(READING, found=replace(FOUND, uid=0)), Ownership.FOREIGN, "uid 0"),
        (replace(READING, problem="a link"), Ownership.UNKNOWN, "a link"),
    ],
)
def test_whatever_prevents_it_stands_in_the_way(reading, ownership, why):
    (finding,) = judged(reading)
    assert (finding.action, finding.blocking, finding.ownership) == (None, True, ownership)
    assert finding.evidence[-1] == why
    assert finding.remedy


def test_what_people_can_do_about_a_problem_is_told():
    (finding,) = judged(replace(READING, problem="no cache by its name", remedy="mv -- a b"))
    assert (finding.action, finding.blocking, finding.remedy) == (None, True, "mv -- a b")


def test_nothing_is_judged_without_being_asked():
    assert judged(READING, request=replace(REQUEST, purge=())) == []


def test_a_program_without_known_caches_is_told():
    (finding,) = judged(request=replace(REQUEST, rules=LeftoverRules()))
    assert (finding.action, finding.blocking, finding.ownership) == (None, True, Ownership.UNKNOWN)
    assert finding.evidence == ("nothing is known about caches of this program",)


def test_no_cache_is_no_finding():
    assert judged() == []
