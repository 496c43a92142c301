"""A package made as its wheel had it: only what is its own, and nothing is called clean that is not."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import py_compile
import sys
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Store
from supervise.host import distribution
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.verbs import debug_code, restoring
from supervise.verbs.debug_code import Debugged
from supervise.verbs.engines import Engine
from supervise.verbs.restoring import Restored

FILES = {"ns/eng/__init__.py": "A = 1\n", "ns/eng/m1.py": "B = 1\n", "ns/eng/m2.py": "C = 1\n"}
EDITED = "B = 2\n"


class Scene:
    """A directory on PYTHONPATH with a wheel in a namespace, whose originals are known."""

    def __init__(self, base: Path) -> None:
        self.site, self.store = base / "site", Store(str(base / "state"))
        self.conf = base / "eng.conf"
        self.conf.write_text("x = 1\n")
        info = self.site / "eng-1.0.dist-info"
        info.mkdir(parents=True)
        for path, text in FILES.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(text)
        rows = [self.row(path) for path in (*FILES, str(self.conf))]
        self.record = info / "RECORD"
        self.record.write_text("\n".join([*rows, "eng-1.0.dist-info/RECORD,,", ""]))
        (installed,) = distribution.installed(str(self.site))
        debug_code.originals(self.store).keep(installed, installed.record())
        self.engine = Engine((sys.executable,), {"PYTHONPATH": str(self.site)}, ("eng",))
        self.copies = restoring.saving(self.store)

    def row(self, path: str) -> str:
        data = (self.site / path).read_bytes()
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        return f"{path},sha256={digest},{len(data)}"

    def seen(self, *paths: str) -> None:
        """An attempt records files as added."""
        run = self.store.run("X")
        run.create()
        contents = {(str(self.site), path): (self.site / path).read_bytes() for path in paths}
        found = tuple(
            Source(path, Change.ADDED, hashlib.sha256(data).hexdigest(), len(data), kept=True)
            for (_, path), data in contents.items()
        )
        root = Root("eng", str(self.site), Base.WHEEL, "1.0", found)
        sources.write(run.open_attempt(), Sources(roots=(root,)), contents)

    def look(self) -> Debugged:
        (left,) = debug_code.look([self.engine], self.store)
        return left

    def restore(self) -> Restored:
        return restoring.restore(self.look(), self.copies, self.store, dry_run=False)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    assert made.look().files == ()
    return made


def test_it_is_put_back_and_verified(scene: Scene) -> None:
    (scene.site / "ns/eng/m1.py").write_text(EDITED)
    done = scene.restore()
    assert (done.sound, done.remedy) == (True, "")
    assert (scene.site / "ns/eng/m1.py").read_text() == FILES["ns/eng/m1.py"]


def test_without_a_digest_nothing_is_verified(scene: Scene) -> None:
    row = scene.row("ns/eng/m1.py")
    scene.record.write_text(scene.record.read_text().replace(row, "ns/eng/m1.py,,"))
    (scene.site / "ns/eng/m1.py").write_text(EDITED)
    done = scene.restore()
    assert not done.sound
    assert done.sentence.endswith("0 modified, 0 added, 0 missing, 1 could not be compared")


def test_a_file_of_a_neighbour_without_a_record_stays(scene: Scene) -> None:
    (scene.site / "aapkg-1.0.dist-info").mkdir()
    (scene.site / "ns/aa").mkdir()
    theirs, ours = scene.site / "ns/aa/__init__.py", scene.site / "ns/eng/hook.py"
    for path in (theirs, ours):
        path.write_text("print(1)\n")
    scene.seen("ns/aa/__init__.py", "ns/eng/hook.py")
    done = scene.restore()
    assert (theirs.exists(), ours.exists(), done.sound) == (True, False, False)
    assert str(theirs) not in done.remedy


def test_a_file_beside_others_of_another_distribution_stays(scene: Scene) -> None:
    (scene.site / "aapkg-1.0.dist-info").mkdir()
    (scene.site / "ns/eng/plugin.py").write_text("")
    (scene.site / "aapkg-1.0.dist-info/RECORD").write_text(scene.row("ns/eng/plugin.py") + "\n")
    (scene.site / "ns/eng/hook.py").write_text("print(1)\n")
    scene.seen("ns/eng/hook.py")
    done = scene.restore()
    assert [(each.did, each.why) for each in done.became] == [("left", "it may be a file of aapkg")]
    assert (scene.site / "ns/eng/hook.py").exists()


def test_an_absolute_path_is_told_and_left(scene: Scene) -> None:
    scene.conf.write_text("x = 2\n")
    done = scene.restore()
    assert (done.sound, scene.conf.read_text()) == (False, "x = 2\n")
    assert [(each.path, each.did) for each in done.became] == [(str(scene.conf), "left")]


def stale(path: Path, *, unchecked: bool) -> Path:
    """Bytecode of what is in the file now."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH if unchecked else py_compile.PycInvalidationMode.TIMESTAMP
    return Path(py_compile.compile(str(path), doraise=True, invalidation_mode=mode) or "")


def test_bytecode_that_cannot_be_removed_is_not_clean(scene: Scene, tmp_path: Path) -> None:
    path = scene.site / "ns/eng/m1.py"
    path.write_text(EDITED)
    compiled = stale(path, unchecked=True)
    (tmp_path / "second").hardlink_to(compiled)
    done = scene.restore()
    assert (done.sound, done.remedy) == (False, f"rm -- {compiled}")
    # Nor is it at the next time, when there is nothing to be restored any more.
    again = scene.restore()
    assert (again.became, again.sound, again.remedy) == ((), False, f"rm -- {compiled}")
    compiled.unlink()
    assert scene.restore().sound


def test_bytecode_that_goes_is_no_reason(scene: Scene) -> None:
    path = scene.site / "ns/eng/m1.py"
    path.write_text(EDITED)
    compiled = stale(path, unchecked=True)
    assert scene.restore().sound
    assert not compiled.exists()
    fresh = importlib.util.cache_from_source(str(path))
    py_compile.compile(str(path), doraise=True)
    assert os.path.exists(fresh)
    assert scene.restore().sound


def test_nothing_is_shown_that_a_link_leads_out_to(scene: Scene, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret\n")
    (scene.site / "ns/eng/leak.py").symlink_to(secret)
    (scene.site / "ns/eng/m1.py").unlink()
    (scene.site / "ns/eng/m1.py").symlink_to(secret)
    (scene.site / "ns/eng/own.py").symlink_to("m2.py")
    texts = {file.path: file.patch.text for file in scene.look().files}
    assert sorted(texts) == ["ns/eng/leak.py", "ns/eng/m1.py", "ns/eng/own.py"]
    assert not any("s3cret" in text for text in texts.values())
    assert "+C = 1" in texts["ns/eng/own.py"]
