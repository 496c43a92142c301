"""Bytecode that Python believes although its source changed: the trap is real, and the sweep takes exactly it away."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervise.host import procfs
from supervise.model.evict import Evict
from supervise.model.litter import FileId, FileType, FoundFile, Litter
from supervise.model.process import Process
from supervise.model.slate import Remove, SlateResult, Verdict
from supervise.model.snapshot import Gpus, GpuStatus, Snapshot
from supervise.slate import Host, SlateRequest, bytecode, sweep
from tests.support.launcher import NOBODY

OLD, NEW = "VALUE = 1111\n", "VALUE = 2222\n"
TAG = sys.implementation.cache_tag
UNCHECKED, CHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.CHECKED_HASH


def here() -> dict[int, Process]:
    """Only what this test has started, and our ancestors: the machine may be running others' servers."""
    everything = procfs.scan()
    mine = {process.pid for process in procfs.descendants(everything, os.getpid())} | procfs.lineage()
    return {pid: process for pid, process in everything.items() if pid in mine}


HOST = Host(scan=here, gpus=lambda: Gpus(GpuStatus.ABSENT))


class Tree:
    """A package with modules that were imported once."""

    def __init__(self, root: Path) -> None:
        self.root, self.package = root, root / "pkg"
        (self.package / "sub").mkdir(parents=True)
        (self.package / "__init__.py").touch()
        (self.package / "sub/__init__.py").touch()

    def module(self, name: str, text: str = OLD) -> Path:
        path = self.package / f"{name.replace('.', '/')}.py"
        path.write_text(text)
        assert self.value(name) == "1111"
        return path

    def value(self, name: str, *options: str, **env: str) -> str:
        """What an import of it gives, in a Python of its own."""
        code = f"import pkg.{name} as m; print(m.VALUE)"
        done = subprocess.run(
            [sys.executable, *options, "-c", code],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    def compiled(self, name: str, suffix: str = "") -> Path:
        source = self.package / f"{name.replace('.', '/')}.py"
        return source.parent / "__pycache__" / f"{source.stem}.{TAG}{suffix}.pyc"

    def sweep(self, **more: Any) -> SlateResult:
        more = {"python": sys.executable, "packages": (str(self.package),), "deadline_s": 20.0, **more}
        return sweep(SlateRequest("bytecode-test", None, (), **more), HOST)


def change(path: Path, text: str = NEW) -> None:
    """An edit that keeps size and time."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def tree(short_dir: Path) -> Tree:
    return Tree(short_dir)


def removed(result: SlateResult) -> list[str]:
    assert all(outcome.verdict is Verdict.GONE for outcome in result.outcomes)
    return sorted(outcome.finding.subject for outcome in result.outcomes)


def test_an_edit_without_effect_gets_its_effect(tree: Tree) -> None:
    change(tree.module("trap"))
    change(tree.module("sub.trap"))
    assert tree.value("trap") == "1111"  # what is on disk says otherwise
    result = tree.sweep()
    assert removed(result) == [str(tree.compiled("trap")), str(tree.compiled("sub.trap"))]
    assert result.clean
    assert tree.value("trap") == "2222"
    assert tree.value("sub.trap") == "2222"
    assert tree.sweep().outcomes == ()


def touched(tree: Tree) -> None:
    change(tree.module("same"), OLD)


def commented(tree: Tree) -> None:
    change(tree.module("same", "VALUE = 1111  # one\n"), "VALUE = 1111  # two\n")


def changed_time(tree: Tree) -> None:
    path = tree.module("same")
    path.write_text(NEW)
    os.utime(path, (time.time(), time.time() + 10))
    assert tree.value("same", "-B") == "2222"


def changed_size(tree: Tree) -> None:
    path = tree.module("same")
    before = path.stat()
    path.write_text("VALUE = 33333\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tree.value("same", "-B") == "33333"


def checked_hash(tree: Tree) -> None:
    path = tree.module("same")
    py_compile.compile(str(path), invalidation_mode=CHECKED)
    change(path)
    assert tree.value("same", "-B") == "2222"


def unchecked_hash_of_the_same(tree: Tree) -> None:
    path = tree.module("same")
    py_compile.compile(str(path), invalidation_mode=UNCHECKED)
    change(path, OLD)


def other_version(tree: Tree) -> None:
    path = tree.module("same")
    tree.compiled("same").rename(path.parent / "__pycache__/same.cpython-399.pyc")
    change(path)
    assert tree.value("same", "-B") == "2222"


def other_magic(tree: Tree) -> None:
    path = tree.module("same")
    compiled = tree.compiled("same")
    compiled.write_bytes(b"\0\0\r\n" + compiled.read_bytes()[4:])
    change(path)
    assert tree.value("same", "-B") == "2222"


def orphan(tree: Tree) -> None:
    tree.module("same").unlink()
    assert "No module named" in tree.value("same", "-B")


def recompiled(tree: Tree) -> None:
    change(tree.module("same"))
    py_compile.compile(str(tree.package / "same.py"))


def linked(tree: Tree) -> None:
    path = tree.module("same")
    moved = tree.root / "moved.pyc"
    tree.compiled("same").rename(moved)
    tree.compiled("same").symlink_to(moved)
    change(path)


@pytest.mark.parametrize(
    "decoy",
    [
        touched,
        commented,
        changed_time,
        changed_size,
        checked_hash,
        unchecked_hash_of_the_same,
        other_version,
        other_magic,
        orphan,
        recompiled,
        linked,
    ],
)
def test_what_only_looks_like_it_stays(tree: Tree, decoy: Callable[[Tree], None]) -> None:
    decoy(tree)
    change(tree.module("trap"))
    before = {path: path.lstat() for path in tree.root.rglob("*.pyc") if path != tree.compiled("trap")}
    assert before
    result = tree.sweep()
    assert removed(result) == [str(tree.compiled("trap"))]
    assert result.remarks == ()
    assert {path: path.lstat().st_ctime_ns for path in tree.root.rglob("*.pyc")} == {
        path: state.st_ctime_ns for path, state in before.items()
    }


def test_an_unchecked_hash_hides_any_edit(tree: Tree) -> None:
    path = tree.module("trap")
    py_compile.compile(str(path), invalidation_mode=UNCHECKED)
    path.write_text("VALUE = 'quite another'\n")
    assert tree.value("trap") == "1111"
    assert removed(tree.sweep()) == [str(tree.compiled("trap"))]
    assert tree.value("trap") == "quite another"


def test_each_level_of_optimisation_has_its_own(tree: Tree) -> None:
    path = tree.module("trap")
    assert tree.value("trap", "-O") == tree.value("trap", "-OO") == "1111"
    change(path)
    assert tree.value("trap", "-O") == "1111"
    assert removed(tree.sweep()) == sorted(str(tree.compiled("trap", level)) for level in ("", ".opt-1", ".opt-2"))
    assert tree.value("trap", "-O") == tree.value("trap", "-OO") == "2222"


def test_assertions_that_optimisation_leaves_out_are_no_difference(tree: Tree) -> None:
    path = tree.module("same", "assert 1\nVALUE = 1111\n")
    assert tree.value("same", "-O") == "1111"
    change(path, "assert 1\nVALUE = 1111\n")
    assert tree.sweep().outcomes == ()


@pytest.mark.parametrize("text", ["VALUE = 222(\n", "VALUE = '\0' \n"])
def test_a_source_that_does_not_compile_is_another_one(tree: Tree, text: str) -> None:
    change(tree.module("trap"), text)
    assert tree.value("trap") == "1111"
    assert removed(tree.sweep()) == [str(tree.compiled("trap"))]
    assert "rror" in tree.value("trap")


def test_damaged_bytecode_is_another_one(tree: Tree) -> None:
    path = tree.module("trap")
    compiled = tree.compiled("trap")
    compiled.write_bytes(compiled.read_bytes()[:20])
    change(path)
    assert "Error" in tree.value("trap")
    assert removed(tree.sweep()) == [str(compiled)]
    assert tree.value("trap") == "2222"


def test_bytecode_may_be_kept_elsewhere(tree: Tree) -> None:
    elsewhere = {"PYTHONPYCACHEPREFIX": str(tree.root / "cache")}
    path = tree.package / "trap.py"
    path.write_text(OLD)
    assert tree.value("trap", **elsewhere) == "1111"
    change(path)
    assert tree.value("trap", **elsewhere) == "1111"
    assert len(removed(tree.sweep(env=elsewhere))) == 1
    assert tree.value("trap", **elsewhere) == "2222"


def test_a_package_behind_a_link_is_cleaned(tree: Tree) -> None:
    change(tree.module("trap"))
    link = tree.root / "link"
    link.symlink_to(tree.package)
    assert removed(tree.sweep(packages=(str(link),))) == [str(tree.compiled("trap"))]


def test_the_work_is_shared_and_every_one_is_found(tree: Tree) -> None:
    text = "".join(f"import pkg.m{n}\n" for n in range(130)) + OLD
    for number in range(130):
        (tree.package / f"m{number}.py").write_text(OLD)
    tree.module("all", text)
    for number in range(130):
        change(tree.package / f"m{number}.py", NEW if number % 2 else OLD)
    wanted = sorted(str(tree.compiled(f"m{number}")) for number in range(1, 130, 2))
    assert removed(tree.sweep()) == wanted


def test_a_look_leaves_all_as_it_is(tree: Tree) -> None:
    change(tree.module("trap"))
    result = tree.sweep(dry_run=True)
    assert [outcome.did for outcome in result.outcomes] == ["would remove"]
    assert tree.compiled("trap").exists()


@pytest.mark.parametrize("known", [True, False])
def test_a_launch_waits_for_it_unless_removal_may_be_impossible(*, known: bool) -> None:
    found = FoundFile("/p/a.pyc", FileId(1, 2), FileType.REGULAR, 100, 7, 1.0, users_known=known)
    snapshot = Snapshot(procfs.host_id(), 7, frozenset(), {}, litter=Litter(bytecode=(found,)))
    (finding,) = bytecode.judge(snapshot, SlateRequest("bytecode-test", None, ()))
    assert finding.action == Remove("/p/a.pyc", FileId(1, 2), FileType.REGULAR, 7)
    assert finding.blocking is known


def test_what_the_policy_does_not_cover_is_a_remark(tree: Tree) -> None:
    change(tree.module("trap"))
    result = tree.sweep(evict=Evict.OWN)
    assert result.clean
    (remark,) = result.remarks
    assert remark.remedy == f"--evict stale, or rm -- {tree.compiled('trap')}"
    assert tree.compiled("trap").exists()


def test_a_second_name_is_a_remark(tree: Tree) -> None:
    change(tree.module("trap"))
    os.link(tree.compiled("trap"), tree.root / "other-name")
    result = tree.sweep()
    assert result.clean
    assert [remark.subject for remark in result.remarks] == [str(tree.compiled("trap"))]


@pytest.mark.root
def test_what_is_somebody_elses_is_a_remark(tree: Tree) -> None:
    change(tree.module("trap"))
    os.chown(tree.compiled("trap"), NOBODY, NOBODY)
    result = tree.sweep()
    assert result.clean
    (remark,) = result.remarks
    assert remark.evidence[1:] == (f"uid {NOBODY}'s",)
    assert tree.compiled("trap").exists()


def hanging(directory: Path) -> str:
    path = directory / "python"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    return str(path)


def crashing(directory: Path) -> str:
    path = directory / "python"
    path.write_text("#!/bin/sh\nkill -SEGV $$\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "python", [lambda _: "/nowhere/python", lambda _: None, hanging, crashing, lambda _: shutil.which("true")]
)
def test_what_cannot_be_proven_is_said_and_stays(
    tree: Tree, python: Callable[[Path], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytecode, "_DEADLINE_S", 0.5)
    change(tree.module("trap"))
    began = time.monotonic()
    result = tree.sweep(python=python(tree.root))
    assert time.monotonic() - began < 10
    assert result.outcomes == ()
    (remark,) = result.remarks
    assert remark.subject == "1 place with compiled Python not compared with the source"
    assert str(tree.compiled("trap")) in remark.evidence
    assert tree.compiled("trap").exists()


def test_a_directory_that_is_not_read_in_time_is_said(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode, "_DEADLINE_S", 0.0)
    change(tree.module("trap"))
    (remark,) = tree.sweep().remarks
    assert remark.evidence == ("the directory could not be read in time", str(tree.package))


def test_nothing_is_compiled_twice(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    touched(tree)
    assert tree.sweep().outcomes == ()
    asked: list[object] = []
    monkeypatch.setattr("supervise.host.compiled.prove", lambda *words: asked.append(words) or {})
    assert tree.sweep().remarks == ()
    assert asked == []
    change(tree.package / "same.py")
    assert len(tree.sweep().remarks) == 1
    assert len(tree.sweep().remarks) == 1  # what took too long is not tried again at once
    assert len(asked) == 1
