"""Lock files as a table: whose holder is gone, and what is written in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervise.host.lockfiles import _COMPILER, Compiler
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, FoundFile, Litter, LockKind, LockReading, unfinished
from supervise.model.process import HostId
from supervise.model.slate import Ownership, Remove
from supervise.model.snapshot import Snapshot
from supervise.slate import locks
from supervise.slate.locks import Owner
from supervise.slate.request import SlateRequest

REQUEST = SlateRequest("r", None, ())
FILE = FoundFile("/c/torch_extensions/py311/op/lock", FileId(1, 7), FileType.REGULAR, 0, 1000, 3600.0)
BATON = LockReading(FILE, LockKind.BATON, None, owner_alive=False)
SOFT = LockReading(replace(FILE, path="/c/.locks/m/a.lock"), LockKind.SOFT, 4711, owner_alive=False)


def judged(*found: LockReading, request: SlateRequest = REQUEST, uid: int = 1000):
    return list(locks.judge(Snapshot(HostId("b", 1), uid, frozenset(), {}, litter=Litter(locks=found)), request))


def with_file(lock: LockReading, **change) -> LockReading:
    return replace(lock, found=replace(lock.found, **change))


@pytest.mark.parametrize(("lock", "blocking"), [(BATON, True), (SOFT, False)])
def test_a_stale_one_is_removed(lock: LockReading, blocking: bool) -> None:
    (finding,) = judged(lock)
    assert finding.action == Remove(lock.found.path, lock.found.file, FileType.REGULAR, 1000)
    assert finding.ownership is Ownership.STALE
    assert finding.blocking is blocking
    assert finding.evidence[-1] == "60 min old"


@pytest.mark.parametrize("lock", [BATON, SOFT])
def test_a_held_one_is_left_alone_without_a_word(lock: LockReading) -> None:
    assert judged(replace(lock, owner_alive=True)) == []
    assert judged(with_file(lock, users=(12,))) == []


def test_who_may_use_it_otherwise_does_not_matter_once_its_owner_is_known_to_be_gone() -> None:
    """Every ordinary user's host has processes that he cannot read; none of them can have taken his lock."""
    assert judged(with_file(BATON, users_known=False))[0].action


@pytest.mark.parametrize(
    ("lock", "request_", "uid", "ownership", "said", "remedy"),
    [
        (with_file(BATON, age_s=59.0), REQUEST, 1000, Ownership.UNKNOWN, "younger than a minute", ""),
        (with_file(BATON, uid=1001), REQUEST, 1000, Ownership.FOREIGN, "uid 1001", ""),
        (with_file(SOFT, uid=1001), REQUEST, 0, Ownership.FOREIGN, "uid 1001", "--evict-user 1001"),
        (replace(BATON, owner_alive=None), REQUEST, 1000, Ownership.UNKNOWN, "another machine", f"rm -- {FILE.path}"),
        (
            replace(SOFT, owner_alive=None),
            REQUEST,
            1000,
            Ownership.UNKNOWN,
            "another machine",
            "rm -- /c/.locks/m/a.lock",
        ),
        (BATON, replace(REQUEST, evict=Evict.OWN), 1000, Ownership.STALE, "nobody holds it", "--evict stale"),
        (SOFT, replace(REQUEST, evict=Evict.OWN), 1000, Ownership.STALE, "nobody holds it", "--evict stale"),
    ],
)
def test_what_is_left_is_a_remark(lock, request_, uid, ownership, said, remedy) -> None:
    (finding,) = judged(lock, request=request_, uid=uid)
    assert (finding.ownership, finding.action, finding.blocking) == (ownership, None, False)
    assert said in finding.evidence[-1]
    assert finding.remedy.endswith(remedy)
    assert bool(finding.remedy) is bool(remedy)


def test_many_that_are_left_are_one_remark() -> None:
    left = [with_file(replace(SOFT, owner_alive=None), path=f"/c/.locks/m{number}/a.lock") for number in range(122)]
    (finding,) = judged(*left)
    assert (finding.subject, finding.evidence[0]) == ("/c/.locks", "122 download locks")
    assert finding.remedy.count(" /c/") == 8


@pytest.mark.parametrize("kind", list(LockKind))
def test_an_unfinished_search_is_told_beside_what_it_found(kind: LockKind) -> None:
    remark, removal = judged(LockReading(unfinished("/c/locks"), kind), BATON)
    assert removal.action
    assert (remark.action, remark.blocking, remark.ownership) == (None, False, Ownership.UNKNOWN)
    assert remark.evidence[0] == "the search in /c/locks could not be finished"


@pytest.mark.parametrize(
    ("glob", "place"), [("/c/ext/**/lock", "/c/ext"), ("/c/a*/lock", "/c"), ("/c/x/lock", "/c/x"), ("/*", "/")]
)
def test_where_a_search_begins(glob: str, place: str) -> None:
    assert locks._literal(glob) == place


def test_a_young_soft_lock_of_a_dead_process_is_stale_all_the_same() -> None:
    assert judged(with_file(SOFT, age_s=1.0))[0].action


MARKER = "filelock/2\npid=4711\nhost=node-1\nmode={mode}\nstart=99\n"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("4711\nnode-1\n", Owner(4711, "node-1")),
        ("4711\nnode-1\n81985529216486895\n", Owner(4711, "node-1")),
        ("4711\nnode-1?pidns-f0000001\n", Owner(4711, "node-1?pidns-f0000001")),
        (MARKER.format(mode="exclusive"), Owner(4711, "node-1")),
        (MARKER.format(mode="lease"), Owner(4711, "node-1")),
        (MARKER.format(mode="shared"), None),
        ("filelock/3\npid=4711\nhost=node-1\nmode=exclusive\n", None),
        ("filelock/2\nhost=node-1\nmode=exclusive\n", None),
        ("filelock/2\npid=x\nhost=node-1\nmode=exclusive\n", None),
        ("", None),
        ("4711", None),
        ("4711\nnode-1", None),
        ("4711\nnode 1\n", None),
        ("-1\nnode-1\n", None),
        ("0\nnode-1\n", None),
        ("99999999999\nnode-1\n", None),
        ("4711\nnode-1\nx\n", None),
        # What a strict lock of filelock leaves behind for older versions: nobody's.
        ("1\nfilelock-strict-v1\x00\n0\n", None),
        ("\ufffd\x00", None),
    ],
)
def test_what_is_written_in_a_soft_lock(text: str, owner: Owner | None) -> None:
    assert locks.parse_owner(text.encode()) == owner


def test_what_is_not_text_is_nobody_s() -> None:
    assert locks.parse_owner(b"\xff\xfe\n\x80\n") is None


@pytest.mark.parametrize(
    "comm", ["ninja", "nvcc", "cicc", "ptxas", "cc1plus", "gcc", "g++", "c++", "gcc-12", "g++-13", "clang++-18", "ld"]
)
def test_compilers(comm: str) -> None:
    assert _COMPILER.fullmatch(comm)


@pytest.mark.parametrize(
    "comm", ["python3", "ninja-dojo", "bash", "gccx", "vllm", "VLLM::EngineCor", "", "ptxas-watch"]
)
def test_what_is_no_compiler(comm: str) -> None:
    assert not _COMPILER.fullmatch(comm)


@pytest.mark.parametrize(
    ("directory", "argv", "works"),
    [
        ("/c/op", ("ninja", "-v"), True),
        ("/c/op/sub", ("cc1plus",), True),
        ("/", ("g++", "-o", "/c/op/main.o"), True),
        (None, ("ninja",), True),
        ("/c", None, True),
        ("/c", ("ninja",), False),
        ("/c/op2", ("ninja",), False),
    ],
)
def test_where_a_compiler_works(directory: str | None, argv: tuple[str, ...] | None, works: bool) -> None:
    assert Compiler(1, 1000, directory, argv).works_in("/c/op", FileId(1, 2)) is works


@pytest.mark.parametrize(("place", "works"), [(FileId(1, 2), True), (FileId(1, 3), False)])
def test_where_a_compiler_in_a_container_works(place: FileId, works: bool) -> None:
    assert Compiler(1, 0, None, ("ninja",), place).works_in("/c/op", FileId(1, 2)) is works
