"""Which names in /dev/shm, and which System V segments, go, are told, or are left alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, Litter, Segment, SysvSegment
from supervise.model.process import HostId, Process, ProcessId
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, Ownership, Remove, RemoveSysv
from supervise.model.snapshot import Record, Snapshot
from supervise.profiles.leftovers import available_rules, load_rules
from supervise.slate import segments, sysv
from supervise.slate.request import Host, SlateRequest
from supervise.slate.segments import VeiledSegment

HOST = HostId("boot", 4026531836)
UID = 1000
HOUR = 3600.0
RULES = LeftoverRules(
    segments=(re.compile(r"eng_(?P<pid>\d+)_\w+"), re.compile(r"eng_offload_.+")),
    anonymous=(re.compile(r"psm_[0-9a-f]+"), re.compile(r"sem\.mp-\w+")),
    keep=("/dev/shm/eng_offload_cache*", "/dev/shm/psm_${KEPT}*"),
)


def segment(name: str, ino: int = 7, **more) -> Segment:
    return replace(Segment(name, FileId(1, ino), 4096, UID, HOUR), **more)


def process(pid: int, state: str = "S") -> Process:
    return Process(ProcessId(pid, pid * 10), 1, pid, pid, state, "x", UID, ("x",), namespace=HOST.pid_namespace)


def record(**more) -> Record:
    plain = Record("run", 6, "id6", HOST, ProcessId(90, 900), ProcessId(91, 910), ProcessId(92, 920))
    return replace(plain, **more)


def snapshot(*found: Segment, living: dict[int, float] | None = None, **more) -> Snapshot:
    """With processes of these pids and ages, in seconds."""
    living = living or {}
    processes = more.pop("processes", {pid: process(pid) for pid in living})
    litter = Litter(segments=found, sysv=more.pop("sysv", ()))
    return Snapshot(HOST, UID, frozenset(), processes, litter=litter, ages_s=living, **more)


def request(evict: Evict = Evict.STALE, rules: LeftoverRules = RULES, **more) -> SlateRequest:
    return SlateRequest("run", None, (), evict=evict, rules=rules, **more)


def judged(*found: Segment, evict: Evict = Evict.STALE, **more) -> list[Finding]:
    return list(segments.judge(snapshot(*found, **more), request(evict)))


def one(found: Sequence[Finding]) -> Finding:
    assert len(found) == 1, found
    return found[0]


# --- names with an owner ----------------------------------------------------------------------------------------------


def test_a_segment_whose_owner_is_gone_goes():
    finding = one(judged(segment("eng_55_x")))
    assert finding.action == Remove("/dev/shm/eng_55_x", FileId(1, 7), FileType.REGULAR, UID)
    assert finding.evidence == ("its owner, pid 55, is gone", "nobody uses it", "4 KiB", "60 min old")
    assert not finding.blocking


@pytest.mark.parametrize(
    ("age_s", "goes"),
    [(HOUR, False), (HOUR + 99, False), (HOUR - 1, False), (HOUR - 3, True), (1.0, True)],
    ids=["as old", "older", "as old but for the clocks", "a little younger", "young"],
)
def test_a_living_owner_keeps_it_unless_the_pid_was_reused(age_s, goes):
    assert bool(judged(segment("eng_55_x"), living={55: age_s})) is goes


@pytest.mark.parametrize("name", ["eng_55_x", "eng_offload_a", "psm_1a"])
@pytest.mark.parametrize("ours", [False, True], ids=["a rule's", "recorded"])
def test_one_with_a_second_name_is_told_and_left(name, ours):
    records = (record(segments=(FileId(1, 7),)),) if ours else ()
    assert one(judged(segment(name), evict=Evict.ENGINES, records=records)).action
    finding = one(judged(segment(name, links=2), evict=Evict.ENGINES, records=records))
    assert (finding.action, finding.blocking, finding.ownership) == (None, False, Ownership.UNKNOWN)
    assert "has 2 names, left alone" in finding.evidence
    assert not finding.remedy


def test_several_with_more_names_are_one_line():
    found = [segment(f"psm_{number}", number, links=links) for number, links in ((1, 2), (2, 3), (3, 2))]
    assert one(judged(*found)).evidence[0] == "has 2 or 3 names, left alone"


def test_one_with_a_second_name_that_somebody_uses_is_not_mentioned():
    assert judged(segment("eng_55_x", links=2, users=(7,))) == []


def test_an_owner_of_unknown_age_keeps_it():
    assert judged(segment("eng_55_x"), processes={55: process(55)}) == []


def test_a_zombie_owns_nothing_any_more():
    assert one(judged(segment("eng_55_x"), living={55: HOUR}, processes={55: process(55, "Z")})).action


def test_a_segment_named_after_an_engine_goes_and_stands_in_the_way_until_it_does():
    finding = one(judged(segment("eng_offload_abc")))
    assert finding.action
    assert finding.blocking


@pytest.mark.parametrize("name", ["eng_55_x", "eng_offload_abc"])
def test_at_own_they_are_only_told(name):
    finding = one(judged(segment(name), evict=Evict.OWN))
    assert (finding.action, finding.blocking, finding.remedy) == (None, False, "--evict stale removes it")


# --- names without one ------------------------------------------------------------------------------------------------


def test_hundreds_of_anonymous_segments_are_one_remark():
    many = [segment(f"psm_{i:04x}", i, size=2**20, age_s=100.0 + i) for i in range(852)]
    finding = one(judged(*many))
    assert (finding.action, finding.blocking, finding.ownership) == (None, False, Ownership.UNKNOWN)
    assert finding.subject == "852 segments in /dev/shm, psm_0000 …"
    assert finding.evidence == ("unused, names no owner", "852 MiB", "oldest 16 min")
    assert finding.remedy == "--evict engines removes them"


def test_a_single_one_is_named():
    finding = one(judged(segment("sem.mp-abc")))
    assert finding.subject == "/dev/shm/sem.mp-abc"
    assert finding.evidence == ("unused, names no owner", "4 KiB", "60 min old")
    assert finding.remedy == "--evict engines removes it"


@pytest.mark.parametrize("evict", [Evict.ENGINES, Evict.ALL])
def test_with_consent_each_of_them_goes(evict):
    found = judged(segment("psm_a", 1), segment("psm_b", 2), evict=evict)
    assert [finding.action.path for finding in found] == ["/dev/shm/psm_a", "/dev/shm/psm_b"]
    assert not any(finding.blocking for finding in found)


# --- what never goes, whatever the policy -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["eng_55_x", "eng_offload_abc", "psm_a", "sem.mp-abc"])
class TestNeverRemoved:
    def test_in_use(self, name):
        assert judged(segment(name, users=(9,)), evict=Evict.ALL) == []

    def test_in_use_although_not_everybody_could_be_read(self, name):
        assert judged(segment(name, users=(9,), users_known=False), evict=Evict.ALL) == []

    def test_users_that_cannot_be_read(self, name):
        finding = one(judged(segment(name, users_known=False), evict=Evict.ALL))
        assert (finding.action, finding.blocking, finding.ownership) == (None, False, Ownership.UNKNOWN)
        assert "users cannot be read" in finding.evidence

    def test_another_user_s(self, name):
        finding = one(judged(segment(name, 1, uid=0), segment("psm_b", 2, uid=33), evict=Evict.ALL))
        assert (finding.action, finding.blocking, finding.ownership) == (None, False, Ownership.FOREIGN)
        assert finding.evidence[0] == "another user's, uid 0, 33"

    def test_younger_than_a_few_seconds(self, name):
        assert judged(segment(name, age_s=9.0 if name.startswith("psm") else 0.5), evict=Evict.ALL) == []
        assert judged(segment(name, age_s=-50.0), evict=Evict.ALL) == []

    def test_behind_a_veil(self, name):
        hidden = VeiledSegment(name, FileId(1, 7), 4096, UID, HOUR)
        finding = one(judged(hidden, evict=Evict.ALL))
        assert (finding.action, finding.blocking, finding.ownership) == (None, False, Ownership.UNKNOWN)
        assert "in the host's /dev/shm, users invisible from this container" in finding.evidence

    def test_written_down_by_an_attempt_that_is_at_work(self, name):
        busy = record(segments=(FileId(1, 7),))
        assert judged(segment(name), evict=Evict.ALL, records=(busy,), processes={90: process(90)}) == []


@pytest.mark.parametrize("name", ["model", "xpsm_a", "psm_a.bak", "psm_", "eng_x_55", "sem.mp-abc.old", "eng_55_x.tmp"])
def test_a_name_that_no_rule_knows_is_not_told(name):
    assert judged(segment(name), evict=Evict.ALL) == []


def test_different_reasons_are_different_remarks():
    found = judged(
        segment("psm_1", 1), segment("psm_2", 2), segment("psm_3", 3, uid=0), segment("psm_4", 4, users_known=False)
    )
    assert len(found) == len({finding.key for finding in found}) == 3


# --- what was written down --------------------------------------------------------------------------------------------


def test_what_an_ended_attempt_wrote_down_goes_at_any_age_by_any_policy():
    ours = record(segments=(FileId(1, 7),))
    young = segment("psm_a", age_s=0.0)
    finding = one(judged(young, evict=Evict.OWN, records=(ours,)))
    assert finding.action == Remove("/dev/shm/psm_a", FileId(1, 7), FileType.REGULAR, UID)
    assert finding.evidence[0] == "recorded by an earlier attempt"
    for other in (record(segments=(FileId(1, 8),)), replace(ours, run="other"), replace(ours, host=HostId("b", 1))):
        assert judged(young, evict=Evict.OWN, records=(other,)) == []


# --- survey -----------------------------------------------------------------------------------------------------------


def surveyed(*names: str, **more) -> dict[str, Segment]:
    host = Host(host_id=lambda: HOST, segments=lambda: tuple(segment(n, i) for i, n in enumerate(names)))
    return {found.name: found for found in segments.survey(request(**more), host)}


@pytest.fixture(autouse=True)
def _everybody_is_visible(monkeypatch):
    monkeypatch.setattr(segments.shm, "users_hidden", lambda: False)


def test_candidates_are_what_a_rule_knows_and_what_was_written_down():
    ours = record(segments=(FileId(1, 3), FileId(1, 4)))
    names = ("psm_a", "eng_5_x", "model", "torch_5", "my-weights")
    assert surveyed(*names, records=(ours,)).keys() == {"psm_a", "eng_5_x", "torch_5"}
    assert surveyed(*names, rules=LeftoverRules(), records=(ours,)).keys() == {"torch_5"}
    assert surveyed(*names, rules=LeftoverRules(), records=(replace(ours, run="other"),)) == {}


def test_what_is_to_be_kept_is_no_candidate_even_if_it_was_written_down():
    names = ("eng_offload_cache_1", "eng_offload_1", "psm_abc", "psm_def")
    ours = record(segments=tuple(FileId(1, i) for i in range(4)))
    assert surveyed(*names).keys() == {"eng_offload_1", "psm_abc", "psm_def"}
    assert surveyed(*names, records=(ours,), env={"KEPT": "ab"}).keys() == {"eng_offload_1", "psm_def"}


def test_where_users_are_hidden_only_what_was_written_down_has_no_veil(monkeypatch):
    monkeypatch.setattr(segments.shm, "users_hidden", lambda: True)
    found = surveyed("psm_a", "psm_b", records=(record(segments=(FileId(1, 1),)),))
    assert {name: isinstance(s, VeiledSegment) for name, s in found.items()} == {"psm_a": True, "psm_b": False}
    assert replace(found["psm_a"], users=(5,)).users == (5,)


NAMED = [
    ("sgl_shm_mm_4711_1a2b3c4d", 4711),
    ("sgl_shm_mq_4711_1a2b3c4d", 4711),
    ("sgl_shm_nodecheck_4711_1a2b3c4d", 4711),
    ("multi_tokenizer_args_4711", 4711),
    ("sglang_loads_x_0f.shm", None),
    ("sglang_host_pool_0f.mmap", None),
    ("vllm_mm_abcdefghij-KLMNOPQR_2", None),
    ("VLLM_OBJECT_STORAGE_SHM_BUFFER_0f", None),
    ("vllm_offload_0f-0.mmap", None),
    ("vllm_offload_0f-0.mmap.3", None),
    ("vllm_ec_0f.mmap", None),
    ("vllm_engram_1", None),
]
ANONYMOUS = [
    "psm_1a2b3c4d",
    "sem.mp-ab_cd3f",
    "sem.loky-1-abc",
    "sem.Ab3dEf",
    "nccl-Ab3dEf",
    "cuda.shm.0.1f.1",
    "torch_1_2",
]
NOBODY_S = [
    "vllm_weight_cache_0",
    "sglang_weight_cache_0",
    "psm_notes.txt",
    "nccl-topology.xml",
    "pulse-shm-1",
    "model",
]


@pytest.mark.parametrize(("name", "pid"), NAMED)
def test_the_names_of_engines_are_known_with_their_owners(name, pid):
    rules = load_rules(available_rules())
    (match,) = [match for pattern in rules.segments if (match := pattern.fullmatch(name))]
    assert match.groupdict().get("pid") == (pid and str(pid))


def test_the_names_of_their_libraries_are_known_and_others_are_not():
    rules = load_rules(available_rules())
    assert surveyed(*ANONYMOUS, *NOBODY_S, rules=rules).keys() == set(ANONYMOUS)


# --- System V ---------------------------------------------------------------------------------------------------------


def v(id_: int = 5, **more) -> SysvSegment:
    return replace(SysvSegment(id_, 0, 2**20, UID, 55, 0, HOUR), **more)


def judged_v(*found: SysvSegment, evict: Evict = Evict.STALE, rules: LeftoverRules = RULES, **more) -> list[Finding]:
    return list(sysv.judge(snapshot(sysv=found, **more), request(evict, rules)))


@pytest.mark.parametrize(
    "ours",
    [record(members=(ProcessId(55, 1),)), record(leader=ProcessId(55, 1)), record(keeper=ProcessId(55, 1))],
    ids=["member", "leader", "keeper"],
)
def test_a_system_v_segment_of_an_ended_attempt_goes(ours):
    finding = one(judged_v(v(), evict=Evict.OWN, rules=LeftoverRules(), records=(ours,)))
    assert finding.action == RemoveSysv(5, 0, 55)
    assert not finding.blocking


@pytest.mark.parametrize(
    "more",
    [
        {"run": "other"},
        {"host": HostId("boot before", 4026531836)},
        {"host": HostId("boot", 4026539999)},
        {"members": (ProcessId(56, 1),)},
        {"supervisor": ProcessId(8, 80)},
    ],
    ids=["another run", "another boot", "another namespace", "another pid", "its supervise lives"],
)
def test_a_system_v_segment_that_is_not_proven_ours_stays(more):
    other = replace(record(members=(ProcessId(55, 1),)), **more)
    assert judged_v(v(), rules=LeftoverRules(), records=(other,), processes={8: process(8)}) == []


@pytest.mark.parametrize(
    ("found", "living"),
    [(v(attached=1), {}), (v(), {55: HOUR})],
    ids=["attached", "its creator lives"],
)
def test_a_system_v_segment_in_use_stays(found, living):
    ours = record(members=(ProcessId(55, 550),))
    assert judged_v(found, living=living, evict=Evict.ALL, records=(ours,)) == []


def test_another_user_s_system_v_segment_is_not_ours_although_a_member_had_that_pid():
    ours = record(members=(ProcessId(55, 1),))
    assert judged_v(v(uid=0), rules=LeftoverRules(), records=(ours,)) == []
    assert one(judged_v(v(uid=0), evict=Evict.ALL, records=(ours,))).action is None


def test_system_v_segments_of_nobody_we_know_are_one_remark():
    found = one(judged_v(v(1), v(2, age_s=2 * HOUR), v(3, age_s=1.0)))
    assert found.subject == "2 System V segments, 1 …"
    assert found.evidence == ("their creators are gone, nobody attached", "2 MiB", "oldest 2 h")
    assert (found.action, found.blocking, found.remedy) == (None, False, "--evict engines removes them")
    assert judged_v(v(1), rules=LeftoverRules()) == []


def test_with_consent_those_go_but_for_other_users():
    found = judged_v(v(1), v(2, creator=56), v(3, uid=0), evict=Evict.ENGINES)
    assert [finding.action for finding in found] == [RemoveSysv(1, 0, 55), RemoveSysv(2, 0, 56), None]
    assert found[2].subject == "System V segment 3 of uid 0"
    assert found[2].ownership is Ownership.FOREIGN
    assert not found[2].blocking
