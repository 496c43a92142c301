"""`supervise completion`: what Tab offers, in the shells themselves."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from supervise.cli.candidates import Known, answer
from supervise.cli.parser import app
from tests.support.launcher import Supervise

SHELL = {name: shutil.which(name) for name in ("bash", "zsh", "fish")}
needs_zsh = pytest.mark.skipif(SHELL["zsh"] is None, reason="no zsh")
needs_fish = pytest.mark.skipif(SHELL["fish"] is None, reason="no fish")

# bash itself would set these (bash(1), Shell Variables), and take words apart as COMP_WORDBREAKS has it.
BASH = """\
compopt() { printf 'option %s\\n' "$@"; }
COMP_LINE=$1
shift
COMP_WORDS=("$@")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_supervise
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Its own functions work within a real completion only: what they are asked for is told.
ZSH = """\
compdef() { }
_describe() { print -rl -- "${(@P)4}" }
_files() { print files }
_command_names() { print commands }
eval "$(supervise completion zsh)"
words=("$@") CURRENT=$#
_supervise
"""


class Shells:
    """Each of them finds our `supervise` on its PATH."""

    def __init__(self, supervise: Supervise) -> None:
        self._supervise = supervise
        programs = supervise.base / "bin"
        programs.mkdir()
        (programs / "supervise").write_text(f'#!/bin/sh\nexec {shlex.quote(supervise.python)} -m supervise "$@"\n')
        (programs / "supervise").chmod(0o755)
        self._env = supervise.env | {"PATH": f"{programs}:/usr/bin:/bin"}
        self._bash: str | None = None

    def ask(self, *argv: str) -> list[str]:
        """What a shell offers."""
        done = subprocess.run(
            argv, env=self._env, cwd=self._supervise.base, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    def bash(self, line: str, *parts: str) -> list[str]:
        """What bash offers at the end of this line, which it has taken apart into these."""
        if self._bash is None:
            self._bash = "\n".join(self.ask("supervise", "completion", "bash"))
        script = f"{self._bash}\n{BASH}"
        return self.ask(str(SHELL["bash"]), "-c", script, "bash", line, *(parts or line.split(" ")))


@pytest.fixture
def shells(supervise: Supervise) -> Shells:
    return Shells(supervise)


def run_named(supervise: Supervise, name: str) -> None:
    """A run that is over."""
    path: Path = supervise.state / "supervise" / name
    (path / "attempts").mkdir(parents=True, mode=0o700)
    (path / "run.json").write_text(json.dumps({"version": 1, "run": name, "state": "done"}))


def hosts_named(supervise: Supervise) -> None:
    """Hosts of which this user's ssh has been told; `expanduser` goes by HOME."""
    told = supervise.base / "home/.ssh"
    told.mkdir(parents=True)
    (told / "config").write_text("Host gpu1-of-mine gpu2-of-mine *.of-mine\n")


GPUS = {"gpu1-of-mine", "gpu2-of-mine"}


def test_bash(shells: Shells, supervise: Supervise) -> None:
    run_named(supervise, "mine-8000")
    assert shells.bash("supervise --na") == ["--name"]
    assert shells.bash("supervise logs ") == ["mine-8000"]
    assert {"status", "stop", "stty"} <= set(shells.bash("supervise st"))
    assert shells.bash("supervise vllm serve --na") == ["option -o", "option default", ""]
    # Whatever is offered takes the place of the last part alone.
    assert shells.bash("supervise --profile=vl", "supervise", "--profile", "=", "vl") == ["vllm"]
    assert "vllm" in shells.bash("supervise --profile=", "supervise", "--profile", "=")
    assert shells.bash("supervise -H me@box --na", "supervise", "-H", "me", "@", "box", "--na") == ["--name"]
    hosts_named(supervise)
    assert set(shells.bash("supervise -H me@gpu", "supervise", "-H", "me", "@", "gpu")) == GPUS
    assert set(shells.bash("supervise -Hgpu")) == {f"-H{name}" for name in GPUS}
    assert set(shells.bash("supervise --host=gpu", "supervise", "--host", "=", "gpu")) == GPUS


@needs_zsh
def test_zsh(shells: Shells, supervise: Supervise) -> None:
    run_named(supervise, "mine-8000")

    def zsh(*words: str) -> list[str]:
        return shells.ask(str(SHELL["zsh"]), "-f", "-c", ZSH, "zsh", "supervise", *words)

    assert zsh("--na") == ["--name:Name of the run. Default: <profile>-<port>."]
    assert zsh("logs", "") == ["mine-8000:"]
    assert zsh("vllm", "serve", "--na") == ["files"]
    assert zsh("sto") == ["stop:Stop a run and wait for its verified end.", "commands"]
    hosts_named(supervise)
    assert set(zsh("-H", "me@gpu")) == {f"me@{name}:" for name in GPUS}
    assert set(zsh("-Hgpu")) == {f"-H{name}:" for name in GPUS}


@needs_fish
def test_fish(shells: Shells, supervise: Supervise) -> None:
    run_named(supervise, "mine-8000")
    (supervise.base / "model.gguf").touch()

    def fish(line: str) -> list[str]:
        script = f"supervise completion fish | source; complete -C {shlex.quote(line)}"
        return shells.ask(str(SHELL["fish"]), "--no-config", "-c", script)

    assert fish("supervise --na") == ["--name\tName of the run. Default: <profile>-<port>."]
    assert fish("supervise logs ") == ["mine-8000"]
    assert fish("supervise vllm serve mod") == ["model.gguf"]
    assert "stop\tStop a run and wait for its verified end." in fish("supervise sto")
    hosts_named(supervise)
    assert set(fish("supervise -H me@gpu")) == {f"me@{name}" for name in GPUS}
    assert set(fish("supervise -Hgpu")) == {f"-H{name}" for name in GPUS}
    assert set(fish("supervise --host=gpu")) == {f"--host={name}" for name in GPUS}


KNOWN = Known(lambda live: ["lives"] if live else ["over"], list, lambda: ["gpu1", "10.0.0.7"])


@pytest.mark.parametrize(
    ("words", "first", "among"),
    [
        ([""], "commands", {"stop", "run", "completion"}),
        (["--"], "words", {"--grace", "--host", "--version"}),
        (["run", "--"], "words", {"--grace", "--detach"}),
        (["--evict", ""], "words", {"own", "stale", "engines", "all"}),
        (["--grace", ""], "words", set()),
        (["--name", "X", ""], "commands", set()),
        (["-H", ""], "words", {"gpu1", "10.0.0.7"}),
        (["-H", "g"], "words", {"gpu1"}),
        (["--host", "me@"], "words", {"me@gpu1", "me@10.0.0.7"}),
        (["-Hme@g"], "words", {"-Hme@gpu1"}),
        (["--host=g"], "words", {"--host=gpu1"}),
        (["-H"], "words", {"-H"}),
        (["vllm", "-Hg"], "files", set()),
        (["-H", "box", "stop", ""], "words", set()),
        (["-Hbox", "logs", ""], "words", set()),
        (["-H", "box", "--name", ""], "words", set()),
        (["-H", "box", ""], "commands", {"stop"}),
        (["-H", "box", "completion", ""], "words", {"bash", "zsh", "fish"}),
        (["explain", ""], "files", set()),
        (["stop", ""], "words", {"lives"}),
        (["logs", ""], "words", {"over"}),
        (["logs", "--"], "words", {"--follow", "--help"}),
        (["--name", ""], "words", {"over"}),
        (["--", "prog", "--na"], "files", set()),
        (["--nonsense", ""], "commands", set()),
    ],
)
def test_what_is_answered(words: list[str], first: str, among: set[str]) -> None:
    found = answer(typer.main.get_command(app), words, KNOWN)
    offered = {candidate.word for candidate in found.candidates}
    assert found.kind == first
    assert among <= offered
    if first == "files" or not among:
        assert not offered


def test_a_shell_that_nobody_knows(supervise: Supervise) -> None:
    refused = supervise.run("completion", "csh")
    assert refused.popen.returncode == 2
    assert "'bash', 'zsh', 'fish'" in refused.stderr
