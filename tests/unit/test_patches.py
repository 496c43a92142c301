"""Unified diffs, and which files of two attempts they are made of."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Attempt
from supervise.host import distribution
from supervise.host.originals import Originals
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.report import diffs
from supervise.report.patches import Patch, between, of_contents

LONG = "".join(f"line {n}\n" for n in range(40))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        (LONG, LONG.replace("line 3\n", "").replace("line 30\n", "line thirty\nand more\n")),
        (LONG, "first\n" + LONG),
        (LONG, LONG + "last"),
        ("no end", "no end\n"),
        ("no end\n", "no end"),
        ("a\n", "b"),
        ("a\nb\nend", "a\nB\nend"),
        ("form\x0cfeed\r\nand\x85more\n", "form\x0cfeed\r\nand\x85less\n"),
        (None, "a\nb\n"),
        ("a\nb\n", None),
        ("", "a\n"),
    ],
)
def test_patch_makes_the_one_of_the_other(tmp_path: Path, before: str | None, after: str | None) -> None:
    patch = of_contents("pkg/a.py", *(None if each is None else each.encode() for each in (before, after)))
    assert patch.known
    target = tmp_path / "pkg/a.py"
    target.parent.mkdir()
    if before is not None:
        target.write_bytes(before.encode())
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True, timeout=30)
    subprocess.run(["git", "-C", tmp_path, "apply", "-"], input=patch.text.encode(), check=True, timeout=30)
    assert (target.read_bytes().decode() if target.exists() else None) == after


def test_lines_are_counted() -> None:
    patch = of_contents("a.py", b"a\nb\nc\n", b"a\nB\nB2\nc\n")
    assert (patch.added, patch.removed) == (2, 1)
    assert patch.text == "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,4 @@\n a\n-b\n+B\n+B2\n c\n"
    assert of_contents("a.py", None, b"") == Patch("", "a.py", "", 0, 0, known=True)


def test_of_binaries_there_are_sizes() -> None:
    for content in (b"\x7fELF\0", b"caf\xe9"):
        patch = of_contents("a.so", content, b"12")
        assert patch == Patch("", "a.so", f"binary: {len(content)} bytes -> 2 bytes", 0, 0, known=False)
    assert of_contents("a.so", None, b"\0").text == "binary: none -> 1 bytes"


def test_large_files_that_have_nothing_in_common_take_no_time() -> None:
    old, new = ([f"{side} {n}\n" for n in range(20_000)] for side in "ab")
    began = time.monotonic()
    text, added, removed = diffs.unified("x", ["same\n", *old], ["same\n", *new])
    assert (added, removed) == (20_000, 20_000)
    assert text.startswith("--- a/x\n+++ b/x\n@@ -1,20001 +1,20001 @@\n same\n-a 0\n")
    assert time.monotonic() - began < 20


# --- between attempts ------------------------------------------------------------------------------------------------


class Site:
    """A wheel in a fake site-packages, its originals, and attempts that found it in one state or another."""

    def __init__(self, base: Path) -> None:
        self.base, self.originals = base, Originals(str(base / "originals"))
        self.published = {"vllm/a.py": b"A = 1\n", "vllm/b.py": b"B = 1\n"}
        self.install("1.0", self.published)

    def install(self, version: str, files: dict[str, bytes]) -> None:
        site = self.base / "site"
        shutil.rmtree(site, ignore_errors=True)
        info = site / f"vllm-{version}.dist-info"
        info.mkdir(parents=True)
        rows = []
        for name, content in files.items():
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_bytes(content)
            rows.append(f"{name},{distribution_digest(content)},{len(content)}\n")
        (info / "RECORD").write_text("".join(rows))
        (installed,) = distribution.installed(str(site))
        self.originals.keep(installed, installed.record())

    def root(self, changes: dict[str, tuple[Change, bytes | None]], version: str = "1.0", **more: str) -> Root:
        files = (
            Source(path, change, _digest(data), len(data or b""), data is not None)
            for path, (change, data) in changes.items()
        )
        return Root("vllm", str(self.base / "site"), Base.WHEEL, version, tuple(files), **more)

    def attempt(self, number: int, root: Root, changes: dict[str, tuple[Change, bytes | None]]) -> Attempt:
        attempt = Attempt("r", number, str(self.base / str(number)))
        Path(attempt.path).mkdir()
        contents = {(root.directory, path): data for path, (_, data) in changes.items() if data is not None}
        sources.write(attempt, Sources(roots=(root,)), contents)
        return attempt

    def found(self, number: int, changes: dict[str, tuple[Change, bytes | None]], **more: str) -> Attempt:
        return self.attempt(number, self.root(changes, **more), changes)


def _digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def distribution_digest(content: bytes) -> str:
    from supervise.host.copying import recorded

    return recorded("sha256", hashlib.sha256(content).digest())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def edited(text: bytes) -> tuple[Change, bytes | None]:
    return Change.MODIFIED, text


def told(patches: tuple[Patch, ...] | None) -> list[tuple[str, int, int, bool]]:
    assert patches is not None
    assert {patch.root for patch in patches} <= {"vllm"}
    return [(patch.path, patch.added, patch.removed, patch.known) for patch in patches]


def test_an_edit_is_compared_with_what_was_published(site: Site) -> None:
    clean, changed = site.found(1, {}), site.found(2, {"vllm/a.py": edited(b"A = 1\nprint(A)\n")})
    expected = [("vllm/a.py", 1, 0, True)]
    assert told(between(clean, changed, site.originals)) == expected
    assert told(between(None, changed, site.originals)) == expected
    assert told(between(changed, clean, site.originals)) == [("vllm/a.py", 0, 1, True)]
    assert told(between(None, clean, site.originals)) == []


def test_the_same_edit_is_no_difference(site: Site) -> None:
    one, other = (site.found(n, {"vllm/a.py": edited(b"A = 2\n")}) for n in (1, 2))
    assert between(one, other, site.originals) == ()


def test_two_edits_are_compared_with_each_other(site: Site) -> None:
    one = site.found(1, {"vllm/a.py": edited(b"A = 2\n"), "vllm/debug.py": (Change.ADDED, b"print()\n")})
    two = site.found(2, {"vllm/a.py": edited(b"A = 3\n"), "vllm/b.py": (Change.MISSING, None)})
    patches = between(one, two, site.originals)
    assert told(patches) == [("vllm/a.py", 1, 1, True), ("vllm/b.py", 0, 1, True), ("vllm/debug.py", 0, 1, True)]
    assert patches is not None
    assert "-A = 2\n+A = 3\n" in patches[0].text


def test_another_version_has_other_originals(site: Site) -> None:
    old = site.found(1, {"vllm/a.py": edited(b"A = 2\n")})
    site.install("2.0", {"vllm/a.py": b"A = 20\n", "vllm/b.py": b"B = 20\n"})
    new = site.found(2, {}, version="2.0")
    patches = between(old, new, site.originals)
    assert told(patches) == [("vllm/a.py", 1, 1, True)]  # what nobody edited is told by the versions
    assert patches is not None
    assert "-A = 2\n+A = 20\n" in patches[0].text


def test_unknown_is_never_the_same(site: Site, tmp_path: Path) -> None:
    changed = site.found(1, {"vllm/a.py": edited(b"A = 2\n")})
    nothing = Originals(str(tmp_path / "nothing"))
    unknown = [("vllm/a.py", 0, 0, False)]
    assert told(between(None, changed, nothing)) == unknown
    assert told(between(site.found(2, {}), changed, nothing)) == unknown
    assert told(between(site.found(3, {}, unknown="no RECORD"), changed, site.originals)) == unknown
    nobody_looked = site.attempt(4, Root("other", "/x", Base.WHEEL, "1"), {})
    assert told(between(nobody_looked, changed, site.originals)) == unknown
    no_copy = site.found(5, {"vllm/a.py": edited(b"A = 3\n")})
    shutil.rmtree(Path(no_copy.path, "sources"))
    assert told(between(changed, no_copy, site.originals)) == unknown
    same = site.found(6, {"vllm/a.py": edited(b"A = 2\n")})
    shutil.rmtree(Path(same.path, "sources"))
    assert between(changed, same, site.originals) == ()  # told by its digest


def certain(patches: tuple[Patch, ...] | None) -> list[bool]:
    assert patches is not None
    return [patch.certain for patch in patches]


def test_whether_it_differs_is_told_apart_from_how(site: Site, tmp_path: Path) -> None:
    nothing = Originals(str(tmp_path / "nothing"))
    changed, clean = site.found(1, {"vllm/a.py": edited(b"A = 2\n")}), site.found(2, {})
    # What is listed is not as published.
    assert certain(between(clean, changed, nothing)) == certain(between(changed, clean, nothing)) == [True]
    assert certain(between(site.found(3, {}, unknown="no RECORD"), changed, nothing)) == [False]
    assert certain(between(site.found(4, {}, version="2.0"), changed, nothing)) == [False]
    # Links out of a tree, and what nobody may read.
    link = {"vllm/a.py": (Change.MODIFIED, None)}
    one, other = site.found(5, link), site.found(6, link)
    assert certain(between(one, other, site.originals)) == [False]
    assert certain(between(one, changed, site.originals)) == [True]  # of another length
    gone = site.found(7, {"vllm/a.py": (Change.MISSING, None)})
    assert certain(between(one, gone, site.originals)) == [True]


def test_without_a_record_there_is_no_answer(site: Site, tmp_path: Path) -> None:
    clean = site.found(1, {})
    empty = Attempt("r", 9, str(tmp_path / "9"))
    assert between(empty, clean, site.originals) is None
    assert between(clean, empty, site.originals) is None
    assert between(None, empty, site.originals) is None


def test_directories_without_a_base_are_compared_file_by_file(site: Site) -> None:
    def plain(number: int, files: dict[str, bytes], name: str = "vllm") -> Attempt:
        changes: dict[str, tuple[Change, bytes | None]] = {path: (Change.PLAIN, data) for path, data in files.items()}
        root = Root(name, "/work", Base.NONE, "", site.root(changes).files)
        return site.attempt(number, root, changes)

    one = plain(1, {"a.toml": b"x = 1\n", "b.toml": b"\n", "c.toml": b"c\n"})
    two = plain(2, {"a.toml": b"x = 2\n", "b.toml": b"\n", "d.toml": b"d\n"})
    expected = [("a.toml", 1, 1, True), ("c.toml", 0, 1, True), ("d.toml", 1, 0, True)]
    assert told(between(one, two, site.originals)) == expected
    assert between(None, two, site.originals) == ()
    assert between(plain(3, {"a.toml": b"x = 1\n"}, name="elsewhere"), two, site.originals) == ()
