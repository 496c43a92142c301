"""The live view: what stands in it where there is room, what goes first where there is none, and its pictures."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from supervise.report.scene import Card, Phase, Scene
from supervise.report.view import render
from tests.tools.screenshots import IMAGES, LOADING, READY, SCENES, svg

RULE = "─" * 5


def lines(scene: Scene, width: int = 96, height: int = 40) -> list[str]:
    """As they stand on a terminal without colours."""
    told = Console(file=io.StringIO(), width=width, color_system=None)
    with told.capture() as captured:
        told.print(render(scene, width, height))
    return captured.get().rstrip("\n").split("\n")


def test_a_server_that_loads() -> None:
    assert "\n".join(line.rstrip() for line in lines(replace(LOADING, log=LOADING.log[-1:]), 80)[1:]) == (
        """\
vllm-8000  attempt 3  loading  +57 s  ETA 75 s
  restarts 1, the last for: a change: vllm/model_executor/models/qwen3.py
  start     ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━     14 s
  config    ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━      2 s
  engine    ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━     10 s
  weights   ━━━━━━━━━━━━━━━━━━━━━━────────────     31 s  65 %  (11/17)
  profile   ──────────────────────────────────  usually 3 s
  compile   ──────────────────────────────────  usually 31 s
  kv cache  ──────────────────────────────────  usually 2 s
  graphs    ──────────────────────────────────  usually 20 s
  server    ──────────────────────────────────  usually 1 s
  GPU 0 ━━━───────  22.4/79.6 GiB  GPU 1 ━━━───────  22.4/79.6 GiB
  Loading safetensors checkpoint shards:  65% Completed | 11/17 [00:31<00:17,  …
  q stop   r relaunch   c clean relaunch   ? keys"""
    )


def test_a_server_that_is_up() -> None:
    assert "\n".join(line.rstrip() for line in lines(READY)[1:]) == (
        """\
vllm-8000  attempt 3  ready since 2026-03-02 14:07:31   http://0.0.0.0:8000
  restarts 1, the last for: a change: vllm/model_executor/models/qwen3.py
  GPU 0 ━━━━━━━━━─  71.9/79.6 GiB  GPU 1 ━━━━━━━━━─  71.9/79.6 GiB
  q stop   r relaunch   c clean relaunch   ? keys"""
    )


@pytest.mark.parametrize(
    ("scene", "head"),
    [
        (Scene("X", 1, "stopping", elapsed_s=3, why="SIGINT"), "X  attempt 1  stopping  SIGINT  +3 s"),
        (
            Scene("X", 1, "waiting", eta="in 8 s", why="no memory"),
            "X  attempt 1  waiting  the next attempt begins in 8 s  (no memory)",
        ),
        (Scene("X", 1, "waiting"), "X  attempt 1  waiting  for a change of a watched file"),
        (Scene("X", 1, "waiting", keys="q?"), "X  attempt 1  waiting  for a change of a watched file"),
        (Scene("X", 1, "waiting", keys="qr?"), "X  attempt 1  waiting  for a change of a watched file, or for r"),
        (
            Scene("X", 1, "waiting", eta="in 8 s", keys="qr?"),
            "X  attempt 1  waiting  the next attempt begins in 8 s, with r now",
        ),
        (Scene("X", 1, "starting", elapsed_s=700, eta="overdue"), "X  attempt 1  loading  +12 min  overdue"),
    ],
)
def test_the_head(scene: Scene, head: str) -> None:
    assert lines(scene)[1] == head


def test_what_goes_first_where_there_is_little_room() -> None:
    kept = [" ".join(lines(LOADING, height=height)) for height in range(21)]
    assert RULE not in kept[1]
    for height, text in ((1, "attempt 3"), (2, "weights"), (3, "q stop"), (4, "GPU 0"), (9, "Completed")):
        assert text in kept[height], height
        assert text not in kept[height - 1], height
    assert all(len(lines(LOADING, height=height)) == height for height in range(1, 20))


def test_of_the_log_the_oldest_goes_first_and_order_stays() -> None:
    told = [line.strip() for line in lines(replace(LOADING, phases=(), cards=()), 200, 6)]
    assert told[2:5] == [*LOADING.log[-3:]]


def test_a_bar_that_nobody_knows_moves() -> None:
    scene = Scene("X", 1, "starting", phases=(Phase("start", 1.0),))
    later = replace(scene, phases=(Phase("start", 2.0),))
    assert lines(scene)[2].index("━") + 1 == lines(later)[2].index("━")


def test_what_a_phase_used_to_take_is_its_bar_and_never_the_whole() -> None:
    half, late = (
        lines(Scene("X", 1, "starting", phases=(Phase("start", s, 10.0),)))[2].count("━") for s in (5.0, 99.0)
    )
    assert (half, late) == (20, 40)


def test_what_takes_no_second_is_not_told() -> None:
    told = lines(Scene("X", 1, "starting", phases=(Phase("start", 0.1, 0.4), Phase("engine", None, 0.9))))
    assert "usually" not in "".join(told)
    assert len(told) == 4


def test_keys_are_shown_where_they_are_taken_and_explained_when_asked() -> None:
    assert "q stop" not in "".join(lines(replace(LOADING, keys="")))
    without = "\n".join(lines(replace(LOADING, keys="qr?")))
    assert "clean relaunch" not in without
    explained = "\n".join(lines(replace(LOADING, help=True)))
    assert "without grace" in explained
    assert "q stop   r" not in explained


def test_text_from_outside_is_harmless() -> None:
    scene = replace(LOADING, fatal="\x1b[2Jgone\r\nX", why="\x1b[H", restarted_for="\x07")
    assert "\x1b" not in "".join(lines(scene))
    assert "\\x1b[2Jgone" in "".join(lines(scene))


TEXT = st.text(max_size=300)
SIZE = st.integers(-1, 2**50)
SCENE = st.builds(
    Scene,
    TEXT,
    st.integers(0, 10**9),
    st.sampled_from(["starting", "ready", "capturing", "stopping", "killing", "verifying", "waiting"]),
    elapsed_s=st.integers(0, 10**8),
    eta=TEXT,
    phases=st.lists(
        st.builds(Phase, TEXT, st.none() | st.floats(0, 1e8), st.none() | st.floats(0, 1e8)), max_size=12
    ).map(tuple),
    percent=st.none() | st.floats(-10, 1000),
    done=st.none() | st.integers(0, 10**9),
    total=st.none() | st.integers(0, 10**9),
    fatal=TEXT,
    restarts=st.integers(0, 3),
    restarted_for=TEXT,
    url=TEXT,
    cards=st.lists(st.builds(Card, st.text(max_size=20), SIZE, SIZE), max_size=9).map(tuple),
    keys=st.sampled_from(["", "qr?", "qrc?"]),
    help=st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(scene=SCENE, width=st.integers(-5, 250), height=st.integers(-5, 60))
def test_no_size_is_too_small_and_none_is_exceeded(scene: Scene, width: int, height: int) -> None:
    told = Console(file=io.StringIO(), width=max(1, width), color_system=None)
    with told.capture() as captured:
        told.print(render(scene, width, height))
    drawn = captured.get().rstrip("\n").split("\n") if captured.get().strip() else []
    assert len(drawn) <= max(0, height)
    assert all(cell_len(line) <= width for line in drawn)


@pytest.mark.parametrize("name", SCENES)
def test_the_pictures_in_the_documentation_are_of_this_view(name: str) -> None:
    made = svg(SCENES[name], name)
    assert made == (IMAGES / f"{name}.svg").read_text(), "python -m tests.tools.screenshots"
    assert "url(" not in made.replace("url(#", ""), "nothing is fetched"
