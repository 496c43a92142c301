"""Attacks on a clean slate that runs as root, in directories that everybody may write to: nothing outside changes."""

from __future__ import annotations

import glob
import io
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervise.host import globbing, removal, socketfiles
from supervise.model.litter import FileId, FileType
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, Remove, Verdict
from supervise.report.console import Console
from supervise.slate import act
from supervise.slate.judge import judge
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey
from supervise.slate.sweep import sweep
from tests.support.launcher import readable_python
from tests.support.readable import ROOT

pytestmark = pytest.mark.root

ATTACKER = 65534
# Nobody else's socket in the real /tmp has such a name.
NAME = f"sv{uuid.uuid4().hex[:8]}"
RULES = LeftoverRules(sockets=(re.compile(f"{NAME}(?s:.)*"),), soft_locks=("{tmp}/*.lock", "{tmp}/deep/**/*.lock"))
# Above the largest pid that Linux gives (proc(5), pid_max).
DEAD = f"{2**22 + 1}\n{os.uname().nodename}\n"


@contextmanager
def attacker() -> Iterator[None]:
    """What is done meanwhile is done by somebody else."""
    os.setegid(ATTACKER)
    os.seteuid(ATTACKER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class Canary:
    """Somebody's directory outside, with files that look like leftovers: none of it may change."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.file = directory / f"{NAME}.lock"
        self.file.write_text(DEAD)
        self.file.chmod(0o640)
        self.socket = unbound(directory / NAME)
        self._before = self._state()

    def _state(self) -> dict[str, object]:
        states = {path.name: path.lstat() for path in self.directory.iterdir()}
        told: dict[str, object] = {
            name: (s.st_ino, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns) for name, s in states.items()
        }
        return told | {"text": self.file.read_text()}

    @property
    def intact(self) -> bool:
        return self.directory.exists() and self.file.exists() and self._state() == self._before


def unbound(path: Path) -> Path:
    """A socket file that nobody has bound any more, and not so young that it would be left alone."""
    fd = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.fsencode(f"/proc/self/fd/{fd}/") + os.fsencode(path.name))
    finally:
        os.close(fd)
    return old(path)


def old(path: Path) -> Path:
    os.utime(path, (time.time() - 3600,) * 2, follow_symlinks=False)
    return path


def lock(path: Path) -> Path:
    # Not through a link that somebody lays meanwhile: it would be the test that changes what must not change.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(fd, "w") as file:
        file.write(DEAD)
    return old(path)


@pytest.fixture
def outside(short_dir: Path) -> Iterator[Canary]:
    short_dir.chmod(0o755)
    canary = Canary(short_dir / "outside")
    yield canary
    assert canary.intact


@pytest.fixture(params=["sticky", "open"])
def arena(request: pytest.FixtureRequest, short_dir: Path) -> Path:
    """A directory that everybody may write to, as /tmp is, and as it should not be."""
    path = short_dir / "tmp"
    path.mkdir()
    path.chmod(0o1777 if request.param == "sticky" else 0o777)
    return path


def asked(tmp: Path, rules: LeftoverRules = RULES) -> SlateRequest:
    return SlateRequest("none", None, (), rules=rules, env={"TMPDIR": str(tmp)})


def findings(tmp: Path) -> list[Finding]:
    """What would be removed."""
    request = asked(tmp)
    return [f for f in judge(survey(request, Host()), request) if isinstance(f.action, Remove)]


def swept(tmp: Path) -> set[str]:
    """Remove what is to be removed; what was said to be gone."""
    return {outcome.finding.subject for outcome in sweep(asked(tmp)).outcomes if outcome.verdict is Verdict.GONE}


class TestLyingInWait:
    """What is there before anybody looks."""

    def test_links_to_files_outside(self, arena: Path, outside: Canary) -> None:
        genuine = {str(unbound(arena / f"{NAME}1")), str(lock(arena / "a.lock"))}
        with attacker():
            (arena / f"{NAME}2").symlink_to(outside.socket)
            (arena / "b.lock").symlink_to(outside.file)
        assert swept(arena) == genuine
        assert {path.name for path in arena.iterdir()} == {f"{NAME}2", "b.lock"}

    def test_links_to_directories_outside(self, arena: Path, outside: Canary) -> None:
        genuine = arena / "deep"
        with attacker():
            (arena / "d.lock").symlink_to(outside.directory)
            genuine.symlink_to(outside.directory)
        assert swept(arena) == set()
        with attacker():
            genuine.unlink()
            genuine.mkdir()
            (genuine / "further").symlink_to(outside.directory)
        lock(genuine / "own.lock")
        assert swept(arena) == {str(genuine / "own.lock")}

    def test_the_temporary_directory_is_somebody_s_link(self, arena: Path, outside: Canary) -> None:
        with attacker():
            (arena / "t").symlink_to(outside.directory)
        assert findings(arena / "t") == []

    def test_a_link_of_our_own_is_followed(self, arena: Path, short_dir: Path) -> None:
        (short_dir / "mine").symlink_to(arena)
        assert swept(short_dir / "mine") == set()
        genuine = {str(unbound(arena / NAME)), str(lock(arena / "a.lock"))}
        assert swept(short_dir / "mine") == genuine

    def test_second_names_of_files_outside(self, arena: Path, outside: Canary, short_dir: Path) -> None:
        # An attacker may where the kernel does not forbid it (proc(5), protected_hardlinks).
        for name, victim in ((f"{NAME}h", outside.socket), ("h.lock", outside.file)):
            os.link(victim, arena / name)
        assert swept(arena) == set()
        assert outside.file.lstat().st_nlink == outside.socket.lstat().st_nlink == 2

    def test_what_would_block_or_answer_whoever_opens_it(self, arena: Path, outside: Canary) -> None:
        with attacker():
            for name in (f"{NAME}f", "f.lock"):
                os.mkfifo(arena / name)
                os.mkdir(arena / f"d{name}")
        made = {f"{NAME}f", "f.lock", f"d{NAME}f", "df.lock"}
        try:
            os.mknod(arena / "zero.lock", stat.S_IFCHR | 0o666, os.makedev(1, 5))
            made.add("zero.lock")
        except PermissionError:
            pass
        began = time.monotonic()
        assert swept(arena) == set()
        assert time.monotonic() - began < 5
        assert {path.name for path in arena.iterdir()} == made

    def test_files_of_others_are_left_to_them(self, arena: Path, outside: Canary) -> None:
        with attacker():
            unbound(arena / NAME)
            lock(arena / "theirs.lock")
        result = sweep(asked(arena))
        assert result.clean
        assert not result.outcomes
        told = {remark.subject: remark.evidence[-1] for remark in result.remarks}
        assert told == {str(arena / NAME): f"uid {ATTACKER}", str(arena / "theirs.lock"): f"uid {ATTACKER}"}

    @pytest.mark.parametrize("name", [b"a\nb", b"\x1b[2J\x1b]0;x\x07", b"\xff\xfe\x80", b" ", b"-rf ..", b"$(id)`id`"])
    def test_names(self, arena: Path, outside: Canary, name: bytes) -> None:
        text = os.fsdecode(name)
        genuine = {str(unbound(arena / f"{NAME}{text}")), str(lock(arena / f"{text}.lock"))}
        decoy = arena / f"x{text}"
        decoy.write_text("")
        result = sweep(asked(arena))
        assert {o.finding.subject for o in result.outcomes if o.verdict is Verdict.GONE} == genuine
        assert [path.name for path in arena.iterdir()] == [decoy.name]
        said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        Console(said).slate(result)
        said.seek(0)
        assert "\x1b" not in said.read()

    def test_rows_forged_in_the_kernel_s_table_free_nobody_s_socket(self, arena: Path, outside: Canary) -> None:
        row = "0000: 00000002 00000000 zz 0001 01 7 "
        with attacker(), socket.socket(socket.AF_UNIX) as forged, socket.socket(socket.AF_UNIX) as server:
            forged.bind(f"{arena}/f\n{row}")
            server.bind(str(arena / NAME))
            os.seteuid(0)
            os.chown(arena / NAME, 0, 0)
            old(arena / NAME)
            assert f"{arena}/{NAME}" in socketfiles.listed()
            assert findings(arena) == []

    def test_a_hundred_thousand_files(self, short_dir: Path, outside: Canary) -> None:
        crowd = short_dir / "crowd"
        crowd.mkdir()
        crowd.chmod(0o1777)
        fd = os.open(crowd, os.O_PATH)
        try:
            with attacker():
                for number in range(100_000):
                    os.mknod(f"{NAME}{number}", dir_fd=fd)
        finally:
            os.close(fd)
        genuine = {str(unbound(crowd / f"{NAME}-genuine"))}
        (crowd / f"{NAME}-link").symlink_to(outside.socket)
        began = time.monotonic()
        found = {finding.subject for finding in findings(crowd)}
        assert time.monotonic() - began < 5
        assert found <= genuine
        assert globbing.find([f"{crowd}/*"], most=1000).complete is False
        shutil.rmtree(crowd)


def to_link(path: Path, outside: Canary) -> None:
    path.symlink_to(outside.socket if outside.socket.name == path.name else outside.file)


def to_fifo(path: Path, outside: Canary) -> None:
    os.mkfifo(path)


def to_directory(path: Path, outside: Canary) -> None:
    path.mkdir()


def to_file(path: Path, outside: Canary) -> None:
    path.write_text("theirs")


def to_second_name(path: Path, outside: Canary) -> None:
    os.seteuid(0)
    os.link(outside.socket if outside.socket.name == path.name else outside.file, path)


def to_device(path: Path, outside: Canary) -> None:
    os.seteuid(0)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no device nodes here")


SWAPS = [to_link, to_fifo, to_directory, to_file, to_second_name, to_device]


class TestBetweenSurveyAndAct:
    """What is exchanged after it was found stale."""

    @pytest.fixture
    def tmp(self, short_dir: Path) -> Path:
        """A directory in which anybody can exchange anybody's file."""
        path = short_dir / "open"
        path.mkdir()
        path.chmod(0o777)
        return path

    @pytest.mark.parametrize("swap", SWAPS)
    @pytest.mark.parametrize("make", [lambda tmp: unbound(tmp / NAME), lambda tmp: lock(tmp / f"{NAME}.lock")])
    def test_the_file(
        self, tmp: Path, outside: Canary, make: Callable[[Path], Path], swap: Callable[[Path, Canary], None]
    ) -> None:
        victim = make(tmp)
        (finding,) = findings(tmp)
        with attacker():
            victim.unlink()
            swap(victim, outside)
        before = victim.lstat()
        act.remove(finding)
        after = victim.lstat()
        assert (after.st_ino, after.st_mode, after.st_nlink) == (before.st_ino, before.st_mode, before.st_nlink)

    def test_the_directory(self, tmp: Path, outside: Canary) -> None:
        inner = tmp / "inner"
        inner.mkdir()
        unbound(inner / NAME)
        lock(inner / f"{NAME}.lock")
        found = findings(inner)
        assert len(found) == 2
        with attacker():
            inner.rename(tmp / "elsewhere")
            inner.symlink_to(outside.directory)
        for finding in found:
            act.remove(finding)
        assert len(list((tmp / "elsewhere").iterdir())) == 2

    def test_the_directory_for_another_one(self, tmp: Path, outside: Canary) -> None:
        inner = tmp / "inner"
        inner.mkdir()
        unbound(inner / NAME)
        lock(inner / f"{NAME}.lock")
        found = findings(inner)
        assert len(found) == 2
        with attacker():
            inner.rename(tmp / "elsewhere")
        outside.directory.rename(inner)
        for finding in found:
            act.remove(finding)
        inner.rename(outside.directory)

    def test_it_is_in_use_by_now(self, tmp: Path) -> None:
        unbound(tmp / NAME)
        held = lock(tmp / f"{NAME}.lock")
        found = findings(tmp)
        (tmp / NAME).unlink()
        with held.open(), socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp / NAME))
            state = (tmp / NAME).lstat()
            bound = Remove(str(tmp / NAME), FileId(state.st_dev, state.st_ino), FileType.SOCKET, 0)
            for action in (*(finding.action for finding in found), bound):
                assert isinstance(action, Remove)
                removal.remove(*action)
            assert (tmp / NAME).exists()
            assert held.exists()

    def test_nothing_is_exchanged(self, tmp: Path) -> None:
        unbound(tmp / NAME)
        lock(tmp / f"{NAME}.lock")
        for finding in findings(tmp):
            act.remove(finding)
        assert list(tmp.iterdir()) == []


def naively(pattern: str, lying_in: Callable[[], None] = lambda: None) -> None:
    """What a script does: find by name, look where it leads, remove that."""
    found = glob.glob(pattern)
    lying_in()
    for path in found:
        os.unlink(os.path.realpath(path))


class TestTwin:
    """The same traps catch whoever goes by names."""

    @pytest.fixture
    def prey(self, short_dir: Path) -> Path:
        short_dir.chmod(0o755)
        (short_dir / "prey").mkdir()
        return lock(short_dir / "prey" / f"{NAME}.lock")

    def test_a_link(self, arena: Path, prey: Path) -> None:
        with attacker():
            (arena / "b.lock").symlink_to(prey)
        naively(f"{arena}/*.lock")
        assert not prey.exists()

    def test_a_linked_directory(self, arena: Path, prey: Path) -> None:
        with attacker():
            (arena / "deep").symlink_to(prey.parent)
        naively(f"{arena}/deep/*.lock")
        assert not prey.exists()

    def test_a_directory_that_is_exchanged(self, short_dir: Path, prey: Path) -> None:
        inner = short_dir / "inner"
        inner.mkdir()
        lock(inner / prey.name)

        def swap() -> None:
            inner.rename(short_dir / "elsewhere")
            inner.symlink_to(prey.parent)

        naively(f"{inner}/*.lock", swap)
        assert not prey.exists()


SWAPPER = """
import os, sys
victim, aside, bait = sys.argv[1:]
print("up", flush=True)
while True:
    for step in (
        lambda: os.rename(victim, aside),
        lambda: os.symlink(bait, victim),
        lambda: os.unlink(victim),
        lambda: os.rename(aside, victim),
    ):
        try:
            step()
        except OSError:
            pass
"""


@contextmanager
def swapping(victim: Path, bait: Path) -> Iterator[None]:
    """Somebody exchanges a name for a link as fast as he can."""
    command = [readable_python(), "-I", "-S", "-c", SWAPPER, str(victim), str(victim.with_name("aside")), str(bait)]
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, user=ATTACKER, group=ATTACKER, extra_groups=[])
    try:
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"up\n"
        yield
        assert popen.poll() is None
    finally:
        popen.kill()
        popen.communicate(timeout=10)


class TestRace:
    SECONDS = 2.0

    @pytest.fixture
    def tmp(self, short_dir: Path) -> Path:
        path = short_dir / "open"
        path.mkdir()
        path.chmod(0o777)
        return path

    def test_a_file_against_a_link(self, tmp: Path, outside: Canary) -> None:
        victim = tmp / NAME
        verdicts = []
        with swapping(victim, outside.socket):
            deadline = time.monotonic() + self.SECONDS
            while time.monotonic() < deadline:
                try:
                    state = unbound(victim).lstat()
                except OSError:
                    continue
                file = FileId(state.st_dev, state.st_ino)
                verdicts.append(removal.remove(str(victim), file, FileType.SOCKET, 0))
        assert verdicts
        (tmp / "aside").unlink(missing_ok=True)
        victim.unlink(missing_ok=True)
        state = unbound(victim).lstat()
        assert removal.remove(str(victim), FileId(state.st_dev, state.st_ino), FileType.SOCKET, 0) is Verdict.GONE
        assert not victim.exists()

    def test_a_directory_against_a_link(self, tmp: Path, outside: Canary) -> None:
        inner = tmp / "inner"
        inner.mkdir()
        inner.chmod(0o777)
        state = outside.socket.lstat()
        # Even what would fit the file outside does not reach it through a link.
        wanted = FileId(state.st_dev, state.st_ino)
        verdicts = set()
        with swapping(inner, outside.directory):
            deadline = time.monotonic() + self.SECONDS
            while time.monotonic() < deadline:
                verdicts.add(removal.remove(str(inner / NAME), wanted, FileType.SOCKET, 0))
                globbing.find([f"{tmp}/*/{NAME}*", f"{tmp}/**/*.lock"])
        assert outside.intact
        assert len(verdicts) > 1

    def test_a_whole_sweep(self, tmp: Path, outside: Canary) -> None:
        victim = tmp / f"{NAME}.lock"
        sweeps = 0
        with swapping(victim, outside.file):
            deadline = time.monotonic() + self.SECONDS
            while time.monotonic() < deadline:
                try:
                    lock(victim)
                except OSError:
                    pass
                swept(tmp)
                sweeps += 1
        assert sweeps
        victim.unlink(missing_ok=True)
        lock(victim)
        assert swept(tmp) == {str(victim)}


@pytest.mark.root
def test_where_there_are_no_leases_it_goes_all_the_same(tmp_path: Path) -> None:
    """In a container's own file system, an overlay; what we ourselves have open meanwhile does not count."""
    lower, upper, merged = (tmp_path / name for name in ("lower", "upper", "merged"))
    for layer in (lower, upper, merged):
        layer.mkdir()
    (lower / "below").write_bytes(b"x")
    script = (
        "mount -t tmpfs tmpfs $1 && mkdir $1/u $1/w && mount -t overlay overlay "
        f'-o lowerdir={lower},upperdir=$1/u,workdir=$1/w {merged} && shift && exec "$@"'
    )
    code = (
        "import mmap, os, sys\n"
        "from supervise.host import removal\n"
        "from supervise.model.litter import FileId, FileType\n"
        "def remove(path):\n"
        "    state = os.stat(path)\n"
        "    return removal.remove(path, FileId(state.st_dev, state.st_ino), FileType.REGULAR, state.st_uid).value\n"
        "free, held = (os.path.join(sys.argv[1], name) for name in ('free', 'held'))\n"
        "for path in (free, held):\n"
        "    open(path, 'wb').write(bytes(4096))\n"
        "with open(held, 'r+b') as file:\n"
        "    mapping = mmap.mmap(file.fileno(), 0)\n"
        "print(remove(free), remove(held), os.path.exists(free), os.path.exists(held))\n"
    )
    inside = ["sh", "-c", script, "sh", str(upper), sys.executable, "-c", code, str(merged)]
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", *inside],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["gone", "remains", "False", "True"]
