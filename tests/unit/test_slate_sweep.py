"""What is told of hundreds of findings, and of one that cannot be removed or has turned into a remark."""

import importlib
import io
from dataclasses import replace

import pytest

from supervise.model.litter import FileId, FileType
from supervise.model.process import HostId
from supervise.model.slate import (
    Action,
    Await,
    Finding,
    MoveAside,
    Outcome,
    Ownership,
    Remove,
    RemoveCgroup,
    RemoveSysv,
    RemoveTree,
    SlateResult,
    Verdict,
)
from supervise.model.snapshot import Snapshot
from supervise.report.console import Console
from supervise.slate.request import SlateRequest

# The package has a function of the same name.
sweeping = importlib.import_module("supervise.slate.sweep")

REMOVE = Remove("/t/a b", FileId(1, 2), FileType.REGULAR, 1000)
FINDING = Finding("artefact", "/t/a b", Ownership.OURS, ("matches",), REMOVE, blocking=False)


def printed(kind: str, number: int, did: str = "removed", verdict: Verdict = Verdict.GONE) -> list[str]:
    told = (Outcome(replace(FINDING, kind=kind, subject=f"/t/{n}"), verdict, did, 0.1) for n in range(number))
    stream = io.StringIO()
    Console(stream).slate(SlateResult("r", tuple(told), (), (), (), 0.1))
    return [line.strip() for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize(("number", "more"), [(200, []), (201, ["and 1 more: gone"]), (5000, ["and 4800 more: gone"])])
def test_of_what_the_user_named_two_hundred_are_printed(number: int, more: list[str]) -> None:
    lines = printed("artefact", number)
    assert len([line for line in lines if line.startswith("removed")]) == 200
    assert [line for line in lines if line.startswith("and ")] == more


def test_what_could_not_be_removed_is_counted_for_itself() -> None:
    assert "and 1 more: remains" in printed("artefact", 201, "not removed", Verdict.REMAINS)
    assert "and 1 more: would remove" in printed("artefact", 201, "would remove", Verdict.REMAINS)


def test_of_other_kinds_twenty_are_printed() -> None:
    lines = printed("endpoint", 25)
    assert len([line for line in lines if line.startswith("removed /")]) == 20
    assert "removed 5 more of kind endpoint: gone" in lines


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch):
    """A sweep that finds one thing after the other, the last ones for ever, and can remove none of them."""

    def sweep(*readings: list[Finding]) -> SlateResult:
        left = list(readings)
        monkeypatch.setattr(sweeping, "survey", lambda *_: Snapshot(HostId("b", 1), 1000, frozenset(), {}))
        monkeypatch.setattr(sweeping, "judge", lambda *_: tuple(left.pop(0) if len(left) > 1 else left[0]))
        monkeypatch.setattr(sweeping.act, "remove", lambda _: None)
        result = sweeping.sweep(SlateRequest("r", None, (), deadline_s=20.0))
        assert isinstance(result, SlateResult)
        return result

    return sweep


@pytest.mark.parametrize(
    ("action", "remedy"),
    [
        (REMOVE, "ls -l '/t/a b'; then remove or rename it by hand"),
        (RemoveTree("/t/d", "id"), "ls -ld /t/d; then remove or rename it by hand"),
        (MoveAside("/t/d", FileId(1, 2), 0, "d.aside"), "ls -ld /t/d; then remove or rename it by hand"),
        (RemoveSysv(5, 0, 7), "ipcs -m -i 5; then ipcrm -m 5"),
        (RemoveCgroup("/c/x"), "cat /c/x/cgroup.procs; then rmdir it by hand"),
    ],
)
def test_what_can_be_done_by_hand(action: Action, remedy: str, swept) -> None:
    result = swept([replace(FINDING, action=action, blocking=True)])
    (obstacle,) = result.obstacles
    assert obstacle.remedy == remedy
    assert obstacle.evidence[-1].endswith("in 3 tries")
    assert result.outcomes[0].did in ("not removed", "not moved")


def test_what_is_a_remark_at_the_end_is_not_said_to_be_removed(swept) -> None:
    """Somebody has opened it meanwhile, say."""
    remark = replace(FINDING, action=None, ownership=Ownership.LIVE)
    result = swept([FINDING], [remark])
    assert (result.outcomes, result.remarks, result.clean) == ((), (remark,), True)


def test_nothing_is_awaited_where_something_cannot_be_removed(swept) -> None:
    waiting = Finding("gpu", "GPU 0", Ownership.STALE, ("leaving",), Await("leaving"))
    result = swept([replace(FINDING, blocking=True), waiting])
    assert [finding.subject for finding in result.obstacles] == [FINDING.subject]
    assert result.seconds < 10


def test_what_refuses_nothing_is_no_obstacle(swept) -> None:
    result = swept([FINDING])
    assert [(o.did, o.verdict) for o in result.outcomes] == [("not removed", Verdict.REMAINS)]
    assert (result.clean, result.obstacles, result.remarks) == (True, (), ())
