"""The code of an attempt against the code on disk: what differs, what is put back, what is nobody's to touch."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Store
from supervise.host.saving import Saving
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.report import patches
from supervise.verbs import then_and_now
from supervise.verbs.then_and_now import Comparison

PUBLISHED = b"answer = 42\n"
THEN, NOW = b"answer = 42\nprint(1)\n", b"answer = 43\n"


class Known:
    """Originals that know every file of a wheel."""

    def original(self, root: Root, path: str) -> bytes | None:
        return None if path == "eng/secret.bin" else PUBLISHED


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(then_and_now, "originals", lambda _store: Known())


class Scene:
    """A site and a run with one attempt, of which the code of then is written down."""

    def __init__(self, base: Path) -> None:
        self.site = base / "site"
        (self.site / "eng").mkdir(parents=True)
        self.store = Store(str(base / "state"))
        self.saving = Saving(str(base / "saved"))
        self.run = self.store.run("X")
        self.run.create()
        self.install("eng", "eng/__init__.py", "eng/a.py", "eng/b.py")

    def attempt(self, root: Root, contents: dict[str, bytes]) -> Attempt:
        attempt = self.run.open_attempt()
        sources.write(attempt, self.code(root), {(root.directory, path): data for path, data in contents.items()})
        return attempt

    def root(self, *files: Source, base: Base = Base.WHEEL, version: str = "1.0", unknown: str = "") -> Root:
        return Root("eng", str(self.site), base, version, files, unknown)

    def code(self, root: Root) -> Sources:
        return Sources("/bin/python", "3.12", {"eng": "1.0"}, (root,))

    def compare(self, attempt: Attempt, root: Root, contents: dict[str, bytes] | None = None) -> Comparison:
        held = {(root.directory, path): data for path, data in (contents or {}).items()}
        return then_and_now.compare(attempt, self.code(root), held, self.store)

    def put_back(self, found: Comparison) -> list[str]:
        return list(then_and_now.put_back(found, self.saving, self.store, "").left)

    def install(self, name: str, *paths: str, version: str = "1.0") -> None:
        """Metadata of a distribution that lists these files."""
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        rows = [f"{path},sha256=x,1" for path in (*paths, f"{info.name}/METADATA")]
        (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,", ""]))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def source(path: str, change: Change, data: bytes | None, *, kept: bool = True) -> Source:
    digest = None if data is None else hashlib.sha256(data).hexdigest()
    return Source(path, change, digest, len(data or b""), kept and data is not None)


MODIFIED = source("eng/a.py", Change.MODIFIED, THEN)


def test_the_same_code_is_the_same(scene: Scene) -> None:
    missing = source("eng/b.py", Change.MISSING, None)
    attempt = scene.attempt(scene.root(MODIFIED, missing), {"eng/a.py": THEN})
    assert scene.compare(attempt, scene.root(MODIFIED, missing), {"eng/a.py": THEN}).same


def test_an_edit_that_was_undone_since_is_told_and_put_back(scene: Scene) -> None:
    path = scene.site / "eng/a.py"
    path.write_bytes(PUBLISHED)
    attempt = scene.attempt(scene.root(MODIFIED), {"eng/a.py": THEN})
    found = scene.compare(attempt, scene.root())
    (line,) = then_and_now.told(found, 1.0)
    assert line.startswith("eng/a.py  +0 −1 since then, changed ")
    assert line.endswith("after that attempt began")
    (line,) = then_and_now.told(found, 1e11)
    assert line.endswith("before that attempt began")
    assert scene.put_back(found) == []
    assert path.read_bytes() == THEN
    assert Path(scene.saving.place(str(path))).read_bytes() == PUBLISHED


def test_a_later_edit_is_undone(scene: Scene) -> None:
    path = scene.site / "eng/a.py"
    path.write_bytes(NOW)
    edited = source("eng/a.py", Change.MODIFIED, NOW)
    attempt = scene.attempt(scene.root(), {})
    found = scene.compare(attempt, scene.root(edited), {"eng/a.py": NOW})
    assert [(each.patch.added, each.patch.removed) for each in found.files] == [(1, 1)]
    assert scene.put_back(found) == []
    assert path.read_bytes() == PUBLISHED


def test_a_file_that_was_missing_then_goes_if_it_can_be_had_again(scene: Scene) -> None:
    path = scene.site / "eng/b.py"
    path.write_bytes(PUBLISHED)
    attempt = scene.attempt(scene.root(source("eng/b.py", Change.MISSING, None)), {})
    assert scene.put_back(scene.compare(attempt, scene.root())) == []
    assert not path.exists()


def test_a_file_of_somebody_elses_stays_until_an_attempt_has_recorded_it(scene: Scene) -> None:
    path = scene.site / "eng/new.py"
    path.write_bytes(NOW)
    added = source("eng/new.py", Change.ADDED, NOW)
    attempt = scene.attempt(scene.root(), {})
    found = scene.compare(attempt, scene.root(added), {"eng/new.py": NOW})
    assert scene.put_back(found) == [f"eng/new.py is left as it is: no attempt has recorded it: rm -- {path}"]
    assert path.exists()
    scene.attempt(scene.root(added), {"eng/new.py": NOW})
    assert scene.put_back(found) == []
    assert not path.exists()
    # Then it was there, now it is not.
    back = scene.compare(scene.run.attempt(2), scene.root())
    assert [line.split(", ")[-1] for line in then_and_now.told(back, 1.0)] == ["it is not here now"]
    assert scene.put_back(back) == []
    assert path.read_bytes() == NOW


def test_a_working_tree_is_not_touched(scene: Scene) -> None:
    path = scene.site / "eng/a.py"
    path.write_bytes(NOW)
    tree = scene.root(MODIFIED, base=Base.GIT, version="1a2b3c4")
    attempt = scene.attempt(tree, {"eng/a.py": THEN})
    edited = replace(tree, files=(source("eng/a.py", Change.MODIFIED, NOW),))
    (line,) = scene.put_back(scene.compare(attempt, edited, {"eng/a.py": NOW}))
    assert f"a working tree is not touched: git -C {scene.site} diff, git -C {scene.site} stash" in line
    assert path.read_bytes() == NOW


def test_a_copy_that_is_damaged_is_not_put_anywhere(scene: Scene) -> None:
    path = scene.site / "eng/a.py"
    path.write_bytes(PUBLISHED)
    attempt = scene.attempt(scene.root(MODIFIED), {"eng/a.py": THEN})
    Path(attempt.path, "sources", MODIFIED.digest or "").write_bytes(NOW)
    found = scene.compare(attempt, scene.root())
    assert scene.put_back(found) == ["eng/a.py is left as it is: what it was is not known"]
    assert path.read_bytes() == PUBLISHED


def test_unknown_is_never_the_same(scene: Scene) -> None:
    unread = source("eng/a.py", Change.MODIFIED, None)
    attempt = scene.attempt(scene.root(unread), {})
    assert scene.compare(attempt, scene.root(unread)).unknown == ("eng/a.py of eng: it could not be read",)
    unknown = scene.root(unknown="its metadata has no RECORD")
    attempt = scene.attempt(unknown, {})
    assert scene.compare(attempt, unknown).unknown == ("code of eng (its metadata has no RECORD)",)
    Path(attempt.path, "sources.json").unlink()
    assert scene.compare(attempt, scene.root()).unknown == ("its code: sources.json is missing",)


def test_another_version_is_told_and_its_files_are_not_compared(scene: Scene) -> None:
    attempt = scene.attempt(scene.root(MODIFIED), {"eng/a.py": THEN})
    now = replace(scene.code(scene.root(version="2.0")), versions={"eng": "2.0"})
    found = then_and_now.compare(attempt, now, {}, scene.store)
    assert (found.files, found.others, found.same) == ((), ("eng 1.0 -> 2.0",), False)


def test_a_program_without_python_has_nothing_to_be_compared(scene: Scene) -> None:
    attempt = scene.run.open_attempt()
    sources.write(attempt, Sources(), {})
    assert then_and_now.compare(attempt, Sources(), {}, scene.store).same


def test_another_interpreter_is_told(scene: Scene) -> None:
    attempt = scene.attempt(scene.root(), {})
    now = replace(scene.code(scene.root()), python="/other/bin/python")
    found = then_and_now.compare(attempt, now, {}, scene.store)
    assert (found.others, found.same) == (("interpreter: /bin/python -> /other/bin/python",), False)


@pytest.mark.parametrize("change", [Change.ADDED, Change.MODIFIED])
def test_a_record_that_names_a_file_elsewhere_is_not_believed(
    scene: Scene, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Known, "original", lambda *_: None)
    victim = scene.site.parent / "victim"
    victim.write_bytes(PUBLISHED)
    attempt = scene.attempt(scene.root(source("../victim", change, THEN)), {"../victim": THEN})
    (line,) = scene.put_back(scene.compare(attempt, scene.root()))
    assert line.startswith("../victim is left as it is: ")
    assert victim.read_bytes() == PUBLISHED


def test_a_forged_record_writes_nothing_of_another_distribution(scene: Scene) -> None:
    scene.install("other", "eng/plugin/__init__.py", "theirs/__init__.py")
    for path in ("eng/plugin/__init__.py", "theirs/__init__.py", "eng/plugin/new.py", "eng-1.0.dist-info/x.py"):
        attempt = scene.attempt(scene.root(source(path, Change.ADDED, THEN)), {path: THEN})
        found = scene.compare(attempt, scene.root())
        assert [why for _, why in then_and_now.refused(found, scene.store)] != [""], path
        (line,) = scene.put_back(found)
        assert line.startswith(f"{path} is left as it is: it ")
        assert not (scene.site / path).exists()
    # The twin: a file of ours that nobody else has anything to do with.
    attempt = scene.attempt(scene.root(source("eng/new.py", Change.ADDED, THEN)), {"eng/new.py": THEN})
    assert scene.put_back(scene.compare(attempt, scene.root())) == []
    assert (scene.site / "eng/new.py").read_bytes() == THEN


@pytest.mark.parametrize("path", ["/abs/victim", "../../../../victim", "../other/lib/victim"])
def test_a_forged_record_reaches_nothing_outside(scene: Scene, path: str) -> None:
    attempt = scene.attempt(scene.root(), {})
    found = scene.compare(attempt, scene.root())
    forged = then_and_now.FileDiffers(
        scene.root(),
        path,
        then_and_now.Side(THEN),
        then_and_now.Side(None),
        None,
        patches.of_contents(path, None, THEN),
    )
    (line,) = scene.put_back(replace(found, files=(forged,)))
    assert line == f"{path} is left as it is: it is outside of the package"


def test_of_a_watched_file_nothing_else_in_its_directory_is_touched(scene: Scene) -> None:
    file, victim = scene.site / "serve.py", scene.site / ".bashrc"
    root = Root(str(file), str(scene.site), Base.NONE, "", ())
    for path, done in (("serve.py", True), (".bashrc", False), ("eng/a.py", False)):
        then = replace(root, files=(source(path, Change.PLAIN, THEN),))
        attempt = scene.attempt(then, {path: THEN})
        left = scene.put_back(scene.compare(attempt, root))
        assert (left == []) is done, path
    assert file.read_bytes() == THEN
    assert not victim.exists()


def test_no_promise_is_made_that_is_not_kept(scene: Scene) -> None:
    (scene.site / "eng/new.py").write_bytes(NOW)
    (scene.site / "eng/a.py").write_bytes(PUBLISHED)
    added = source("eng/new.py", Change.ADDED, NOW)
    found = scene.compare(scene.attempt(scene.root(MODIFIED), {"eng/a.py": THEN}), scene.root(added))
    assert [(each.path, not why) for each, why in then_and_now.refused(found, scene.store)] == [
        ("eng/a.py", True),
        ("eng/new.py", False),
    ]


def test_bytecode_that_is_left_is_told(scene: Scene, tmp_path: Path) -> None:
    path, cache = scene.site / "eng/a.py", scene.site / "eng/__pycache__"
    path.write_bytes(PUBLISHED)
    cache.mkdir()
    (cache / "a.cpython-311.pyc").write_bytes(b"")
    (tmp_path / "second").hardlink_to(cache / "a.cpython-311.pyc")
    found = scene.compare(scene.attempt(scene.root(MODIFIED), {"eng/a.py": THEN}), scene.root())
    done = then_and_now.put_back(found, scene.saving, scene.store, "")
    assert done == ((), (str(cache / "a.cpython-311.pyc"),))


def test_many_files_are_compared_in_linear_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each copy and each refusal is found without a look at every other file."""
    files = tuple(source(f"eng/{number}.py", Change.ADDED, THEN) for number in range(2000))
    attempt = scene.attempt(scene.root(*files), {files[0].path: THEN})
    monkeypatch.setattr(sources, "content", lambda *_: pytest.fail("looked for in all files"))
    found = scene.compare(attempt, scene.root())
    assert len(found.files) == 2000
    assert sum(not why for _, why in then_and_now.refused(found, scene.store)) == 2000
