"""Files of the user's own stand beside what comes along, and a damaged one costs nothing but its names."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest

from supervise.profiles.load import load
from supervise.profiles.own import with_own
from supervise.profiles.signatures import load_signatures
from supervise.report.console import Console
from supervise.runner.server_log import known_failures
from tests.support.own_signatures import OWN

KNOWN = load_signatures(["host"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "supervise" / "signatures"
    directory.mkdir(parents=True)
    return directory


def added(tmp_path: Path) -> tuple[list[str], list[str]]:
    """The ids behind those that come along, and the notes."""
    known, notes = with_own(KNOWN, {"XDG_CONFIG_HOME": str(tmp_path)})
    return [each.id for each in known.signatures if each not in KNOWN.signatures], notes


def test_they_are_added(tmp_path: Path, place: Path) -> None:
    assert added(tmp_path) == ([], [])
    (place / "mine.toml").write_text(OWN)
    (place / "notes.txt").write_text("nothing")
    assert added(tmp_path) == (["licence-server-down"], [])


def test_one_with_a_known_id_stands_in_for_it(tmp_path: Path, place: Path) -> None:
    replaced = KNOWN.signatures[0].id
    (place / "mine.toml").write_text(OWN.replace("licence-server-down", replaced))
    known, _ = with_own(KNOWN, {"XDG_CONFIG_HOME": str(tmp_path)})
    found = [each for each in known.signatures if each.id == replaced]
    assert [each.literals for each in found] == [("licence server",)]
    assert len(known.signatures) == len(KNOWN.signatures)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("class = ", "glass = ", "glass"),
        ('["licence server"]', '["lic"]', "at least 4 characters"),
        (r"\S+) does", r"(?:\S+ ?)+) does", "exponential"),
    ],
)
def test_a_damaged_file_costs_its_names_and_is_told_once(
    tmp_path: Path, place: Path, old: str, new: str, says: str
) -> None:
    assert old in OWN
    (place / "broken.toml").write_text(OWN.replace(old, new))
    (place / "mine.toml").write_text(OWN)
    ids, notes = added(tmp_path)
    assert ids == ["licence-server-down"]
    assert len(notes) == 1
    assert says in notes[0]
    assert "broken.toml" in notes[0]


def test_a_launch_knows_them_and_says_what_is_damaged(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (place / "broken.toml").write_text("[[")
    (place / "mine.toml").write_text(OWN)
    said = StringIO()
    known = known_failures(load("generic"), Console(said))
    assert known.signatures[-1].id == "licence-server-down"
    assert said.getvalue().count("\n") == 1
    assert said.getvalue().startswith(f"warning  {place / 'broken.toml'}: is not TOML")


def test_what_is_no_file_is_a_note_and_waits_for_nobody(tmp_path: Path, place: Path) -> None:
    (place / "dir.toml").mkdir()
    (place / "gone.toml").symlink_to("nowhere")
    ids, notes = added(tmp_path)
    assert (ids, len(notes)) == ([], 2)
