"""The engine's own YAML, as the plan reads it: never waited for, never larger than it may be, a pipe left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervise.runner.plan import Options, make


def notes(config: str, home: Path) -> str:
    """What is said of a launch with that configuration."""
    command = ["vllm", "serve", "m", "--config", config]
    return "\n".join(make(command, {"HOME": str(home), "PATH": "/usr/bin"}, Options()).need.notes)


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("port: 8123\n")
    command = ["vllm", "serve", "m", "--config", str(tmp_path / "c.yaml")]
    need = make(command, {"HOME": str(tmp_path), "PATH": "/usr/bin"}, Options()).need
    assert 8123 in [port.number for port in need.ports]


def test_what_is_no_file_is_a_note(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        assert f"{path} is not understood, ports and devices may differ: is no regular file" in notes(path, tmp_path)
    assert "Is a directory" in notes(str(tmp_path), tmp_path)


def test_what_is_in_a_pipe_is_left_to_the_engine(tmp_path: Path) -> None:
    """`--config <(…)`: it can be read once."""
    reader, writer = os.pipe()
    try:
        os.write(writer, b"port: 8123\n")
        os.close(writer)
        assert "is no regular file" in notes(f"/dev/fd/{reader}", tmp_path)
        assert os.read(reader, 100) == b"port: 8123\n"
    finally:
        os.close(reader)


@pytest.mark.parametrize("size", [16 * 2**20 + 1, 2**40])
def test_what_is_too_large_is_a_note(tmp_path: Path, size: int) -> None:
    path = tmp_path / "c.yaml"
    with path.open("wb") as file:
        file.truncate(size)
    assert "has more than 16 MiB" in notes(str(path), tmp_path)
