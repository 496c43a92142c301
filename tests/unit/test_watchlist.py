"""What has changed since the launch: content counts, whatever the state of a file says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise.host import watched
from supervise.host.watched import LARGEST, look
from supervise.runner.watchlist import Watchlist


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    (made / "models").mkdir(parents=True)
    (made / "models/llama.py").write_text("one")
    (made / "setup.py").write_text("two")
    (tmp_path / "serve.args").write_text("three")
    return made


@pytest.fixture
def watchlist(work: Path) -> Watchlist:
    made = Watchlist([str(work), str(work.parent / "serve.args")])
    assert not made.begin()
    return made


def replaced(path: Path, content: str) -> None:
    """As an editor saves: a new file in place of the old one."""
    (path.parent / ".new").write_text(content)
    (path.parent / ".new").rename(path)


def again(work: Path) -> None:
    copy = work.parent / "copy"
    shutil.copytree(work, copy)
    shutil.rmtree(work)
    copy.rename(work)


@pytest.mark.parametrize(
    ("act", "changed"),
    [
        (lambda work: None, []),
        (lambda work: os.utime(work / "setup.py"), []),
        (lambda work: replaced(work / "setup.py", "two"), []),
        (lambda work: ((work / "setup.py").write_text("x"), (work / "setup.py").write_text("two")), []),
        (again, []),
        (lambda work: (work / "setup.py").write_text("tow"), ["work/setup.py"]),
        (lambda work: replaced(work / "models/llama.py", "eno"), ["work/models/llama.py"]),
        (lambda work: replaced(work.parent / "serve.args", "4"), ["serve.args"]),
        (lambda work: (work / "new.py").touch(), ["work/new.py"]),
        (lambda work: (work / "setup.py").unlink(), ["work/setup.py"]),
        (lambda work: (work / "server.log").touch(), []),
        # On their way back: nobody works without them.
        (shutil.rmtree, []),
        (lambda work: (work.parent / "serve.args").unlink(), []),
    ],
)
def test_changes(work: Path, watchlist: Watchlist, act: Callable[[Path], object], changed: list[str]) -> None:
    act(work)
    assert [watchlist.title(path) for path in watchlist.changes()] == changed
    assert watchlist.changes() == watchlist.changes()


def test_a_change_in_the_same_tick_of_the_same_size_is_seen(work: Path) -> None:
    for attempt in range(50):
        (work / "setup.py").write_text("a" * 8)
        watchlist = Watchlist([str(work)])
        watchlist.begin()
        (work / "setup.py").write_text(f"{attempt:08}")
        assert watchlist.changes() == (str(work / "setup.py"),)
        # Nor is the present content taken for the one that was there a moment ago.
        (work / "setup.py").write_text("a" * 8)
        assert watchlist.changes() == ()


def test_what_comes_back_is_seen(work: Path, watchlist: Watchlist) -> None:
    shutil.rmtree(work)
    (work.parent / "serve.args").unlink()
    watchlist.begin()
    assert watchlist.changes() == ()
    work.mkdir()
    (work / "setup.py").write_text("two")
    (work.parent / "serve.args").write_text("three")
    assert [watchlist.title(path) for path in watchlist.changes()] == ["serve.args", "work/setup.py"]


def test_the_next_attempt_begins_with_what_is_there_then(work: Path, watchlist: Watchlist) -> None:
    (work / "setup.py").write_text("tow")
    watchlist.begin()
    assert (watchlist.changes(), watchlist.since) == ((), (str(work / "setup.py"),))
    watchlist.begin()
    assert watchlist.since == ()
    (work / "setup.py").write_text("two")
    assert watchlist.changes() == (str(work / "setup.py"),)


def test_of_what_is_too_large_the_state_counts(work: Path) -> None:
    os.truncate(work / "setup.py", LARGEST + 1)
    watchlist = Watchlist([str(work)])
    watchlist.begin()
    assert watchlist.changes() == ()
    os.truncate(work / "setup.py", LARGEST + 2)
    assert watchlist.changes() == (str(work / "setup.py"),)


def test_where_not_all_is_looked_at_what_is_missing_proves_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervise.host.watched.look.__defaults__", (None, 6))
    for number in range(20):
        (work / f"x{number:02}.py").touch()
    watchlist = Watchlist([str(work)])
    assert watchlist.begin()
    seen = Path(min(look([str(work)]).files))
    (work / "a.py").touch()
    seen.with_name("x99.py").touch()
    assert watchlist.changes() == ()
    seen.write_text("1")
    assert watchlist.changes() in [(str(seen),), ()]


def test_a_directory_beside_it_whose_name_begins_alike_does_not_stand_for_one_that_is_gone(work: Path) -> None:
    beside = work.parent / "work2"
    beside.mkdir()
    (beside / "z.py").touch()
    made = Watchlist([str(work), str(beside)])
    made.begin()
    work.rename(work.parent / "away")
    assert made.changes() == ()


def test_a_file_that_cannot_be_read_and_gets_another_mode_is_none(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, made = work / "setup.py", Watchlist([str(work)])
    real = watched.digest
    monkeypatch.setattr(watched, "digest", lambda path, state: None if path == str(secret) else real(path, state))
    made.begin()
    monkeypatch.undo()
    secret.chmod(0o600)  # it can be read now
    assert made.changes() == ()
    secret.write_text("other")
    assert made.changes() == (str(secret),)


def test_beyond_what_is_looked_at_new_ones_are_seen_where_all_was(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Watchlist([str(work)])
    monkeypatch.setattr(watched.look, "__defaults__", (None, 5))
    assert not made.begin()
    for name in ("a.py", "b.py", "c.py"):
        (work / name).touch()
    assert made.changes()
    assert made.cut
    # None of the old ones is missing.
    assert all(Path(path).name in ("a.py", "b.py", "c.py") for path in made.changes())
