"""Two attempts next to each other: what differs, what is unknown, what became of the cause, and the lines about it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.model.sources import Base, Root, Sources
from supervise.report.changes import joined
from supervise.report.comparison import Comparison, compare
from supervise.report.history import Row, table
from supervise.report.patches import Patch
from supervise.report.since import lines
from supervise.report.standing import Side
from supervise.verbs.diff import meant

RECORD: dict[str, Any] = {
    "argv": ["vllm", "serve", "m", "--max-num-seqs", "256"],
    "environment": {"VLLM_X": "1"},
    "profile": "vllm",
    "cwd": "/srv",
    "python": "3.11.7",
    "ports": [8000],
    "tiers": ["subreaper"],
    "limits_raised": [],
    "options": ["--restart", "no"],
    "supervise": "0.1.0",
    "interpreter": "/venv/bin/python",
    "gpus": None,
    "limits": {"nofile": [1024, 4096]},
    "host": {"boot_id": "b"},
}
READY = {"outcome": "asked", "ready_s": 98.0, "phases": {"start": 8.0, "weights": 90.0}, "failed": False, "cause": None}
PATCHED = {"files": {"changed_while_loading": ["/site/vllm/models/llama.py"]}}
CODE = Sources("/venv/bin/python", "3.12.1", {"torch": "2.9.0"}, (Root("vllm", "/site", Base.WHEEL, "0.11.0"),))
PATCH = Patch("vllm", "vllm/models/deepseek_v2.py", "--- a\n+++ b\n", 12, 3, known=True)


def failed(text: str | None, *, phase: str = "weights", **more: Any) -> dict[str, Any]:
    cause = {"text": text, "phase": phase, "fingerprint": text and f"f-{text}", "meaning": "it failed", **more}
    return {"outcome": "died", "ready_s": None, "phases": {"start": 8.0}, "failed": True, "cause": cause}


def side(number: int = 6, outcome: dict[str, Any] | None = READY, sources: Sources | None = CODE, **more: Any) -> Side:
    return Side(number, {**RECORD, **more}, outcome, {}, sources)


def of(before: Side, after: Side, *patches: Patch) -> Comparison:
    both = before.sources is not None and after.sources is not None
    return compare("vllm-8000", before, after, patches if both else None)


def told(found: Comparison) -> list[str]:
    return [each.told for each in found.differences]


def code(**more: Any) -> Sources:
    return dataclasses.replace(CODE, **more)


# --- what differs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "phrase"),
    [
        ({"argv": ["vllm", "serve", "m", "--max-num-seqs", "128"]}, "--max-num-seqs 256 -> 128"),
        ({"environment": {}}, "VLLM_X: 1 -> unset"),
        ({"environment": {"VLLM_X": "1", "HF_TOKEN": "***"}}, "HF_TOKEN: unset -> ***"),
        ({"cwd": "/tmp"}, "directory: /srv -> /tmp"),
        ({"limits_raised": ["nofile"]}, "limits raised: none -> nofile"),
        ({"host": {"boot_id": "c"}}, "another host, or the host was booted in between"),
        ({"interpreter": "/usr/bin/python3"}, "interpreter: /venv/bin/python -> /usr/bin/python3"),
        ({"options": ["--restart", "always"]}, "--restart no -> always (of supervise)"),
        ({"supervise": "0.2.0"}, "version of supervise: 0.1.0 -> 0.2.0"),
        ({"limits": {"nofile": [4096, 4096]}}, "limit nofile: 1024 of 4096 -> 4096"),
        ({"gpus": {"driver": None, "devices": [], "error": None}}, "driver: none -> unknown"),
        ({"sources": code(version="3.13.0")}, "Python: 3.12.1 -> 3.13.0"),
        ({"sources": code(versions={"torch": "2.9.1"})}, "torch 2.9.0 -> 2.9.1"),
        ({"sources": code(versions={"torch": "2.9.0", "x": "1"})}, "x not installed -> 1"),
        ({"sources": code(roots=(Root("vllm", "/src", Base.WHEEL, "0.11.0"),))}, "code of vllm: /site -> /src"),
        ({"sources": code(roots=(Root("vllm", "/site", Base.GIT, "abc1"),))}, "git vllm: wheel 0.11.0 -> abc1"),
        ({"sources": code(roots=(Root("vllm", "/site", Base.WHEEL, "0.12"),))}, "vllm: 0.11.0 -> 0.12"),
    ],
)
def test_one_thing_that_differs_is_the_one_that_is_named(after: dict[str, Any], phrase: str) -> None:
    found = of(side(), side(7, **after))
    assert told(found) == [phrase]
    assert found.same is False


def test_two_attempts_that_are_alike_are_the_same() -> None:
    found = of(side(), side(7))
    assert (told(found), found.unknown, found.same) == ([], (), True)


def test_a_patch_is_told_with_its_path_and_in_short_with_its_name() -> None:
    [found] = of(side(), side(7), PATCH).differences
    assert found.told == "patch vllm/models/deepseek_v2.py (+12 −3)"
    assert found.short == "patch deepseek_v2.py (+12 −3)"


def test_a_file_whose_content_nobody_has_differs_all_the_same() -> None:
    found = of(side(), side(7), Patch("vllm", "a.py", "", 0, 0, known=False))
    assert told(found) == ["patch a.py (content not known)"]
    assert found.same is False


def test_packages_of_the_slate_are_compared_where_the_code_was_not_recorded() -> None:
    one, other = ({"checks": [f"vllm {version} as in its wheel"]} for version in ("0.11", "0.12"))
    slates = [dataclasses.replace(side(6, sources=None), slate=one), dataclasses.replace(side(7), slate=other)]
    assert told(of(*slates)) == ["package vllm: 0.11 as in its wheel -> 0.12 as in its wheel"]
    assert told(of(*(dataclasses.replace(each, sources=CODE) for each in slates))) == []


def gpus(driver: str = "550.54", *names: str, error: str | None = None) -> dict[str, Any]:
    devices = [{"index": str(n), "name": name, "uuid": f"GPU-{n}"} for n, name in enumerate(names)]
    return {"gpus": {"driver": driver, "devices": devices, "error": error}}


@pytest.mark.parametrize(
    ("after", "phrases"),
    [
        (gpus("550.54", "H100", "H100"), []),
        (gpus("560.1", "H100", "H100"), ["driver: 550.54 -> 560.1"]),
        (gpus("550.54", "H100"), ["GPUs: 2 H100 -> 1 H100"]),
        (gpus("550.54", "H100", "A100"), ["GPUs: 2 H100 -> 1 H100, 1 A100"]),
        ({"gpus": None}, ["driver: 550.54 -> none", "GPUs: 2 H100 -> none"]),
    ],
)
def test_gpus_and_their_driver(after: dict[str, Any], phrases: list[str]) -> None:
    assert told(of(side(**gpus("550.54", "H100", "H100")), side(7, **after))) == phrases


def test_gpus_that_another_machine_has_are_others() -> None:
    one, other = gpus("1", "H100"), gpus("1", "H100")
    other["gpus"]["devices"][0]["uuid"] = "GPU-9"
    assert told(of(side(**one), side(7, **other))) == ["GPUs: 1 H100 -> others: 1 H100"]


# --- unknown is never the same ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "unknown"),
    [
        (side(sources=None), "code of #6"),
        (side(outcome=None), "end of #6"),
        (dataclasses.replace(side(), record=None), "circumstances of #6"),
        (side(sources=code(versions={})), "versions of packages"),
        (side(sources=code(python=None)), "interpreter"),
        (side(sources=code(roots=())), "code of vllm (one of them did not look at it)"),
        (
            side(sources=code(roots=(Root("vllm", "/site", Base.NONE, unknown="no RECORD"),))),
            "code of vllm (no RECORD)",
        ),
        (side(**gpus(error="the driver does not answer")), "GPUs of #6"),
        (side(options=None), "options of supervise of #6"),
        (
            Side(6, {"argv": RECORD["argv"]}, READY, {}, CODE),
            "environment, options of supervise, limits, engine profile, directory",
        ),
        (dataclasses.replace(side(outcome=None), live=True), "end of #6, which runs"),
        (side(outcome={**READY, "effect": PATCHED}), "what #6 imported: llama.py changed while it loaded"),
    ],
)
def test_what_is_not_recorded_is_unknown_and_not_the_same(before: Side, unknown: str) -> None:
    found = of(before, side(7))
    assert any(phrase.startswith(unknown) for phrase in found.unknown), found.unknown
    assert found.same is not True
    assert of(side(7), before).same is not True


def test_a_difference_counts_whatever_else_is_unknown() -> None:
    assert of(side(sources=None), side(7, cwd="/tmp")).same is False
    assert of(side(sources=None), side(7)).same is None


# --- what became of it ------------------------------------------------------------------------------------------------

DIED = {**READY, "outcome": "died", "failed": True}


@pytest.mark.parametrize(
    ("before", "after", "sentence", "same"),
    [
        (failed("KeyError: 'x'"), READY, "cause moved: KeyError at weights -> ready", False),
        (READY, failed("KeyError: 'x'"), "cause moved: ready -> KeyError at weights", False),
        (failed("KeyError: 'x'"), failed("KeyError: 'x'"), "same cause as #6", True),
        (
            failed("KeyError: 'x'"),
            failed("a.b.OutOfMemoryError: 2 GiB", phase="run", signature="cuda-oom"),
            "cause moved: KeyError at weights -> OutOfMemoryError (cuda-oom) once it was ready",
            False,
        ),
        (
            failed("KeyError: 'x'"),
            failed("KeyError: 'x'", phase="compile"),
            "cause moved: KeyError at weights -> KeyError at compile",
            False,
        ),
        (
            failed("KeyError: 'x'"),
            failed("KeyError: 'y'"),
            "cause moved: KeyError: 'x' at weights -> KeyError: 'y' at weights",
            False,
        ),
        (READY, READY, "ready as #6", True),
        (READY, DIED, "outcome moved: ready -> ready, then died", False),
        (
            READY,
            {**READY, "ready_s": None},
            "outcome moved: ready -> stopped before it was ready",
            False,
        ),
        (None, READY, "#6: unknown; #7: ready", None),
        (failed(None), failed(None), "#6: it failed at weights; #7: it failed at weights", None),
        (failed(None, end="exited with 4"), failed(None, end="exited with 4"), "same cause as #6", True),
    ],
)
def test_courses(before: dict[str, Any] | None, after: dict[str, Any], sentence: str, same: bool | None) -> None:
    assert of(side(outcome=before), side(7, after)).course == (sentence, same)


@pytest.mark.parametrize(
    ("seconds", "moved"), [(90.0, False), (80.0, False), (41.0, True), (130.0, True), (0.5, True), (None, False)]
)
def test_phases_that_took_noticeably_longer_or_shorter(seconds: float | None, moved: bool) -> None:
    phases = {"start": 8.0} if seconds is None else {"start": 8.0, "weights": seconds}
    found = of(side(), side(7, {**READY, "phases": phases}))
    assert [phase.name for phase in found.phases if phase.moved] == (["weights"] if moved else [])
    assert found.same is True


def test_fractions_of_a_second_are_nothing_to_tell() -> None:
    quick, slow = ({**READY, "phases": {"start": took}, "ready_s": took} for took in (0.1, 0.9))
    assert not any(phase.moved for phase in of(side(outcome=quick), side(7, slow)).phases)


# --- the two lines ----------------------------------------------------------------------------------------------------


def test_two_lines_after_an_attempt() -> None:
    after = side(7, argv=["vllm", "serve", "m", "--max-num-seqs", "128"])
    assert lines(of(side(outcome=failed("KeyError: 'x'")), after, PATCH)) == (
        "differs from #6 by: --max-num-seqs 256 -> 128, patch deepseek_v2.py (+12 −3)",
        "cause moved: KeyError at weights -> ready",
    )


def test_two_lines_say_what_was_not_compared() -> None:
    assert lines(of(side(sources=None), side(7)))[0] == "nothing recorded differs from #6; code not compared"
    assert lines(of(side(sources=None), side(7, cwd="/tmp")))[0].endswith("directory: /srv -> /tmp; code not compared")
    lost = dataclasses.replace(side(), record=None)
    assert lines(of(lost, side(7)))[0] == "nothing recorded differs from #6; circumstances not compared"
    patched = side(7, {**READY, "effect": PATCHED})
    assert lines(of(side(), patched))[0] == "nothing recorded differs from #6; llama.py changed while #7 loaded"


def test_two_lines_tell_how_much_faster_it_was() -> None:
    assert lines(of(side(), side(7, {**READY, "ready_s": 41.0})))[1] == "ready as #6 (98 s -> 41 s)"


def test_what_has_just_been_told_is_not_told_again() -> None:
    both = failed("KeyError: 'x'")
    assert len(lines(of(side(outcome=both), side(7, both)), told=6)) == 1
    assert len(lines(of(side(outcome=both), side(7, both)), told=5)) == 2


@given(flags=st.lists(st.text(alphabet="abcdefgh-", min_size=1, max_size=60), max_size=40))
def test_two_lines_are_bounded(flags: list[str]) -> None:
    after = side(7, argv=[*RECORD["argv"], *(f"--{flag}" for flag in flags)])
    found = lines(of(side(), after))
    assert len(found) == 2
    assert all(len(line) <= 150 for line in found)


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (100, "--eager, patch a.py, cwd"),
        (24, "--eager, patch a.py, cwd"),
        (23, "--eager, +2 more"),
        (16, "--eager, +2 more"),
        (5, "…, +2 more"),
        (12, "--…, +2 more"),
    ],
)
def test_phrases_that_have_no_room_are_counted(width: int, said: str) -> None:
    assert joined(["--eager", "patch a.py", "cwd"], width) == said


# --- properties -------------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.none(), st.text(alphabet="abc0.-/", max_size=6).filter(lambda text: not text.startswith("-")))
FLAGS = st.dictionaries(st.text(alphabet="abcdef-", min_size=1, max_size=8).map(lambda name: f"--{name}"), VALUES)
OUTCOMES = st.one_of(st.none(), st.just(READY), st.just(DIED), st.text(max_size=9).map(failed), st.just(failed(None)))


def argv(flags: dict[str, str | None]) -> list[str]:
    return ["vllm", "serve", *(name if value is None else f"{name}={value}" for name, value in flags.items())]


@given(flags=FLAGS, environment=st.dictionaries(st.text(max_size=5), st.text(max_size=5)), outcome=OUTCOMES)
def test_an_attempt_does_not_differ_from_itself(flags: Any, environment: Any, outcome: Any) -> None:
    this = side(6, outcome, argv=argv(flags), environment=environment)
    found = of(this, this)
    assert found.differences == ()
    assert not any(phase.moved for phase in found.phases)
    assert found.same is (None if outcome is None else True)


@given(before=FLAGS, after=FLAGS)
def test_every_flag_that_changed_is_named_and_no_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = {name for name in {*before, *after} if before.get(name, ...) != after.get(name, ...)}
    found = of(side(argv=argv(before)), side(7, argv=argv(after))).differences
    assert {each.name for each in found} == changed
    assert {each.kind for each in found} <= {"flag"}


# --- history ----------------------------------------------------------------------------------------------------------


def rows() -> list[Row]:
    sides = [side(1, failed("KeyError: 'x'")), side(2, argv=["vllm", "serve", "m"]), side(3, None)]
    found = [None, of(sides[0], sides[1]), of(sides[1], sides[2])]
    return [Row(each, 1.0, 30.0, None, more) for each, more in zip(sides, found, strict=True)]


def test_a_table_of_attempts() -> None:
    head, *told = (line.split(None, 3) for line in table(rows(), None).splitlines())
    assert head[:3] == ["#", "when", "seconds"]
    assert [line[0] for line in told] == ["1", "2", "3"]
    assert told[0][3].split() == ["30", "s", "weights", "f-KeyError:", "'x'", "-"]
    assert told[1][3].split() == ["30", "s", "ready", "-", "removed", "--max-num-seqs", "256"]
    assert told[2][3].split()[:4] == ["30", "s", "unknown", "unknown"]


@pytest.mark.parametrize("width", [40, 72, 80, 200])
def test_a_table_fits_a_terminal(width: int) -> None:
    many = Row(side(4), 1.0, 2.0, None, of(side(3), side(4, argv=["vllm", *(f"--flag-{n}" for n in range(50))])))
    assert all(len(line) < width for line in table([*rows(), many], width).splitlines())
    piped = table([many], None)
    assert "added --flag-9" in piped
    assert piped.endswith(" more\n")
    assert max(map(len, piped.splitlines())) < 400


def test_a_file_that_nobody_can_compare_is_unknown_and_no_difference() -> None:
    unread = Patch("work", "pkg/o.py", "", 0, 0, known=False, certain=False)
    found = of(side(1), side(2), unread)
    assert (found.same, told(found)) == (None, [])
    assert "content of o.py" in found.unknown
    assert lines(found)[0] == "nothing recorded differs from #1; content of o.py not compared"
    changed = of(side(1), side(2), unread._replace(certain=True))
    assert (changed.same, told(changed)) == (False, ["patch pkg/o.py (content not known)"])


def test_files_of_one_name_have_their_directories() -> None:
    paths = ("a/x/__init__.py", "b/x/__init__.py", "b/core.py", "__init__.py")
    found = of(side(1), side(2), *(Patch("vllm", path, "", 1, 0, known=True) for path in paths))
    names = ["a/x/__init__.py", "b/x/__init__.py", "core.py", "__init__.py"]
    assert [each.short for each in found.differences] == [f"patch {name} (+1 −0)" for name in names]


def test_one_that_serves_has_got_over_the_cause_of_the_one_before() -> None:
    living = dataclasses.replace(side(7, None), live=True)
    loading = of(side(6, failed("KeyError: 'x'")), living)
    assert loading.course == ("#6: KeyError at weights; #7: runs", None)
    serving = of(side(6, failed("KeyError: 'x'")), dataclasses.replace(living, serves=True))
    assert serving.course == ("cause moved: KeyError at weights -> ready, and runs", False)
    assert serving.same is False
    # What came after readiness may come again.
    late = side(6, {**failed("KeyError: 'x'", phase="run"), "ready_s": 98.0})
    assert of(late, dataclasses.replace(living, serves=True)).course.same is None


def test_how_far_a_living_one_got() -> None:
    living = dataclasses.replace(side(4, None), live=True)
    assert Row(living, 1.0, 2.0, "compile", None).reached == "compile"
    assert Row(living, 1.0, 2.0, None, None).cells[3:] == ("runs", "-")


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "run", "numbers"),
    [
        ([], None, ()),
        (["7"], None, (7,)),
        (["6", "7"], None, (6, 7)),
        (["vllm-8000"], "vllm-8000", ()),
        (["vllm-8000", "7"], "vllm-8000", (7,)),
        (["7", "1", "2"], "7", (1, 2)),
    ],
)
def test_what_is_meant(words: list[str], run: str | None, numbers: tuple[int, ...]) -> None:
    assert meant(words) == (run, numbers)


@pytest.mark.parametrize("words", [["a", "b"], ["6", "b"], ["a", "1", "-2"], ["a", "1", "١"], ["a", "1", "9" * 10]])
def test_what_cannot_be_meant(words: list[str]) -> None:
    with pytest.raises(ValueError, match="no number of an attempt"):
        meant(words)
