"""Dumps, caches and sessions as real files among real processes: what was asked for goes, everything else stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from supervise.host import occupants
from supervise.model.rules import LeftoverRules
from supervise.model.slate import Finding, Ownership, SlateResult, Verdict
from supervise.slate import artefacts, caches
from supervise.slate.artefacts import check
from supervise.slate.request import Host, SlateRequest
from supervise.slate.survey import survey
from supervise.slate.sweep import sweep

_MANY = 1000
_OPEN = "f = open(sys.argv[1], 'rb')"
# The mapping alone: the module keeps a descriptor of its own.
_MAP = """import mmap, os
with open(sys.argv[1], 'rb') as f: m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
names = [n for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + n)]
held = [n for n in names if os.path.samefile('/proc/self/fd/' + n, sys.argv[1])]
assert len(held) == 1
os.close(int(held[0]))"""
_STAND = "import os; os.chdir(sys.argv[1])"
_STAY = "print('up', flush=True)\nsys.stdin.read()\n"


class Users:
    """Processes that have something to do with a path; ended at tear-down."""

    def __init__(self) -> None:
        self.stack = ExitStack()

    def start(self, code: str, path: Path) -> int:
        return self.run(sys.executable, "-c", f"import sys\n{code}\n{_STAY}", str(path))

    def run(self, *argv: str) -> int:
        popen = self.stack.enter_context(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        self.stack.callback(popen.kill)
        assert popen.stdout is not None
        assert popen.stdout.readline() == b"up\n"
        return popen.pid


@pytest.fixture
def users() -> Iterator[Users]:
    made = Users()
    with made.stack:
        yield made


@pytest.fixture
def home(short_dir: Path) -> Path:
    path = short_dir / "home"
    path.mkdir()
    return path


def request(home: Path, *globs: str, **more: object) -> SlateRequest:
    env = {"HOME": str(home), "TMPDIR": str(home.parent), "USER": "ada"}
    return SlateRequest("leftovers", None, (), env=env, artefacts=globs, **more)  # type: ignore[arg-type]


def dump(path: Path, size: int = 8192) -> Path:
    path.write_bytes(b"x" * size)
    return path


def verified(asked: SlateRequest) -> tuple[str, ...]:
    return check(survey(asked, Host()), asked)


def remarks(result: SlateResult) -> dict[str, Finding]:
    assert result.clean, result
    return {finding.subject: finding for finding in result.remarks}


def test_closed_dumps_go_and_every_decoy_stays(short_dir: Path, home: Path, users: Users) -> None:
    closed = [dump(short_dir / name) for name in ("a_debug_1.pt", "b_debug_\n2.pt", "c_debug_\x1b[31m.pt")]
    opened, mapped = dump(short_dir / "open_debug_.pt"), dump(short_dir / "map_debug_.pt")
    reader, mapper = users.start(_OPEN, opened), users.start(_MAP, mapped)
    linked, other = dump(short_dir / "linked_debug_.pt"), short_dir / "model.bin"
    os.link(linked, other)
    link, target = short_dir / "link_debug_.pt", dump(home / "target.pt")
    link.symlink_to(target)
    fifo, directory = short_dir / "fifo_debug_.pt", short_dir / "dir_debug_.pt"
    os.mkfifo(fifo)
    directory.mkdir()
    decoys = [dump(short_dir / name) for name in ("a_debug_1.pth", "adebug_1.pt", ".h_debug_1.pt")]
    glob = f"{short_dir}/*_debug_*.pt"
    asked = request(home, glob)

    result = sweep(asked)

    assert [path for path in closed if path.exists()] == []
    assert {o.finding.subject for o in result.outcomes} == {str(path) for path in closed}
    assert {o.verdict for o in result.outcomes} == {Verdict.GONE}
    told = remarks(result)
    assert told[str(opened)].evidence[-1] == f"open in pid {reader}"
    assert told[str(mapped)].evidence[-1] == f"open in pid {mapper}"
    assert told[str(linked)].evidence[-1] == "it has 2 names"
    assert told.keys() == {str(path) for path in (opened, mapped, linked, link, fifo, directory)}
    assert all(path.lstat() for path in (opened, mapped, linked, other, link, target, fifo, directory, *decoys))
    assert verified(asked) == (f"2 open files match {glob}", f"1 file matches {glob}")


def test_one_goes_once_it_is_closed(short_dir: Path, home: Path, users: Users) -> None:
    path = dump(short_dir / "x_debug_1.pt")
    asked = request(home, str(path))
    users.start(_MAP, path)
    assert remarks(sweep(asked)).keys() == {str(path)}
    assert path.exists()
    users.stack.close()
    assert remarks(sweep(asked)) == {}
    assert not path.exists()
    assert verified(asked) == (f"no file matches {path}",)


@pytest.mark.root
def test_somebody_else_s_dump_is_told_and_left(short_dir: Path, home: Path) -> None:
    theirs, ours = dump(short_dir / "a_debug_1.pt"), dump(short_dir / "b_debug_1.pt")
    os.chown(theirs, 61234, 61234)
    told = remarks(sweep(request(home, f"{short_dir}/*_debug_*.pt")))
    assert told[str(theirs)].ownership is Ownership.FOREIGN
    assert theirs.exists()
    assert not ours.exists()


def test_a_thousand_dumps_go(short_dir: Path, home: Path, users: Users) -> None:
    below = short_dir / "dumper" / "deep"
    below.mkdir(parents=True)
    paths = [dump(below / f"{number}.pt", 1) for number in range(_MANY)]
    users.start(_OPEN, paths[500])
    glob = f"{short_dir}/dumper/**/*.pt"
    asked = request(home, glob)
    result = sweep(asked)
    assert [path for path in paths if path.exists()] == [paths[500]]
    assert len(result.outcomes) == _MANY - 1
    assert verified(asked) == (f"1 open file matches {glob}",)


def test_one_that_cannot_be_removed_is_not_said_to_be(
    short_dir: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = dump(short_dir / "a_debug_1.pt"), request(home, f"{short_dir}/*_debug_*.pt")
    with monkeypatch.context() as patch:
        patch.setattr("supervise.host.lease._filesystem", lambda _: b"nfs4")
        patch.setattr("supervise.host.removal._used", lambda *_: None)
        for _ in range(2):
            result = sweep(asked)
            assert [(o.did, o.verdict) for o in result.outcomes] == [("not removed", Verdict.REMAINS)]
            assert (result.clean, result.remarks, result.obstacles) == (True, (), ())
    assert path.exists()
    assert [(o.did, o.verdict) for o in sweep(asked).outcomes] == [("removed", Verdict.GONE)]


def test_dry_run_touches_nothing(short_dir: Path, home: Path) -> None:
    path = dump(short_dir / "a_debug_1.pt")
    result = sweep(request(home, f"{short_dir}/*_debug_*.pt", dry_run=True))
    assert [outcome.did for outcome in result.outcomes] == ["would remove"]
    assert path.exists()


def test_a_refused_glob_touches_nothing(short_dir: Path, home: Path) -> None:
    kept = short_dir / "hicache"
    kept.mkdir()
    path = dump(kept / "kv.pt")
    result = sweep(request(home, f"{kept}/*.pt", f"{short_dir}/*", f"{home}/**/*.pt"))
    assert len(result.obstacles) == 3
    assert not result.clean
    assert path.exists()


def test_a_search_without_an_end_refuses(short_dir: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = dump(short_dir / "a_debug_1.pt")
    asked = request(home, f"{short_dir}/*_debug_*.pt", rules=LeftoverRules(artefacts=("{tmp}/a_*",)))
    monkeypatch.setattr(artefacts, "_ASKED_WITHIN_S", -1.0)
    result = sweep(asked)
    assert not result.clean
    assert [finding.evidence for finding in result.obstacles] == [("not everything could be searched",)]
    assert path.exists()


def test_what_is_kept_stays_under_a_glob_that_reaches_it(short_dir: Path, home: Path) -> None:
    (short_dir / "hicache").mkdir()
    (short_dir / "x").mkdir()
    kept, weights = dump(short_dir / "hicache" / "x.pt"), dump(short_dir / "vllm_weight_cache_0_x.pt")
    path = dump(short_dir / "x" / "x.pt")
    asked = request(home, f"{short_dir}/**/*x.pt")
    sweep(replace(asked, env={**asked.env, "HOME": "/home/elsewhere"}))
    assert kept.exists()
    assert weights.exists()
    assert not path.exists()


def test_a_link_of_the_directory_does_not_lead_to_what_is_kept(short_dir: Path, home: Path) -> None:
    (short_dir / "hicache").mkdir()
    kept = dump(short_dir / "hicache" / "kv.pt")
    (short_dir / "dumps").symlink_to(short_dir / "hicache")
    sweep(request(home, f"{short_dir}/dumps/*.pt"))
    assert kept.exists()


def test_what_engines_dump_is_listed_and_stays(short_dir: Path, home: Path) -> None:
    paths = [dump(short_dir / f"stack_{number}") for number in range(3)]
    rules = LeftoverRules(artefacts=("{tmp}/stack_*",))
    told = remarks(sweep(request(home, rules=rules)))
    assert told[f"{short_dir}/stack_*"].evidence[:2] == ("3 files dumped earlier", "24 KiB")
    assert all(path.exists() for path in paths)
    sweep(request(home, f"{short_dir}/stack_*", rules=rules))
    assert not any(path.exists() for path in paths)


CACHES = LeftoverRules(caches={"compile": ("~/cache/compile", "~/cache/none")})


@pytest.fixture
def cache(home: Path) -> Path:
    path = home / "cache" / "compile"
    path.mkdir(parents=True)
    dump(path / "artefact")
    return path


def aside(cache: Path) -> list[Path]:
    return sorted(cache.parent.glob("compile.aside-*"))


def test_a_cache_is_moved_aside_whole(home: Path, cache: Path) -> None:
    result = sweep(request(home, rules=CACHES, purge=("compile",)))
    assert result.clean
    assert [outcome.verdict for outcome in result.outcomes] == [Verdict.GONE]
    assert not cache.exists()
    (moved,) = aside(cache)
    assert (moved / "artefact").read_bytes() == b"x" * 8192
    assert moved.name in result.outcomes[0].finding.evidence[-1]
    assert sweep(request(home, rules=CACHES, purge=("compile",))).outcomes == ()


NAMED = LeftoverRules(caches={"compile": ("${CACHE_DIR:-~/cache/compile}",)}, keep=("{tmp}/kept_cache*",))


def purged(home: Path, place: Path) -> SlateResult:
    asked = request(home, rules=NAMED, purge=("compile",))
    return sweep(replace(asked, env={**asked.env, "CACHE_DIR": str(place)}))


@pytest.mark.parametrize("name", ["triton-cache", "TorchInductor_ada", "my.triton", "compiled", "Cache"])
def test_a_cache_that_a_variable_names_goes_if_it_is_called_like_one(home: Path, name: str) -> None:
    (home / "x" / name).mkdir(parents=True)
    assert purged(home, home / "x" / name).clean
    assert not (home / "x" / name).exists()


@pytest.mark.parametrize("name", ["src", "project", "data", "hub"])
def test_what_is_not_called_like_one_is_only_told(home: Path, name: str) -> None:
    path = home / "x" / name
    path.mkdir(parents=True)
    (obstacle,) = purged(home, path).obstacles
    assert obstacle.evidence[-1] == "CACHE_DIR names it, and by its name it is no cache"
    assert f"mv -- {path} {path}.aside-" in obstacle.remedy
    assert [each.name for each in path.parent.iterdir()] == [name]


def test_the_place_that_a_library_has_chosen_needs_no_such_name(home: Path) -> None:
    rules = LeftoverRules(caches={"compile": ("${CACHE_DIR:-~/chosen}",)})
    (home / "chosen").mkdir()
    assert sweep(request(home, rules=rules, purge=("compile",))).clean
    assert not (home / "chosen").exists()


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("cache", "it is the home directory"),
        (".", "the home directory is in it"),
        ("cache/.cache", "it is the directory of all caches"),
        ("kept_cache_0/x_cache", "it is kept for ever"),
    ],
)
def test_what_holds_more_than_a_cache_is_never_moved(short_dir: Path, place: str, why: str) -> None:
    home = short_dir / "cache"
    path = short_dir / place
    path.mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    (obstacle,) = purged(home, path).obstacles
    assert (obstacle.action, obstacle.evidence[-1]) == (None, why)
    assert obstacle.remedy == "correct CACHE_DIR, or start without --purge-cache compile"
    assert path.exists()


@pytest.mark.parametrize(("below", "why"), [("", "it is the current"), ("a/b", "the current directory is in it")])
def test_where_we_are_is_never_moved(home: Path, below: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = home / "x" / "cache"
    (cache / below).mkdir(parents=True)
    monkeypatch.chdir(cache / below)
    assert why in purged(home, cache).obstacles[0].evidence[-1]
    monkeypatch.chdir("/")
    assert purged(home, cache).clean


def test_a_mount_point_is_never_moved(home: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.ismount", lambda path: path == str(cache))
    assert purged(home, cache).obstacles[0].evidence[-1] == "it is a mount point"
    monkeypatch.undo()
    assert purged(home, cache).clean


def test_the_top_of_the_file_system_is_never_moved(home: Path) -> None:
    """Nothing is there to be moved if this fails: only what is found is looked at."""
    reading = caches._read("/usr/lib", "compile", "now")
    assert reading is not None
    asked = request(home, purge=("compile",))
    asked = replace(asked, env={**asked.env, "CACHE_DIR": "/usr/lib"})
    assert "too near to the top" in caches._checked(reading, "${CACHE_DIR:-~/x}", asked).problem


def test_two_in_a_second_get_two_names(home: Path, cache: Path) -> None:
    for _ in range(3):
        cache.mkdir(exist_ok=True)
        assert sweep(request(home, rules=CACHES, purge=("compile",))).clean
    assert len(aside(cache)) == 3


def test_a_cache_is_not_looked_at_without_being_asked(home: Path, cache: Path) -> None:
    assert sweep(request(home, rules=CACHES)).outcomes == ()
    assert cache.exists()


@pytest.mark.parametrize(("code", "name"), [(_OPEN, "artefact"), (_MAP, "artefact"), (_STAND, ""), (_STAND, "below")])
def test_a_cache_that_somebody_is_in_stays(home: Path, cache: Path, users: Users, code: str, name: str) -> None:
    (cache / "below").mkdir()
    pid = users.start(code, cache / name)
    result = sweep(request(home, rules=CACHES, purge=("compile",)))
    (obstacle,) = result.obstacles
    assert f"in use by pid {pid} " in obstacle.evidence[-1]
    assert cache.exists()
    assert aside(cache) == []
    users.stack.close()
    assert sweep(request(home, rules=CACHES, purge=("compile",))).clean
    assert len(aside(cache)) == 1


def test_a_neighbour_with_a_longer_name_is_not_in_it(home: Path, cache: Path, users: Users) -> None:
    (cache.parent / "compiler").mkdir()
    users.start(_OPEN, dump(cache.parent / "compiler" / "x"))
    users.start(_STAND, cache.parent)
    assert sweep(request(home, rules=CACHES, purge=("compile",))).clean
    assert not cache.exists()


def test_a_cache_behind_a_link_of_ours_is_moved_and_a_link_is_not(home: Path, cache: Path) -> None:
    cache.parent.rename(home / "disk")
    (home / "cache").symlink_to(home / "disk")
    assert sweep(request(home, rules=CACHES, purge=("compile",))).clean
    assert not (home / "disk" / "compile").exists()
    (home / "disk" / "compile").symlink_to(home)
    result = sweep(request(home, rules=CACHES, purge=("compile",)))
    assert [finding.evidence[-1] for finding in result.obstacles] == ["a link"]
    assert (home / "disk" / "compile").is_symlink()


@pytest.mark.root
def test_somebody_else_s_cache_stays(home: Path, cache: Path) -> None:
    os.chown(cache, 61234, 61234)
    result = sweep(request(home, rules=CACHES, purge=("compile",)))
    assert [finding.ownership for finding in result.obstacles] == [Ownership.FOREIGN]
    assert cache.exists()


def test_occupants_of_a_directory_with_a_strange_name(short_dir: Path, users: Users) -> None:
    strange, other = short_dir / "a\nb \\012 c", short_dir / "a"
    strange.mkdir()
    other.mkdir()
    pid = users.start(_MAP, dump(strange / "x"))
    inside, known = occupants.below([str(strange), str(other)])
    assert inside == {str(strange): (pid,)}
    assert known
    assert occupants.below([]) == ({}, True)


@pytest.mark.root
def test_a_container_that_has_the_cache_elsewhere_is_in_it(home: Path, cache: Path, users: Users) -> None:
    elsewhere, other = home / "else where", home / "other"
    elsewhere.mkdir()
    other.mkdir()
    dump(other / "artefact")
    inner = f"import sys\n{_OPEN}\n{_STAY}"
    shell = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2/artefact"'
    pids = {}
    for source in (cache, other):
        words = (str(source), str(elsewhere), sys.executable, inner)
        pids[source] = users.run("unshare", "-m", "--propagation", "private", "sh", "-c", shell, "sh", *words)
    assert os.listdir(elsewhere) == []
    inside, known = occupants.below([str(cache), str(other), str(elsewhere)])
    assert inside == {str(source): (pid,) for source, pid in pids.items()}
    assert known
    assert not sweep(request(home, rules=CACHES, purge=("compile",))).clean
    assert cache.exists()


def test_sessions_are_told_with_who_is_in_them(short_dir: Path, home: Path, users: Users) -> None:
    live, idle = short_dir / "ray" / "session_1", short_dir / "ray" / "session_2"
    (live / "logs").mkdir(parents=True)
    idle.mkdir()
    (short_dir / "ray" / "session_latest").symlink_to(live)
    pid = users.start(_OPEN, dump(live / "logs" / "raylet.out"))
    told = remarks(sweep(request(home, rules=LeftoverRules(sessions=("{tmp}/ray/session_*",)))))
    assert told.keys() == {str(live), str(idle)}
    assert told[str(live)].evidence == (f"in use by pid {pid}",)
    assert told[str(idle)].remedy == f"rm -rf -- {idle}"
    assert live.exists()
    assert idle.exists()
