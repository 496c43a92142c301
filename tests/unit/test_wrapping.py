"""Scripts of the user's own in front of an engine: which flags they cannot want for themselves, and their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervise.profiles import load
from supervise.runner.wrapping import called, unwanted

FLAGS = ("--seed", "--enable-x", "--no-yield")


def flags(path: Path, text: str, *program: str) -> set[str]:
    script = path / "start.sh"
    script.write_text(text)
    script.chmod(0o755)
    words = program or (str(script),)
    return set(unwanted([word.replace("X", str(script)) for word in words], os.environ, load.load("vllm"), FLAGS))


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/bash\nexec vllm serve "$1"\n',
        '#!/usr/bin/env bash\nvllm serve m --port "$PORT"\n',
        "#!/bin/sh -e\npython3.11 -m vllm.entrypoints.openai.api_server --model m\n",
    ],
)
def test_a_script_that_starts_the_engine_by_itself_wants_what_it_names(tmp_path: Path, text: str) -> None:
    assert flags(tmp_path, text) == set(FLAGS)
    assert flags(tmp_path, text + '[ "$1" = --enable_x ] && Y=1; seed=3; yield=1\n') == set()
    assert flags(tmp_path, text, "bash", "X", "serve") == set(FLAGS)


@pytest.mark.parametrize(
    "text",
    [
        '#!/bin/bash\n./launch.py vllm "$@"\n',
        '#!/bin/bash\npython -m launcher vllm "$@"\n',
        '#!/bin/bash\n. ./functions\nvllm serve "$@"\n',
        '#!/bin/bash\nsource functions; vllm serve "$@"\n',
        '#!/bin/bash\nexec "$ENGINE" "$@"\n',
        "#!/usr/bin/python3\nvllm\n",
        "vllm\n",
        "#!/bin/bash\nvllm\n" + "#" * 100_000,
    ],
)
def test_of_others_nobody_knows(tmp_path: Path, text: str) -> None:
    assert flags(tmp_path, text) == set()


def test_what_is_not_there_wants_nothing(tmp_path: Path) -> None:
    for program in (["bash", "-c", "vllm serve"], ["bash"], ["/nowhere/x"], ["bash", str(tmp_path)]):
        assert unwanted(program, {}, load.load("vllm"), FLAGS) == frozenset()


@pytest.mark.parametrize(
    ("program", "name"),
    [
        (["bash", "bin/start.sh", "serve"], "start.sh"),
        (["/opt/start.sh"], "start.sh"),
        (["python3", "-u", "bin/start.py"], "start.py"),
        (["bash", "-c", "vllm serve m"], "bash"),
    ],
)
def test_a_wrapper_is_called_by_its_script(program: list[str], name: str) -> None:
    assert called(program) == name
