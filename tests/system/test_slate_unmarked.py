"""What the next start finds of a killed attempt whose members have no marker: by record, by log, by cgroup."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts.store import Attempt, Run, Store
from supervise.host import cgroupfs, procfs, signals
from supervise.model.process import Process, ProcessId
from supervise.model.slate import Ownership, SlateResult
from supervise.model.snapshot import Gpus, GpuStatus
from supervise.slate import Host, SlateRequest, cgroups, sweep, writers
from tests.support.waiting import alive, wait_until

RUN = "vllm-test"
GONE = ProcessId(2**22 - 1, 1)
# Says that it is what it is to be by closing the descriptor that its only argument names.
REST = "import os, signal, sys; os.close(int(sys.argv[1]))\nwhile True: signal.pause()"
CLOSE_ALL = "import os; os.closerange(0, 3)\n"


def here() -> dict[int, Process]:
    """Only what this test has started, and our ancestors: the machine may be running others' servers."""
    everything = procfs.scan()
    mine = {process.pid for process in procfs.descendants(everything, os.getpid())} | procfs.lineage()
    return {pid: process for pid, process in everything.items() if pid in mine}


HOST = Host(scan=here, gpus=lambda: Gpus(GpuStatus.ABSENT))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "state"))


def killed_attempt(store: Store, run: str = RUN, **keys: Any) -> Attempt:
    """An attempt as a supervise leaves it that was killed together with its keeper and its guard."""
    target: Run = store.run(run)
    target.create()
    attempt = target.open_attempt()
    dead = GONE._asdict()
    circumstances = {
        "id": f"id of {run}",
        "host": procfs.host_id()._asdict(),
        "supervisor": dead,
        "keeper": dead,
        "guard": dead,
        "leader": dead,
    }
    attempt.write("attempt", circumstances | keys)
    return attempt


def clean(store: Store, host: Host = HOST, **more: Any) -> SlateResult:
    more.setdefault("deadline_s", 20.0)
    return sweep(SlateRequest(RUN, None, (), store.records(), **more), host)


Start = Callable[..., ProcessId]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with an empty environment in a session of its own, and waits until it is what it is to be."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str = REST, **streams: Any) -> ProcessId:
        reader, writer = os.pipe()
        argv = [sys.executable, "-I", "-S", "-c", code, str(writer)]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | streams
        kept = (writer, *streams.pop("pass_fds", ()))
        started.append(subprocess.Popen(argv, env={}, start_new_session=True, pass_fds=kept, **streams))
        os.close(writer)
        os.read(reader, 1)
        os.close(reader)
        identity = procfs.identify(started[-1].pid)
        assert identity is not None
        return identity

    yield begin
    for process in started:
        process.kill()
        process.wait(20)


@pytest.fixture
def leaf() -> Iterator[Path]:
    """A cgroup such as an attempt makes, with one of the server's own in it."""
    mounted = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
    root = next((path for path in mounted if (path / "cgroup.procs").exists()), None)
    if root is None or not os.access(root / "cgroup.procs", os.W_OK):
        pytest.skip("no cgroup v2 that we may write to")
    path = root / f"supervise-{RUN}-{uuid.uuid4().hex[:12]}"
    (path / "own").mkdir(parents=True)
    yield path
    for process in cgroupfs.pids(str(path)):
        (root / "cgroup.procs").write_text(str(process))
    cgroupfs.remove(str(path))


def told(result: SlateResult) -> list[tuple[str, str]]:
    return [(outcome.finding.evidence[0], outcome.verdict.value) for outcome in result.outcomes]


# --- by record --------------------------------------------------------------------------------------------------------


def test_a_recorded_member_without_environment_and_streams_is_ended(store: Store, start: Start) -> None:
    member = start(CLOSE_ALL + REST)
    assert not {"0", "1", "2"} & set(os.listdir(f"/proc/{member.pid}/fd"))
    killed_attempt(store, members=[list(member)])
    result = clean(store)
    assert told(result) == [("member of attempt 1 by its record", "gone")]
    assert result.clean
    assert not alive(member)
    assert clean(store).outcomes == ()


def test_one_that_has_inherited_a_recorded_pid_is_not_touched(store: Store, start: Start) -> None:
    stranger = start()
    killed_attempt(store, members=[[stranger.pid, stranger.ticks + 1]], guard={"pid": stranger.pid, "ticks": 1})
    result = clean(store)
    assert (result.outcomes, result.clean) == ((), True)
    assert alive(stranger)


# --- by log -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [("stdout",), ("stderr",), ("stdout", "stderr")], ids="+".join)
def test_whoever_has_the_log_as_its_output_is_ended(store: Store, start: Start, streams: tuple[str, ...]) -> None:
    attempt = killed_attempt(store)
    with open(attempt.log, "ab") as log:
        writer = start(**dict.fromkeys(streams, log))
    result = clean(store)
    assert told(result) == [("writes the log of attempt 1", "gone")]
    assert result.clean
    assert not alive(writer)


def test_one_that_ignores_sigterm_is_killed_with_what_is_below_it(store: Store, start: Start) -> None:
    attempt = killed_attempt(store)
    stubborn = (
        "import os, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "below = os.fork()\n"
        "if below: os.write(1, b'%d\\n' % below)\n"
        "if not below: os.closerange(0, 3)\n"
    )
    with open(attempt.log, "ab") as log:
        parent = start(stubborn + REST, stdout=log)
    below = procfs.identify(int(wait_until(lambda: Path(attempt.log).read_text().strip())))
    assert below is not None
    assert clean(store).clean
    assert not alive(parent)
    assert not alive(below)


def test_readers_of_the_log_are_not_touched(store: Store, start: Start, tmp_path: Path) -> None:
    attempt = killed_attempt(store)
    other = tmp_path / "server.log"
    tail = shutil.which("tail")
    assert tail is not None
    tailing = subprocess.Popen([tail, "-f", attempt.log], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={})
    try:
        assert tailing.stdout is not None
        with open(attempt.log, "ab", buffering=0) as log, open(attempt.log, "rb") as reading, open(other, "wb") as own:
            log.write(b"x")
            assert tailing.stdout.read(1) == b"x"
            readers = [
                start(stdin=reading),
                start(stdout=reading),  # opened for reading only
                start(pass_fds=(log.fileno(),)),  # an editor
                start(stdin=reading, stdout=log),  # `supervise logs -f`, sent where it came from
                start(stdout=own),  # named like it
            ]
        result = clean(store)
        assert (result.outcomes, result.obstacles, result.clean) == ((), (), True)
        assert [reader for reader in readers if not alive(reader)] == []
        assert tailing.poll() is None
    finally:
        tailing.kill()
        tailing.communicate()


def test_what_writes_the_log_of_another_run_is_left_to_that_run(store: Store, start: Start) -> None:
    killed_attempt(store)
    attempt = killed_attempt(store, "other")
    with open(attempt.log, "ab") as log:
        writer = start(stdout=log)
    assert clean(store).outcomes == ()
    assert alive(writer)
    assert sweep(SlateRequest("other", None, (), store.records()), HOST).clean
    assert not alive(writer)


def test_the_log_of_another_boot_proves_nothing(store: Store, start: Start) -> None:
    attempt = killed_attempt(store, host=procfs.host_id()._replace(boot_id="another boot")._asdict())
    with open(attempt.log, "ab") as log:
        writer = start(stdout=log)
    assert clean(store).outcomes == ()
    assert alive(writer)


@pytest.mark.parametrize(
    ("who", "ownership"),
    [("supervisor", Ownership.LIVE), ("keeper", Ownership.OURS), ("guard", Ownership.OURS)],
)
def test_a_group_that_somebody_still_contains_is_left_to_him(store, start, who, ownership) -> None:
    container = start()
    attempt = killed_attempt(store, **{who: container._asdict()})
    with open(attempt.log, "ab") as log:
        writer = start(stdout=log)
    result = clean(store, deadline_s=0.5)
    assert not result.clean
    assert [finding.ownership for finding in result.obstacles] == [ownership]
    assert alive(writer)
    signals.send(container, signal.SIGKILL)
    assert clean(store).clean
    assert not alive(writer)


def test_nobody_s_descriptors_are_read_without_a_record_of_this_run(store: Store) -> None:
    def refuse(*_: object) -> Any:
        raise AssertionError("a launch after a clean end must not pay for this")

    costly = replace(HOST, writers=refuse, cgroups=refuse)
    killed_attempt(store, "other")
    ended = killed_attempt(store)
    store.run(RUN).close_attempt(ended, {"failed": False, "verified": True})
    assert clean(store, costly).clean
    killed_attempt(store)
    with pytest.raises(AssertionError):
        clean(store, costly)


def test_a_reading_that_the_pid_has_outlived_proves_nothing(store: Store, start: Start, leaf: Path) -> None:
    attempt = killed_attempt(store, cgroup=str(leaf))
    with open(attempt.log, "ab") as log:
        member = start(stdout=log)
    (leaf / "cgroup.procs").write_text(str(member.pid))
    now = here()[member.pid]
    before = replace(now, id=ProcessId(member.pid, member.ticks - 1))
    for reading, found in ((before, set()), (now, {member})):
        assert writers.find([reading], [attempt.log]).keys() == found
        assert cgroups.population(store.records(), {member.pid: reading}).inside.keys() == found


# --- by cgroup --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["", "own"])
def test_whoever_is_in_the_cgroup_is_ended_and_the_cgroup_removed(
    store: Store, start: Start, leaf: Path, where
) -> None:
    member, stranger = start(CLOSE_ALL + REST), start(CLOSE_ALL + REST)
    (leaf / where / "cgroup.procs").write_text(str(member.pid))
    killed_attempt(store, cgroup=str(leaf))
    result = clean(store)
    assert result.clean
    assert sorted(told(result)) == [("empty cgroup of attempt 1", "gone"), ("in the cgroup of attempt 1", "gone")]
    assert (alive(member), alive(stranger), leaf.exists()) == (False, True, False)


def test_a_dry_run_touches_neither(store: Store, start: Start, leaf: Path) -> None:
    member = start()
    (leaf / "cgroup.procs").write_text(str(member.pid))
    killed_attempt(store, cgroup=str(leaf))
    result = clean(store, dry_run=True)
    assert [outcome.did for outcome in result.outcomes] == ["would end"]
    assert alive(member)
    assert leaf.exists()


def test_a_run_inside_another_is_not_taken_with_its_cgroup(store: Store, start: Start, leaf: Path) -> None:
    within = leaf / f"supervise-other-{uuid.uuid4().hex[:12]}"
    within.mkdir()
    try:
        member, guest = start(), start()
        (leaf / "cgroup.procs").write_text(str(member.pid))
        (within / "cgroup.procs").write_text(str(guest.pid))
        killed_attempt(store, cgroup=str(leaf))
        killed_attempt(store, "other", cgroup=str(within))
        assert clean(store).clean
        assert (alive(member), alive(guest)) == (False, True)
        signals.send(guest, signal.SIGKILL)
        wait_until(lambda: not cgroupfs.populated(str(within)))
    finally:
        with suppress(FileNotFoundError):
            within.rmdir()


def test_a_directory_that_is_no_cgroup_of_ours_is_never_removed(store: Store, leaf: Path, tmp_path: Path) -> None:
    plain, link, foreign = tmp_path / "supervise-x", tmp_path / "supervise-link", leaf / "own"
    plain.mkdir()
    link.symlink_to(leaf)
    for path in (plain, link, foreign, leaf / ".." / leaf.name, Path("supervise-relative")):
        killed_attempt(store, cgroup=str(path))
    result = clean(store)
    assert (result.outcomes, result.clean) == ((), True)
    assert all(path.exists() for path in (plain, link, foreign))
