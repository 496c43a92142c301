"""Shared memory on the slate, for real: what killed trees leave, beside what looks the same and is alive.

/dev/shm and the kernel's System V table are everybody's: each sweep here is shown only what its own test has made.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervise.group.leftovers import Leftovers
from supervise.host import procfs, shm, sysv
from supervise.model.evict import Evict
from supervise.model.litter import FileId, Segment, SysvSegment
from supervise.model.process import Process, ProcessId
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Ownership, SlateResult, Verdict
from supervise.model.snapshot import Gpus, GpuStatus, Record
from supervise.profiles.leftovers import available_rules, load_rules
from supervise.slate import Host, SlateRequest, sweep
from tests.support.launcher import NOBODY
from tests.support.readable import ROOT
from tests.support.waiting import wait_until

RUN = "vllm-test"
SHM = Path(shm.DIRECTORY)
NEVER = ProcessId(2**22 - 1, 1)
OLD_S = 600.0
_ALL = load_rules(available_rules())
# Only the names of segments: other kinds of leftovers would be looked for all over this machine.
RULES = LeftoverRules(segments=_ALL.segments, anonymous=_ALL.anonymous, keep=_ALL.keep)

TREE = """
import multiprocessing, os, sys, time
from multiprocessing import resource_tracker, shared_memory
if __name__ == "__main__":
    segment = shared_memory.SharedMemory(create=True, size=1 << 20)
    segment.buf[:] = bytes(1 << 20)
    semaphore = multiprocessing.get_context("spawn").Semaphore()
    print(segment.name.strip("/"), "sem." + semaphore._semlock.name.strip("/"), resource_tracker._resource_tracker._pid)
    sys.stdout.flush()
    sys.stdin.read()
"""

HOLD = """
import mmap, os, sys
how, path, uid = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
if how == "maps":
    held = mmap.mmap(fd, 4096)
    os.close(fd)
os.setuid(int(uid))
print("ready", flush=True)
sys.stdin.read()
"""

SYSV = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
id_ = libc.shmget(int(sys.argv[2]), 8192, 0o1600)
assert id_ >= 0, ctypes.get_errno()
if "attached" in sys.argv[1]:
    assert libc.shmat(id_, None, 0) != ctypes.c_void_p(-1).value
print(id_, flush=True)
if "alive" in sys.argv[1]:
    sys.stdin.read()
"""


class Made:
    """What one test has put into /dev/shm and into the kernel's table, and the processes that it started."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.ids: set[int] = set()
        self.stack = ExitStack()

    def segment(self, name: str, *, age_s: float = OLD_S, uid: int | None = None) -> Path:
        path = SHM / name
        self.names.add(name)
        path.write_bytes(bytes(4096))
        path.chmod(0o600)
        if uid is not None:
            os.chown(path, uid, uid)
        age(path, age_s)
        return path

    def start(self, script: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        """A process in a session of its own, and what it says first."""
        child = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.stack.callback(end, child)
        assert child.stdout is not None
        return child, child.stdout.readline().strip()

    def tree(self) -> tuple[subprocess.Popen[str], Path, Path]:
        """A multiprocessing program, its segment and its semaphore."""
        child, told = self.start(TREE)
        segment, semaphore, _ = told.split()
        self.names |= {segment, semaphore}
        for name in (segment, semaphore):
            age(SHM / name, OLD_S)
        return child, SHM / segment, SHM / semaphore

    def sysv(self, how: str, key: int = 0) -> tuple[int, int]:
        """A System V segment and the pid of its creator; `how` has the words alive and attached, or not."""
        child, told = self.start(SYSV, how, str(key))
        self.ids.add(int(told))
        if "alive" not in how:
            child.wait(20)
        return int(told), child.pid

    def close(self) -> None:
        self.stack.close()
        for name in self.names:
            (SHM / name).unlink(missing_ok=True)
        for id_ in self.ids:
            ctypes.CDLL(None).shmctl(id_, 0, None)


def end(child: subprocess.Popen[str]) -> None:
    """All of its session, resource tracker included, as `kill -9 -PGID` does it; it is ours until we wait for it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.communicate()
    wait_until(lambda: not members(child.pid), failure=lambda: members(child.pid))


def members(session: int) -> list[int]:
    return [p.pid for p in procfs.scan(cmdline=False, environ=False).values() if p.sid == session and not p.gone]


def age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def identity(path: Path) -> FileId:
    state = path.stat()
    return FileId(state.st_dev, state.st_ino)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    made = Made()
    table = sysv.segments

    def ours() -> tuple[SysvSegment, ...]:
        return tuple(segment for segment in table() or () if segment.id in made.ids)

    monkeypatch.setattr(sysv, "segments", ours)
    monkeypatch.setattr(shm, "users_hidden", lambda: False)
    yield made
    made.close()


Clean = Callable[..., SlateResult]


@pytest.fixture
def clean(made: Made) -> Clean:
    def segments() -> tuple[Segment, ...]:
        return tuple(segment for segment in shm.segments() if segment.name in made.names)

    host = Host(gpus=lambda: Gpus(GpuStatus.ABSENT), segments=segments)

    def sweep_(evict: Evict = Evict.STALE, **more: Any) -> SlateResult:
        return sweep(SlateRequest(RUN, None, (), evict=evict, rules=more.pop("rules", RULES), **more), host)

    return sweep_


def removed(result: SlateResult) -> set[str]:
    assert all(outcome.verdict is Verdict.GONE for outcome in result.outcomes)
    return {outcome.finding.subject for outcome in result.outcomes}


def record(**more: Any) -> Record:
    plain = Record(RUN, 6, "id6", procfs.host_id(), supervisor=NEVER, keeper=NEVER, leader=None)
    return replace(plain, **more)


def unusual() -> str:
    return f"5e{uuid.uuid4().hex[:10]}"


# --- what multiprocessing leaves --------------------------------------------------------------------------------------


def test_what_a_killed_tree_leaves_is_told_and_goes_with_consent(made, clean):
    child, segment, semaphore = made.tree()
    end(child)
    assert segment.exists()
    assert semaphore.exists()
    told = clean()
    assert told.outcomes == ()
    (remark,) = told.remarks
    assert remark.subject == f"2 segments in {SHM}, {segment.name} …"
    assert remark.evidence[:2] == ("unused, names no owner", "1 MiB")
    assert removed(clean(Evict.ENGINES)) == {str(segment), str(semaphore)}
    assert not segment.exists()
    assert not semaphore.exists()
    again = clean(Evict.ENGINES)
    assert (again.outcomes, again.remarks, again.clean) == ((), (), True)


def test_what_a_living_tree_uses_stays_although_its_semaphore_is_mapped_under_another_name(made, clean):
    child, segment, semaphore = made.tree()
    maps = Path(f"/proc/{child.pid}/maps").read_text()
    assert semaphore.name not in maps
    assert re.search(r"/sem\.\w{6} \(deleted\)", maps)
    result = clean(Evict.ALL)
    assert (result.outcomes, result.remarks, result.obstacles) == ((), (), ())
    assert segment.exists()
    assert semaphore.exists()


def test_what_an_attempt_wrote_down_of_a_killed_tree_goes_by_itself(made, clean):
    child, segment, semaphore = made.tree()
    ours = record(segments=(identity(segment),))
    assert removed(clean(Evict.OWN, records=(ours,), rules=LeftoverRules())) == set()
    end(child)
    assert removed(clean(Evict.OWN, records=(ours,), rules=LeftoverRules())) == {str(segment)}
    assert semaphore.exists()


def test_hundreds_of_anonymous_segments_are_one_line_and_go_together(made, clean):
    run = uuid.uuid4().hex[:8]
    for number in range(852):
        made.segment(f"psm_5e{run}{number:04x}")
    held = made.segment(f"psm_5e{run}ffff")
    made.start(HOLD, "maps", str(held), str(os.geteuid()))
    told = clean()
    (remark,) = told.remarks
    assert remark.subject == f"852 segments in {SHM}, psm_5e{run}0000 …"
    assert remark.evidence == ("unused, names no owner", "3 MiB", "oldest 10 min")
    assert remark.remedy == "--evict engines removes them"
    assert len(removed(clean(Evict.ENGINES))) == 852
    assert [name for name in made.names if (SHM / name).exists()] == [held.name]


# --- who uses it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["opens", "maps"])
@pytest.mark.parametrize("uid", [os.geteuid(), pytest.param(NOBODY, marks=pytest.mark.root)], ids=["ours", "another's"])
@pytest.mark.parametrize("name", ["psm_{}", "sgl_shm_mm_4194303_{}", "vllm_offload_{}.mmap"])
def test_a_segment_that_one_process_has_stays_until_it_ends(made, clean, how, uid, name):
    path = made.segment(name.format(unusual()))
    child, told = made.start(HOLD, how, str(path), str(uid))
    assert told == "ready"
    result = clean(Evict.ALL)
    assert (result.outcomes, result.remarks) == ((), ())
    assert path.exists()
    end(child)
    assert removed(clean(Evict.ALL)) == {str(path)}


@pytest.mark.root
def test_another_user_s_segment_is_only_told(made, clean):
    path = made.segment(f"vllm_offload_{unusual()}.mmap", uid=NOBODY)
    result = clean(Evict.ALL)
    (remark,) = result.remarks
    assert (result.outcomes, remark.ownership, remark.subject) == ((), Ownership.FOREIGN, str(path))
    assert path.exists()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_segment_with_a_second_name_is_told_and_stands_in_nobody_s_way(made, clean, recorded):
    path = made.segment(f"vllm_offload_{unusual()}.mmap")
    second = SHM / f"{path.name}-second"
    made.names.add(second.name)
    os.link(path, second)
    records = (record(segments=(identity(path),)),) if recorded else ()
    result = clean(records=records)
    assert (result.outcomes, result.obstacles, result.clean) == ((), (), True)
    assert "has 2 names, left alone" in result.remarks[0].evidence
    second.unlink()
    assert removed(clean(records=records)) == {str(path)}


def test_what_was_made_this_moment_stays_for_now(made, clean):
    path = made.segment(f"vllm_offload_{unusual()}.mmap", age_s=0.0)
    assert clean(Evict.ALL).outcomes == ()
    age(path, 11.0)
    assert removed(clean()) == {str(path)}


# --- names with a pid -------------------------------------------------------------------------------------------------


def test_a_segment_with_the_pid_of_a_dead_process_goes(made, clean):
    child, _ = made.start(HOLD, "opens", "/dev/null", str(os.geteuid()))
    end(child)
    path = made.segment(f"sgl_shm_mm_{child.pid}_{unusual()}")
    result = clean()
    assert removed(result) == {str(path)}
    assert result.outcomes[0].finding.evidence[:2] == (f"its owner, pid {child.pid}, is gone", "nobody uses it")


def test_a_segment_with_the_pid_of_a_living_process_stays_unless_that_one_is_younger(made, clean):
    # The first process of this namespace is older than any of these.
    living = made.segment(f"sgl_shm_mm_1_{unusual()}", age_s=11.0)
    child, _ = made.start(HOLD, "opens", "/dev/null", str(os.geteuid()))
    reused = made.segment(f"sgl_shm_mm_{child.pid}_{unusual()}", age_s=OLD_S)
    assert removed(clean(Evict.ALL)) == {str(reused)}
    assert living.exists()
    assert child.poll() is None


# --- decoys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["vllm_weight_cache_{}", "sglang_weight_cache_{}", "my_model_{}", "psm_{}.txt", "xsgl_shm_mm_4194303_{}"]
)
def test_what_looks_like_it_stays(made, clean, name):
    path = made.segment(name.format(unusual()))
    result = clean(Evict.ALL, records=(record(segments=(identity(path),)),) if "weight_cache" in name else ())
    assert (result.outcomes, result.remarks) == ((), ())
    assert path.exists()


def test_a_link_and_a_directory_of_such_a_name_stay(made, clean, tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"x")
    link, directory = (SHM / f"vllm_offload_{unusual()}.mmap" for _ in range(2))
    link.symlink_to(precious)
    directory.mkdir()
    try:
        made.names |= {link.name, directory.name}
        assert clean(Evict.ALL).outcomes == ()
        assert precious.exists()
        assert link.is_symlink()
        assert directory.is_dir()
    finally:
        made.names.discard(directory.name)
        directory.rmdir()


# --- from inside a container ------------------------------------------------------------------------------------------

INSIDE = """
import json, sys
from supervise.host import procfs, shm
from supervise.model.evict import Evict
from supervise.model.litter import FileId
from supervise.model.rules import LeftoverRules
from supervise.model.snapshot import Gpus, GpuStatus, Record
from supervise.profiles.leftovers import load_rules
from supervise.slate import Host, SlateRequest, sweep
names, recorded = set(sys.argv[1:]), sys.argv[1]
segments = lambda: tuple(s for s in shm.segments() if s.name in names)
files = tuple(s.file for s in segments() if s.name == recorded)
record = Record("r", 1, "i", procfs.host_id(), None, None, None, segments=files)
rules = load_rules(("vllm", "python"))
rules = LeftoverRules(segments=rules.segments, anonymous=rules.anonymous)
host = Host(gpus=lambda: Gpus(GpuStatus.ABSENT), segments=segments)
from supervise.host import sysv
sysv.segments = lambda: ()
result = sweep(SlateRequest("r", None, (), (record,), evict=Evict.ALL, rules=rules), host)
print(json.dumps([[o.finding.subject for o in result.outcomes], [r.evidence for r in result.remarks]]))
"""


@pytest.mark.root
@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare (util-linux)")
@pytest.mark.skipif(os.stat("/proc/self/ns/ipc").st_ino != 0xEFFFFFFF, reason="only the host has its IPC namespace")
def test_a_container_with_the_host_s_dev_shm_removes_only_what_was_written_down(made):
    """There the process that maps the other one is not in /proc."""
    recorded = made.segment(f"vllm_offload_{unusual()}.mmap")
    used = made.segment(f"vllm_offload_{unusual()}.mmap")
    made.start(HOLD, "maps", str(used), str(os.geteuid()))
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", INSIDE, recorded.name, used.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
    outcomes, remarks = json.loads(done.stdout)
    assert outcomes == [str(recorded)]
    assert [remark[0] for remark in remarks] == ["in the host's /dev/shm, users invisible from this container"]
    assert used.exists()


# --- System V ---------------------------------------------------------------------------------------------------------


def ids() -> set[int]:
    return {segment.id for segment in sysv.segments() or ()}


def test_a_system_v_segment_is_told_as_it_is(made):
    id_, creator = made.sysv("alive attached")
    (told,) = sysv.segments() or ()
    assert (told.id, told.key, told.size, told.uid) == (id_, 0, 8192, os.geteuid())
    assert (told.creator, told.attached) == (creator, 1)
    assert -2 < told.age_s < 60


def test_a_system_v_segment_of_a_dead_member_goes_and_others_stay(made, clean):
    ours, creator = made.sysv("detached")
    strangers, _ = made.sysv("detached")
    alive, living = made.sysv("alive")
    attached, holder = made.sysv("alive attached")
    pids = (creator, living, holder)
    records = (record(members=tuple(ProcessId(pid, 1) for pid in pids)),)
    result = clean(Evict.OWN, records=records, rules=LeftoverRules())
    assert removed(result) == {f"System V segment {ours}"}
    assert ids() == {strangers, alive, attached}
    assert clean(Evict.OWN, records=records, rules=LeftoverRules()).outcomes == ()


def test_system_v_segments_of_nobody_we_know_are_told_and_go_with_consent(made, clean, monkeypatch):
    stale = {made.sysv("detached")[0] for _ in range(3)}
    used = {made.sysv("alive")[0], made.sysv("alive attached")[0]}
    read = sysv.segments
    # Their times cannot be set.
    monkeypatch.setattr(sysv, "segments", lambda: tuple(replace(s, age_s=s.age_s + 100) for s in read() or ()))
    # A creator that lives is as old as what it made.
    monkeypatch.setattr(procfs, "age_s", lambda ticks: 1e9)
    told = clean()
    (remark,) = told.remarks
    assert (told.outcomes, remark.kind, remark.remedy) == ((), "sysv", "--evict engines removes them")
    assert remark.subject.startswith("3 System V segments")
    assert ids() == stale | used
    assert removed(clean(Evict.ENGINES)) == {f"System V segment {id_}" for id_ in stale}
    assert ids() == used


def test_the_removal_proves_again_what_it_removes(made):
    key = 0x5E000000 + os.getpid() % 0xFFFF
    id_, creator = made.sysv("detached", key)
    assert sysv.remove(id_, key + 1, creator) is Verdict.GONE
    assert sysv.remove(id_, key, creator + 1) is Verdict.GONE
    assert ids() == {id_}
    assert sysv.remove(id_, key, creator) is Verdict.GONE
    assert ids() == set()
    held, holder = made.sysv("alive attached")
    assert sysv.remove(held, 0, holder) is Verdict.REMAINS
    assert ids() == {held}


def test_a_table_that_cannot_be_read_proves_nothing(made, monkeypatch):
    id_, creator = made.sysv("detached")
    monkeypatch.setattr(sysv, "segments", lambda: None)
    assert sysv.remove(id_, 0, creator) is Verdict.UNKNOWN


@pytest.mark.root
def test_another_user_s_system_v_segment_stays(made, monkeypatch):
    id_, creator = made.sysv("detached")
    monkeypatch.setattr(sysv.os, "geteuid", lambda: NOBODY)
    assert sysv.remove(id_, 0, creator) is Verdict.REMAINS
    assert ids() == {id_}


# --- the end of a group -----------------------------------------------------------------------------------------------


def test_a_group_s_own_segment_goes_at_its_end_and_one_in_use_remains(made):
    unused, used = (made.segment(f"psm_{unusual()}") for _ in range(2))
    made.start(HOLD, "maps", str(used), str(os.geteuid()))
    leftovers = Leftovers(frozenset())
    leftovers.recall([identity(unused), identity(used)])
    left = leftovers.remove()
    assert (left.removed, left.remaining) == ([str(unused)], [str(used)])


def test_the_members_segments_are_noted(made):
    held = made.segment(f"psm_{unusual()}")
    child, _ = made.start(HOLD, "maps", str(held), str(os.geteuid()))
    leftovers = Leftovers(frozenset())
    member = procfs.read(child.pid)
    assert isinstance(member, Process)
    assert leftovers.note([member])
    assert identity(held) in leftovers.files
