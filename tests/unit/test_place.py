"""Where the state is kept, for whoever launches and for whoever asks: the same place, and never somebody else's."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.attempts import place
from supervise.attempts.place import PlaceError, default_root, settle


@pytest.fixture
def tmp(short_dir: Path) -> Path:
    made = short_dir / "tmp"
    made.mkdir()
    return made


@pytest.fixture
def nowhere(short_dir: Path, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An environment whose home directory cannot be made: its parent is a file, so that it stops root as well."""
    blocker = short_dir / "file"
    blocker.touch()
    monkeypatch.setattr(place, "_EVERYBODYS", str(short_dir / "everybodys"))
    return {"HOME": str(blocker / "home"), "TMPDIR": str(tmp)}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"STATE_DIRECTORY": "/a:/b", "XDG_STATE_HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/c", "HOME": "/d"}, "/c/supervise"),
        ({"XDG_STATE_HOME": "/proc/no", "HOME": "/d"}, "/proc/no/supervise"),
    ],
)
def test_what_was_said_is_never_replaced(env: dict[str, str], expected: str) -> None:
    assert default_root(env) == expected
    assert settle(env) == (expected, None)


def test_a_home_that_can_be_made_is_not_made(short_dir: Path) -> None:
    home = short_dir / "home/user"
    assert settle({"HOME": str(home)}) == (f"{home}/.local/state/supervise", None)
    assert not home.exists()


def test_without_a_home_it_is_private_and_said(nowhere: dict[str, str], tmp: Path) -> None:
    root, note = settle(nowhere)
    assert root == f"{tmp}/supervise-{os.geteuid()}" == default_root(nowhere)
    assert stat.S_IMODE(os.stat(root).st_mode) == 0o700
    assert note is not None
    assert nowhere["HOME"] in note
    assert root in note


def test_a_uid_that_stands_in_no_passwd_has_no_home(nowhere: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Then `~` stands for itself: a directory of that name in the current one is nobody's home."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    root, note = settle({"TMPDIR": nowhere["TMPDIR"]})
    assert root.startswith(nowhere["TMPDIR"])
    assert note is not None
    assert "no home directory" in note


def test_the_runtime_directory_comes_first(nowhere: dict[str, str], short_dir: Path) -> None:
    env = nowhere | {"XDG_RUNTIME_DIR": str(short_dir)}
    assert settle(env).root == str(short_dir / "supervise") == default_root(env)


def test_whoever_asks_makes_nothing(nowhere: dict[str, str], tmp: Path) -> None:
    assert default_root(nowhere) == nowhere["HOME"] + "/.local/state/supervise"
    assert list(tmp.iterdir()) == []


@pytest.mark.parametrize("trap", ["link", "open", "file"])
def test_what_is_not_ours_alone_is_passed_over(trap: str, nowhere: dict[str, str], tmp: Path, short_dir: Path) -> None:
    spot = tmp / f"supervise-{os.geteuid()}"
    target = short_dir / "target"
    target.mkdir(mode=0o700)
    if trap == "link":
        spot.symlink_to(target)
    elif trap == "open":
        spot.mkdir()
        spot.chmod(0o755)
    else:
        spot.touch()
    with pytest.raises(PlaceError) as refused:
        settle(nowhere)
    assert str(spot) in str(refused.value)
    assert "XDG_STATE_HOME" in str(refused.value)
    (short_dir / "everybodys").mkdir()
    root = settle(nowhere).root
    assert root == f"{short_dir}/everybodys/supervise-{os.geteuid()}" == default_root(nowhere)
    assert list(target.iterdir()) == []


@pytest.mark.root
def test_of_another_user_is_passed_over(nowhere: dict[str, str], tmp: Path) -> None:
    spot = tmp / f"supervise-{os.geteuid()}"
    spot.mkdir(mode=0o700)
    os.chown(spot, 12345, 12345)
    with pytest.raises(PlaceError, match="belongs to uid 12345"):
        settle(nowhere)
    assert default_root(nowhere) != str(spot)
    os.chown(spot, os.geteuid(), -1)
    assert settle(nowhere).root == str(spot)
    shutil.rmtree(spot)
