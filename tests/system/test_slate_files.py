"""Socket files and lock files on the real host: what nobody holds any more goes, what looks like it stays."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from supervise.host import mounts, procfs, removal, socketfiles
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType
from supervise.model.process import FIRST_PID_NAMESPACE
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, SlateResult, Verdict
from supervise.slate import endpoints, locks
from supervise.slate.request import SlateRequest
from supervise.slate.sweep import sweep
from tests.support.launcher import NOBODY, readable_python

# Nobody else's socket in the real /tmp has such a name.
NAME = f"sv{uuid.uuid4().hex[:8]}"
RULES = LeftoverRules(
    sockets=(re.compile(rf"{NAME}(?:_(?P<pid>\d+))?.*"),),
    batons=("{tmp}/ext/**/lock",),
    soft_locks=("{tmp}/hub/.locks/**/*.lock",),
    keep=(f"{{tmp}}/{NAME}-kept*",),
)
HOST = os.uname().nodename
DEAD_PID = 2**22 + 1


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def tmp(short_dir: Path) -> Path:
    return short_dir


def request(tmp: Path, **more: object) -> SlateRequest:
    return SlateRequest("none", None, (), rules=RULES, env={"TMPDIR": str(tmp)}, **more)


def gone(tmp: Path, **more: object) -> set[str]:
    """Sweep; what was removed. A second look must find nothing more to do."""
    result = sweep(request(tmp, **more))
    assert result.clean, result
    removed = {outcome.finding.subject for outcome in result.outcomes if outcome.verdict is Verdict.GONE}
    assert len(removed) == len(result.outcomes)
    assert not [path for path in removed if os.path.lexists(path)]
    assert not sweep(request(tmp, **more)).outcomes
    return {os.path.relpath(path, tmp) for path in removed}


def remarks(tmp: Path) -> dict[str, Finding]:
    return {os.path.relpath(finding.subject, tmp): finding for finding in _sweep_clean(tmp).remarks}


def _sweep_clean(tmp: Path) -> SlateResult:
    result = sweep(request(tmp))
    assert result.clean, result
    return result


def old(path: Path, seconds: float = 3600) -> Path:
    os.utime(path, (time.time() - seconds,) * 2, follow_symlinks=False)
    return path


def bound(opened: ExitStack, path: Path, kind: int = socket.SOCK_STREAM, name: str | None = None) -> socket.socket:
    server = opened.enter_context(socket.socket(socket.AF_UNIX, kind))
    server.bind(name or str(path))
    old(path)
    return server


def unbound(path: Path, kind: int = socket.SOCK_STREAM) -> Path:
    fd = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX, kind) as server:
            server.bind(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
    return old(path)


@contextmanager
def program(*argv: str, cwd: Path | None = None, executable: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said that it is there, ended at the end."""
    popen = subprocess.Popen(
        argv, executable=executable, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"up\n"
        yield popen
    finally:
        popen.kill()
        popen.communicate(timeout=10)


class TestSockets:
    @pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
    def test_left_behind_and_bound(self, opened: ExitStack, tmp: Path, kind: int) -> None:
        unbound(tmp / NAME, kind)
        bound(opened, tmp / f"{NAME}-bound", kind)
        if kind != socket.SOCK_DGRAM:
            bound(opened, tmp / f"{NAME}-listening", kind).listen(0)
        assert gone(tmp) == {NAME}

    def test_a_bound_one_refuses_connections_like_one_that_is_left_behind(self, opened: ExitStack, tmp: Path) -> None:
        """Why a connection alone proves nothing."""
        bound(opened, tmp / NAME)
        client = opened.enter_context(socket.socket(socket.AF_UNIX))
        with pytest.raises(ConnectionRefusedError):
            client.connect(str(tmp / NAME))
        assert gone(tmp) == set()

    def test_bound_under_another_name(self, opened: ExitStack, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernel's table tells how it was bound: why that alone proves nothing either."""
        (tmp / "alias").symlink_to(tmp)
        bound(opened, tmp / f"{NAME}1", name=str(tmp / "alias" / f"{NAME}1"))
        bound(opened, tmp / "before").listen()
        (tmp / "before").rename(tmp / f"{NAME}2")
        monkeypatch.chdir(tmp)
        bound(opened, tmp / f"{NAME}3", name=f"{NAME}3")
        bound(opened, tmp / f"{NAME}4", name=f"../{tmp.name}/{NAME}4")
        listed = socketfiles.listed()
        assert not [path for number in range(1, 5) if (path := str(tmp / f"{NAME}{number}")) in listed]
        assert gone(tmp) == set()

    def test_a_server_does_not_notice_that_it_is_asked_about(self, opened: ExitStack, tmp: Path) -> None:
        server = bound(opened, tmp / "before")
        server.listen()
        (tmp / "before").rename(tmp / NAME)
        assert gone(tmp) == set()
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()

    def test_paths_that_are_too_long_for_a_socket(self, opened: ExitStack, short_dir: Path) -> None:
        tmp = short_dir / ("d" * 120)
        tmp.mkdir()
        unbound(tmp / NAME)
        bound(opened, short_dir / "s")
        (short_dir / "s").rename(tmp / f"{NAME}-bound")
        assert gone(tmp) == {NAME}

    @pytest.mark.root
    def test_bound_in_another_network_namespace(self, tmp: Path) -> None:
        unshare = shutil.which("unshare")
        if unshare is None:
            pytest.skip("no unshare")
        code = (
            "import os, socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); "
            "os.utime(sys.argv[1], (1, 1)); print('up', flush=True); input()"
        )
        with program(unshare, "-n", sys.executable, "-c", code, str(tmp / NAME)):
            assert str(tmp / NAME) not in socketfiles.listed()
            assert gone(tmp) == set()
        assert gone(tmp) == {NAME}

    def test_what_only_looks_like_one(self, tmp: Path) -> None:
        (tmp / NAME).write_text("a file, like NamedTemporaryFile's")
        os.mkfifo(tmp / f"{NAME}-fifo")
        (tmp / f"{NAME}-dir").mkdir()
        (tmp / f"{NAME}-link").symlink_to(tmp / "x")
        unbound(tmp / "x")
        unbound(tmp / f"x{NAME}")
        unbound(tmp / f"{NAME}-dir" / NAME)
        unbound(tmp / f"{NAME}-kept")
        for path in tmp.iterdir():
            old(path)
        before = sorted(tmp.rglob("*"))
        assert gone(tmp) == set()
        assert sorted(tmp.rglob("*")) == before

    def test_of_a_living_process_and_of_a_dead_one(self, tmp: Path) -> None:
        unbound(tmp / f"{NAME}_{os.getpid()}")
        unbound(tmp / f"{NAME}_{DEAD_PID}")
        assert gone(tmp) == {f"{NAME}_{DEAD_PID}"}

    def test_a_young_one(self, tmp: Path) -> None:
        old(unbound(tmp / NAME), 1)
        assert gone(tmp) == set()

    def test_hundreds_with_one_look_at_the_kernel_s_table(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        looks = []
        listed = socketfiles.listed
        monkeypatch.setattr(socketfiles, "listed", lambda: looks.append(1) or listed())
        for number in range(300):
            unbound(tmp / f"{NAME}-{number}")
        assert len(endpoints.survey(request(tmp))) == 300
        assert len(looks) == 1
        assert len(gone(tmp)) == 300

    def test_more_than_are_looked_at_in_one_reading(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoints, "_MOST", 3)
        for number in range(8):
            unbound(tmp / f"{NAME}-{number}")
        assert len(gone(tmp)) == 8

    def test_on_a_file_system_that_other_machines_share(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        unbound(tmp / NAME)
        device = (tmp / NAME).lstat().st_dev
        monkeypatch.setattr(mounts, "remote", lambda: mounts.Remote(frozenset(), frozenset({device})))
        assert gone(tmp) == set()
        assert "cannot be told" in remarks(tmp)[NAME].evidence[1]

    def test_the_kernel_s_table_cannot_be_read(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unreadable() -> frozenset[str]:
            raise PermissionError

        unbound(tmp / NAME)
        monkeypatch.setattr(socketfiles, "listed", unreadable)
        assert gone(tmp) == set()
        assert (tmp / NAME).exists()

    def test_one_with_a_second_name(self, tmp: Path) -> None:
        unbound(tmp / NAME)
        os.link(tmp / NAME, tmp / "another-name")
        assert gone(tmp) == set()
        assert remarks(tmp)[NAME].evidence[-1] == "has 2 names, left alone"
        (tmp / "another-name").unlink()
        assert gone(tmp) == {NAME}

    def test_a_search_that_cannot_be_finished_is_told(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(endpoints, "_USUAL", str(tmp))
        unbound(tmp / NAME)
        with monkeypatch.context() as patch:
            patch.setattr(endpoints, "_WITHIN_S", -1.0)
            assert remarks(tmp)["."].evidence[0] == f"the search in {tmp} could not be finished"
        assert gone(tmp) == {NAME}
        assert remarks(tmp) == {}

    def test_a_directory_that_both_names_lead_to_is_searched_for_each_once(
        self, tmp: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(endpoints, "_USUAL", str(tmp / "alias"))
        (tmp / "alias").symlink_to(tmp)
        unbound(tmp / NAME)
        assert len(endpoints.survey(request(tmp))) == 1
        assert gone(tmp) == {NAME}

    def test_nothing_but_our_own_run_s_is_asked_for(self, tmp: Path) -> None:
        unbound(tmp / NAME)
        assert gone(tmp, evict=Evict.OWN) == set()


def baton(path: Path) -> Path:
    """As torch makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    return old(path)


def lock(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return old(path)


HOLD = "import os, sys; os.open(sys.argv[1], os.O_CREAT | os.O_EXCL); print('up', flush=True); input()"


class TestBatons:
    def test_while_its_holder_lives_and_after_it_was_killed(self, tmp: Path) -> None:
        (tmp / "ext/op").mkdir(parents=True)
        with program(sys.executable, "-c", HOLD, str(tmp / "ext/op/lock")) as holder:
            old(tmp / "ext/op/lock")
            assert gone(tmp) == set()
            holder.send_signal(signal.SIGKILL)
            holder.wait(10)
            assert gone(tmp) == {"ext/op/lock"}

    def test_it_refuses_the_launch_if_it_cannot_be_removed(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("supervise.host.removal._used", lambda *_: None)
        monkeypatch.setattr("supervise.host.lease._filesystem", lambda _: b"nfs4")
        baton(tmp / "ext/op/lock")
        result = sweep(request(tmp))
        assert not result.clean
        assert (tmp / "ext/op/lock").exists()

    def test_one_that_cannot_be_removed_is_an_obstacle_each_time(self, tmp: Path) -> None:
        path = baton(tmp / "ext/op/lock")
        os.link(path, tmp / "a second name")
        for _ in range(2):
            result = sweep(request(tmp))
            (outcome,) = result.outcomes
            assert (outcome.did, outcome.verdict, result.clean) == ("not removed", Verdict.REMAINS, False)
            (obstacle,) = result.obstacles
            assert (obstacle.subject, obstacle.action) == (str(path), None)
            assert obstacle.evidence[-1] == "could not be removed in 3 tries"
            assert obstacle.remedy == f"ls -l {path}; then remove or rename it by hand"
        (tmp / "a second name").unlink()
        assert gone(tmp) == {"ext/op/lock"}

    def test_a_search_that_cannot_be_finished_is_told(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        baton(tmp / "ext/op/lock")
        lock(tmp / "hub/.locks/empty.lock")
        monkeypatch.setattr(locks, "_WITHIN_S", -1.0)
        told = remarks(tmp)
        assert told["ext"].evidence == (
            f"the search in {tmp}/ext could not be finished",
            "old build locks may be left there",
        )
        assert told["hub/.locks"].evidence[0] == f"the search in {tmp}/hub/.locks could not be finished"
        monkeypatch.undo()
        assert gone(tmp) == {"ext/op/lock"}

    def test_a_search_without_descriptors_is_told(self, tmp: Path) -> None:
        """Not enough to descend: what is there is not seen, and not said not to be there."""
        baton(tmp / "ext/op/lock")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held: list[int] = []
        try:
            # Two are left, as to a program with three streams under a limit of five; the listing counts its own.
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            while len(os.listdir("/proc/self/fd")) < 255:
                held.append(os.open("/", os.O_PATH))
            told = (locks.survey(request(tmp)), endpoints.survey(request(tmp)))
        finally:
            for fd in held:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert {lock.found.path for lock in told[0]} == {f"{tmp}/ext"}
        assert {socket.path for socket in told[1]} == {str(tmp), "/tmp"}

    def test_while_a_compiler_that_has_lost_its_python_works_there(self, tmp: Path) -> None:
        baton(tmp / "ext/op/lock")
        baton(tmp / "ext/other/lock")
        with compiler(tmp, tmp / "ext/op"):
            assert gone(tmp) == {"ext/other/lock"}
        assert gone(tmp) == {"ext/op/lock"}

    def test_a_compiler_elsewhere_does_not_matter(self, tmp: Path) -> None:
        baton(tmp / "ext/op/lock")
        with compiler(tmp, tmp):
            assert gone(tmp) == {"ext/op/lock"}

    def test_young(self, tmp: Path) -> None:
        old(baton(tmp / "ext/op/lock"), 30)
        assert gone(tmp) == set()
        assert remarks(tmp)["ext/op/lock"].evidence == ("build lock", "younger than a minute")

    def test_what_flock_locks_under_the_same_name(self, tmp: Path) -> None:
        lock(tmp / "ext/op/lock")
        assert gone(tmp) == set()
        assert remarks(tmp) == {}

    def test_what_is_called_otherwise(self, tmp: Path) -> None:
        for name in ("op/lock.bak", "op/unlock", "op/lock/x"):
            baton(tmp / "ext" / name)
        baton(tmp / "lock")
        assert gone(tmp) == set()

    def test_on_a_file_system_that_other_machines_share(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        device = baton(tmp / "ext/op/lock").stat().st_dev
        monkeypatch.setattr(mounts, "remote", lambda: mounts.Remote(frozenset(), frozenset({device})))
        assert gone(tmp) == set()
        assert "another machine" in remarks(tmp)["ext/op/lock"].evidence[1]


@contextmanager
def compiler(tmp: Path, cwd: Path) -> Iterator[None]:
    """A process that the kernel calls ninja."""
    link = tmp / "bin" / "ninja"
    link.parent.mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.realpath(sys.executable))
    with program(str(link), "-I", "-S", "-c", "print('up', flush=True); input()", cwd=cwd) as popen:
        process = procfs.read(popen.pid)
        assert process is not None
        assert process.comm == "ninja"
        yield


class TestSoftLocks:
    def test_of_the_dead_of_the_living_and_of_nobody(self, tmp: Path, opened: ExitStack) -> None:
        hub = tmp / "hub/.locks/models--m"
        lock(hub / "dead.lock", f"{DEAD_PID}\n{HOST}\n")
        lock(hub / "dead-new.lock", f"{DEAD_PID}\n{HOST}\n12345\n")
        lock(hub / "dead-2.lock", f"filelock/2\npid={DEAD_PID}\nhost={HOST}\nmode=exclusive\n")
        lock(hub / "kept.txt", f"{DEAD_PID}\n{HOST}\n")
        alive = lock(hub / "alive.lock", f"{os.getpid()}\n{HOST}\n")
        os.utime(alive)
        flocked = opened.enter_context(lock(hub / "flocked.lock").open("r+b"))
        fcntl.flock(flocked, fcntl.LOCK_EX)
        lock(hub / "empty.lock")
        lock(hub / "unfinished.lock", f"{DEAD_PID}\n{HOST}")
        dead = {f"hub/.locks/models--m/{name}.lock" for name in ("dead", "dead-new", "dead-2")}
        if procfs.host_id().pid_namespace != FIRST_PID_NAMESPACE:
            pytest.skip("in a container, a bare host name may be anybody's")
        assert gone(tmp) == dead
        assert remarks(tmp) == {}

    def test_of_our_own_container(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(locks, "FIRST_PID_NAMESPACE", 1)
        namespace = procfs.host_id().pid_namespace
        lock(tmp / "hub/.locks/ours.lock", f"{DEAD_PID}\n{HOST}?pidns-{namespace:x}\n")
        lock(tmp / "hub/.locks/bare.lock", f"{DEAD_PID}\n{HOST}\n")
        lock(tmp / "hub/.locks/theirs.lock", f"{DEAD_PID}\n{HOST}?pidns-{namespace + 1:x}\n")
        assert gone(tmp) == {"hub/.locks/ours.lock"}
        assert remarks(tmp)["hub/.locks"].evidence[0] == "2 download locks"

    def test_of_another_machine(self, tmp: Path) -> None:
        lock(tmp / "hub/.locks/a.lock", f"{DEAD_PID}\nelsewhere\n")
        assert gone(tmp) == set()
        assert "another machine" in remarks(tmp)["hub/.locks/a.lock"].evidence[1]

    def test_whose_pid_has_been_given_to_another_process_since(
        self, tmp: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(locks, "_host", lambda: HOST)
        with program(sys.executable, "-c", "print('up', flush=True); input()") as popen:
            path = lock(tmp / "hub/.locks/a.lock", f"{popen.pid}\n{HOST}\n")
            os.utime(path)
            assert gone(tmp) == set()
            old(path)
            assert gone(tmp) == {"hub/.locks/a.lock"}

    def test_that_somebody_has_open(self, tmp: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process of another PID namespace, say: the pid in the file means nothing here, what it holds does."""
        monkeypatch.setattr(locks, "_host", lambda: HOST)
        path = lock(tmp / "hub/.locks/a.lock", f"{DEAD_PID}\n{HOST}\n")
        held = opened.enter_context(path.open())
        assert gone(tmp) == set()
        held.close()
        assert gone(tmp) == {"hub/.locks/a.lock"}


class TestRemoval:
    """The guard itself: it answers, whatever it is asked for."""

    @pytest.fixture
    def file(self, tmp: Path) -> Path:
        (tmp / "f").write_text("x")
        return tmp / "f"

    @staticmethod
    def identity(path: Path) -> FileId:
        state = path.lstat()
        return FileId(state.st_dev, state.st_ino)

    @pytest.mark.parametrize(
        "spelled", ["{dir}//f", "/{dir}/f", "{dir}/./f", "{dir}/f/", "{dir}/../f", "f", "", "/", "{dir}/f\0"]
    )
    def test_paths_that_are_none(self, file: Path, monkeypatch: pytest.MonkeyPatch, spelled: str) -> None:
        monkeypatch.chdir(file.parent)
        path = spelled.format(dir=file.parent)
        for verdict in (
            removal.remove(path, self.identity(file), FileType.REGULAR, os.geteuid()),
            removal.move_aside(path, self.identity(file.parent), os.geteuid(), "aside"),
        ):
            assert verdict in (Verdict.UNKNOWN, Verdict.GONE)
        assert file.exists()
        assert [path.name for path in file.parent.iterdir()] == ["f"]

    def test_not_what_was_surveyed(self, file: Path) -> None:
        mine, uid = self.identity(file), os.geteuid()
        assert removal.remove(str(file), FileId(mine.dev, mine.ino + 1), FileType.REGULAR, uid) is Verdict.GONE
        assert removal.remove(str(file), mine, FileType.SOCKET, uid) is Verdict.REMAINS
        assert removal.remove(str(file), mine, FileType.REGULAR, uid + 1) is Verdict.REMAINS
        directory = self.identity(file.parent)
        assert removal.remove(str(file.parent), directory, FileType.DIRECTORY, uid) is Verdict.REMAINS
        assert removal.move_aside(str(file), mine, uid, "aside") is Verdict.REMAINS
        with file.open():
            assert removal.remove(str(file), mine, FileType.REGULAR, uid) is Verdict.REMAINS
        (file.parent / "link").symlink_to(file.parent)
        assert removal.remove(f"{file.parent}/link/f", mine, FileType.REGULAR, uid) is Verdict.UNKNOWN
        os.link(file, file.parent / "g")
        assert removal.remove(str(file), mine, FileType.REGULAR, uid) is Verdict.REMAINS
        (file.parent / "g").unlink()
        assert file.exists()
        assert removal.remove(str(file), mine, FileType.REGULAR, uid) is Verdict.GONE
        assert not file.exists()
        assert removal.remove(str(file), mine, FileType.REGULAR, uid) is Verdict.GONE

    @pytest.mark.parametrize("aside", ["", ".", "..", "a/b", "/nowhere/x", "../x", "taken"])
    def test_names_that_nothing_is_moved_to(self, tmp: Path, aside: str) -> None:
        for name in ("cache", "taken"):
            (tmp / name).mkdir()
        verdict = removal.move_aside(str(tmp / "cache"), self.identity(tmp / "cache"), os.geteuid(), aside)
        assert verdict is (Verdict.REMAINS if aside == "taken" else Verdict.UNKNOWN)
        assert sorted(path.name for path in tmp.iterdir()) == ["cache", "taken"]

    def test_moved_aside(self, tmp: Path) -> None:
        (tmp / "cache").mkdir()
        assert removal.move_aside(str(tmp / "cache"), self.identity(tmp / "cache"), os.geteuid(), "old") is Verdict.GONE
        assert [path.name for path in tmp.iterdir()] == ["old"]

    def test_no_descriptor_is_left_open(self, file: Path) -> None:
        before = set(os.listdir("/proc/self/fd"))
        for path in (str(file), f"{file}/x/y", "/nowhere/f", f"{file.parent}/none"):
            removal.remove(path, FileId(1, 1), FileType.REGULAR, 0)
        assert set(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_an_ordinary_user_gets_rid_of_his_own_although_he_cannot_read_everybody(tmp: Path, opened: ExitStack) -> None:
    readable_python()
    tmp.chmod(0o777)
    reading = opened.enter_context(program(sys.executable, "-c", "print('up', flush=True); input()"))
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        unbound(tmp / NAME)
        baton(tmp / "ext/op/lock")
        namespace = procfs.host_id().pid_namespace
        suffix = "" if namespace == FIRST_PID_NAMESPACE else f"?pidns-{namespace:x}"
        lock(tmp / "hub/.locks/a.lock", f"{DEAD_PID}\n{HOST}{suffix}\n")
        assert procfs.opened_by(reading.pid) is None
        assert gone(tmp) == {NAME, "ext/op/lock", "hub/.locks/a.lock"}
    finally:
        os.seteuid(0)
        os.setegid(0)
