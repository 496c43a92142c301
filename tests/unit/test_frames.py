"""Whose code a frame is in."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervise.diagnosis.frames import Owners, frames
from supervise.diagnosis.prefixes import parse
from supervise.model.diagnosis import Frame, Kind, Line, Owner, Traceback

OWNERS = Owners(("vllm", "sglang"))


def traceback(*texts: str, kind: Kind = Kind.PYTHON) -> Traceback:
    lines = tuple(Line(number, text, text) for number, text in enumerate(texts, 1))
    return Traceback(parse("ValueError: x", 99), 1, frames=lines, kind=kind)


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", Owner.ENGINE),
        ("/usr/local/lib/python3.12/dist-packages/vllm/__init__.py", Owner.ENGINE),
        ("/src/vllm/vllm/config.py", Owner.ENGINE),
        ("/sgl-workspace/sglang/python/sglang/srt/server_args.py", Owner.ENGINE),
        ("/opt/venv/bin/vllm", Owner.ENGINE),
        ("C:\\venv\\Lib\\site-packages\\vllm\\x.py", Owner.ENGINE),
        ("/opt/venv/lib/python3.12/site-packages/vllm_plugin/x.py", Owner.LIBRARY),
        ("/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", Owner.LIBRARY),
        ("/usr/lib/python3.12/multiprocessing/process.py", Owner.LIBRARY),
        ("<frozen importlib._bootstrap>", Owner.LIBRARY),
        ("<string>", Owner.LIBRARY),
        ("uvloop/loop.pyx", Owner.LIBRARY),
        ("./nptl/pthread_kill.c", Owner.LIBRARY),
        ("/tmp/torchinductor_me/ab/cab.py", Owner.LIBRARY),
        ("/code/serve.py", Owner.USER),
        ("/code/myvllm/serve.py", Owner.USER),
        ("Cell In[3]", Owner.USER),
    ],
)
def test_owner_of_a_file(file: str, owner: Owner) -> None:
    assert OWNERS.of(Frame(file, 1)) is owner


def test_what_the_user_works_on_is_the_users_wherever_it_lies() -> None:
    file = "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/llama.py"
    for mine in (file, "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/", "*/models/*.py"):
        assert Owners(("vllm",), (mine,)).of(Frame(file, 1)) is Owner.USER
    assert Owners(("vllm",), ("/opt/venv/lib/python3.12/site-packages/vll",)).of(Frame(file, 1)) is Owner.ENGINE


def test_frames_with_their_source() -> None:
    one = traceback(
        '  File "/code/a.py", line 3, in main',
        "    run(x)",
        "    ~~~^^^",
        '  File "/usr/lib/python3.12/json/decoder.py", line 9, in <module>',
        '  File "/src/vllm/b.py", line 4, in f',
        "    raise ValueError",
    )
    assert frames(one) == (
        Frame("/code/a.py", 3, "main", "run(x)"),
        Frame("/usr/lib/python3.12/json/decoder.py", 9, "<module>"),
        Frame("/src/vllm/b.py", 4, "f", "raise ValueError"),
    )
    assert OWNERS.innermost(one) == frames(one)[2]
    assert OWNERS.innermost(one, Owner.USER) == frames(one)[0]


def test_faulthandler_prints_the_innermost_first() -> None:
    one = traceback('  File "/code/a.py", line 3 in inner', '  File "/code/a.py", line 9 in outer', kind=Kind.NATIVE)
    assert [each.function for each in frames(one)] == ["outer", "inner"]
    assert OWNERS.innermost(one) == Frame("/code/a.py", 3, "inner")


def test_other_styles() -> None:
    one = traceback(
        "Cell In[3], line 1",
        "----> 1 f()",
        "File ~/code/x.py:12, in g(a)",
        "│ /code/y.py:7 in h                                   │",
    )
    assert [(each.file, each.line, each.function) for each in frames(one)] == [
        ("Cell In[3]", 1, None),
        ("~/code/x.py", 12, "g"),
        ("/code/y.py", 7, "h"),
    ]


def test_a_native_frame_of_nobody_has_no_owner() -> None:
    assert OWNERS.innermost(traceback("    no frame at all")) is None


@settings(max_examples=40)
@given(st.lists(st.text(max_size=60) | st.sampled_from(['  File "x", line 3, in f', '  File "', "│ a.py:1 in f │"])))
def test_anything_is_read(texts: list[str]) -> None:
    for frame in frames(traceback(*texts)):
        assert OWNERS.of(frame) in Owner
