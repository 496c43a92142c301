"""The header of one safetensors file: what is wrong with it is told, whatever it holds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervise.host.safetensors import Damage, Header, Unread, read
from tests.support.checkpoints import POINTER, safetensors

SOUND = safetensors(a=16, b=32)


def reading(directory: Path, content: bytes) -> Header | Damage | Unread:
    path = directory / "model.safetensors"
    path.write_bytes(content)
    return read(str(path))


def with_header(value: object, tail: bytes = b"") -> bytes:
    text = json.dumps(value).encode()
    return len(text).to_bytes(8, "little") + text + tail


def test_a_sound_file(tmp_path: Path) -> None:
    assert reading(tmp_path, SOUND) == Header(frozenset("ab"), 48)
    assert reading(tmp_path, with_header({})) == Header(frozenset(), 0)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "empty"),
        (b"abc", "no header"),
        (SOUND[:-1], "cut short: "),
        (SOUND[:40], "cut short within its header"),
        (SOUND + b"x", "more than it should"),
        (b"\xff" * 64, "no length"),
        (b"PK\3\4" + b"\0" * 4 + b"x" * 2**10, "cut short within its header"),
        ((2).to_bytes(8, "little") + b"{!", "no list of tensors"),
        ((2).to_bytes(8, "little") + b"\xff\xff", "no list of tensors"),
        (with_header([]), "no list of tensors"),
        (with_header({"a": {"dtype": "U8"}}), "no list of tensors"),
        (with_header({"a": {"data_offsets": [3, 1]}}), "no list of tensors"),
        (with_header({"a": {"data_offsets": [0, True]}}, b"x"), "no list of tensors"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "no list of tensors"),
    ],
)
def test_a_damaged_file(tmp_path: Path, content: bytes, told: str) -> None:
    found = reading(tmp_path, content)
    assert isinstance(found, Damage)
    assert told in found.text
    assert not found.pointer


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    found = reading(tmp_path, POINTER)
    assert isinstance(found, Damage)
    assert found.pointer


def test_what_cannot_be_read_is_not_judged(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    for name in ("fifo", "directory", "absent"):
        assert isinstance(read(str(tmp_path / name)), Unread)
    # A header that is larger than we read: sparse, so that it costs nothing.
    large = tmp_path / "large"
    large.write_bytes((50_000_000).to_bytes(8, "little"))
    os.truncate(large, 60_000_000)
    assert isinstance(read(str(large)), Unread)


HEADERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "data_offsets", "dtype", "__metadata__"]) | st.text(max_size=4), inner)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=200) | HEADERS.map(with_header) | st.integers(0, len(SOUND)).map(lambda n: SOUND[:n]))
def test_garbage_never_raises_and_only_the_whole_file_is_sound(tmp_path: Path, content: bytes) -> None:
    found = reading(tmp_path, content)
    if isinstance(found, Header):
        length = int.from_bytes(content[:8], "little")
        assert found.nbytes <= len(content) - 8 - length
    assert content == SOUND or not isinstance(found, Header) or not SOUND.startswith(content)
