"""Every kind of leftover beside as many decoys, through the real command line: all of the ones go, all others stay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from supervise.model.evict import Evict
from tests.support import zoo_alone
from tests.support.readable import ROOT
from tests.support.zoo_visit import TWIN

_DEADLINE_S = 100.0

Row = dict[str, Any]


@pytest.mark.parametrize("policy", [Evict.STALE, Evict.ENGINES])
def test_every_leftover_goes_and_every_decoy_stays(
    short_dir: Path, policy: Evict, capsys: pytest.CaptureFixture[str]
) -> None:
    report = visit(short_dir, policy)
    rows: list[Row] = report["exhibits"]
    with capsys.disabled():
        print(f"\n--evict {policy}\n{table(rows)}")
    assert report["built"]
    assert {kind: _count(rows, kind, leftover=True) for kind in _kinds(rows)} == {
        kind: _count(rows, kind, leftover=False) for kind in _kinds(rows)
    }
    assert report["untouched"], "--dry-run has changed something"
    assert _labels(row for row in rows if row["due"] and row["present"]) == []
    assert _labels(row for row in rows if not row["due"] and not row["present"]) == []
    assert _labels(row for row in rows if row["acted"] and not row["due"]) == []
    assert _labels(row for row in rows if row["leftover"] and not row["found"]) == []
    assert _labels(row for row in rows if row["leftover"] and not row["foreseen"]) == []
    # An open dump is told, since whoever asked for its removal wants to know; of other decoys nobody wants to hear.
    assert _labels(row for row in rows if row["found"] and not row["leftover"] and row["kind"] != "dumps") == []
    for told in (*report["told"], *report["again"]):
        assert (told["status"], told["stderr"]) == (0, ""), told
    assert [told["acted"] for told in report["again"]] == [[], []]


def test_no_leftover_spoils_a_program_that_is_no_engine(short_dir: Path) -> None:
    """The negative control: without the rules nothing of all this goes, so that it is they who find it."""
    report = visit(short_dir, TWIN)
    assert [told["status"] for told in report["told"]] == [0]
    assert _labels(row for row in report["exhibits"] if row["found"] or not row["present"]) == []


def visit(base: Path, policy: str) -> dict[str, Any]:
    """Visit a zoo of its own; skips the test where no namespaces are to be had."""
    if not zoo_alone.possible():
        pytest.skip("no namespaces of our own here")
    directory = base / "zoo"
    directory.mkdir()
    program = [sys.executable, "-m", "tests.support.zoo_visit", str(directory), policy]
    done = subprocess.run(
        zoo_alone.command(program),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def table(rows: list[Row]) -> str:
    """What was there and what became of it, a line for each kind and one for all."""
    lines = [
        f"{'kind':<16}" + "".join(f"{head:>11}" for head in ("leftovers", "found", "due", "gone", "decoys", "intact"))
    ]
    for kind in (*_kinds(rows), ""):
        of_kind = [row for row in rows if kind in ("", row["kind"])]
        leftovers, decoys = ([row for row in of_kind if row["leftover"] is value] for value in (True, False))
        cells = (
            len(leftovers),
            sum(row["found"] for row in leftovers),
            sum(row["due"] for row in leftovers),
            sum(not row["present"] for row in leftovers),
            len(decoys),
            sum(row["present"] for row in decoys),
        )
        lines.append(f"{kind or 'all':<16}" + "".join(f"{cell:>11}" for cell in cells))
    due, gone = [row for row in rows if row["due"]], [row for row in rows if not row["present"]]
    recall = sum(not row["present"] for row in due) / len(due)
    precision = sum(row["due"] for row in gone) / len(gone) if gone else 1.0
    return "\n".join([*lines, f"recall {recall:.0%}, precision {precision:.0%}"])


def _kinds(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["kind"] for row in rows))


def _count(rows: Iterable[Row], kind: str, *, leftover: bool) -> int:
    return sum(row["kind"] == kind and row["leftover"] is leftover for row in rows)


def _labels(rows: Iterable[Row]) -> list[str]:
    return [f"{row['kind']}: {row['label']} ({row['subject']})" for row in rows]
