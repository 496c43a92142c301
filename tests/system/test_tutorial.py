"""The tutorial is a transcript. With UPDATE_GOLDEN=1 what is told otherwise is written, and the rest stays."""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path

import pytest

from supervise.demo import installation
from tests.cli.test_golden import normalise
from tests.support.launcher import Supervise, free_port
from tests.support.readable import ROOT
from tests.support.transcript import Step, Terminal, agree, mended, steps
from tests.support.waiting import wait_until
from tests.test_readme import command
from tests.tools.screenshots import IMAGES, excerpts

TUTORIAL = ROOT / "docs/tutorial.md"
UPDATES = bool(os.environ.get("UPDATE_GOLDEN"))
_PORT, _HOME = "8123", "/home/you"
# What else depends on the machine, beside what the golden texts know.
_CHANGING = (
    (r"python3\.\d+", "python3"),
    (r"(?m)  (ETA <time>|overdue)$", ""),
    (r", held by [\w +]+(?=  )", ""),
    (r" \(<time> -> <time>\)", ""),
    (r"(?m)^times .*\n(?: {9}.*\n)*", ""),
    # Long lines are cut, and how long a path is differs.
    (r'(?m)(tiny\.py", line \d+), in .*$', r"\1"),
    # What others have left on this host.
    (r"(?m)^ +note +\d+ segments? in /dev/shm, .*\n", ""),
    (r"\d{8}T\d{6}-\d+", "<stamp>"),
    (r"(?<=\S) {2,}", "  "),
)


def alike(text: str) -> str:
    """The same on every machine."""
    text = normalise(text, Path(_HOME))
    for pattern, word in _CHANGING:
        text = re.sub(pattern, word, text)
    return text


class Desk:
    """Two terminals in a fresh home, with a clone that has been set up."""

    def __init__(self, supervise: Supervise) -> None:
        self.home, self._port = supervise.base / "home", str(free_port())
        self._state = supervise.state = self.home / ".local/state"
        (self.home / "supervise").mkdir()
        (self.home / "supervise/.venv").symlink_to(sys.prefix)
        assert (self.home / "supervise/.venv/bin/supervise").exists(), "pip install -e ."
        left_out = ("XDG_STATE_HOME", "PYTHONDONTWRITEBYTECODE")
        env = {name: value for name, value in supervise.env.items() if name not in left_out}
        self._first, self._second = (Terminal(self.home, env, supervise.base / name) for name in ("first", "second"))

    def do(self, step: Step) -> str:
        """Type it, if there is something to type; what follows, as a reader would see it."""
        goes_on = step.where == "first terminal"
        terminals = {"": [self._second], "first terminal": [self._first]}.get(step.where, [self._first, self._second])
        told = ""
        if step.command is not None and step.command.startswith("sed "):
            # A reader is not as fast as this: what the package was is archived in the background.
            wait_until(lambda: list(self._state.glob("supervise/.originals/*.zip")), failure=lambda: "no originals")
        for terminal in terminals:
            if step.command is not None:
                terminal.type(step.command.replace(_PORT, self._port))
            told = terminal.told(not goes_on, lambda text: self._is_all(text, step))
        return self._seen(told)

    def _is_all(self, text: str, step: Step) -> bool:
        """Whether nothing more is to come; nobody knows that of what is yet to be written."""
        return not UPDATES and agree(alike(self._seen(text)), alike(step.output))

    def _seen(self, text: str) -> str:
        return text.replace(self._port, _PORT).replace(str(self.home), _HOME)

    def close(self) -> None:
        """Both are ended."""
        self._first.close()
        self._second.close()


def test_every_command_tells_what_is_written(supervise: Supervise) -> None:
    document, desk = TUTORIAL.read_text(), Desk(supervise)
    try:
        told = [(step, desk.do(step)) for step in steps(document)]
    finally:
        desk.close()
    wrong = [(step, text) for step, text in told if not agree(alike(text), alike(step.output))]
    if UPDATES:
        for step, text in reversed(wrong):
            document = document[: step.begins] + written_anew(step.output, text) + document[step.ends :]
        TUTORIAL.write_text(document)
        return
    pairs = [(alike(step.output).splitlines(), alike(text).splitlines()) for step, text in wrong]
    differences = [line for pair in pairs for line in difflib.unified_diff(*pair, "written", "told", n=1)]
    assert not wrong, "\n".join(differences)


def written_anew(output: str, text: str) -> str:
    """What is to stand in the document; a line that may be there or not is left out."""
    told, written = ([line for line in each.splitlines(True) if alike(line)] for each in (text, output))
    return mended(told, written, ([*map(alike, told)], [*map(alike, written)]))


def test_it_begins_with_what_the_readme_begins_with() -> None:
    assert f"```sh\n{command(1)}\n```" in TUTORIAL.read_text()


def test_its_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([\w./-]+)\)", TUTORIAL.read_text())
    assert targets
    assert [target for target in targets if not (TUTORIAL.parent / target).exists()] == []


def test_what_is_there_already_is_not_installed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert installation.main([str(tmp_path / "engine")]) == 0
    before = (tmp_path / "engine/bin/vllm").stat().st_ino
    assert installation.main([str(tmp_path / "engine")]) == 2
    assert capsys.readouterr().err.endswith("engine: File exists; name a directory that is not there yet\n")
    assert (tmp_path / "engine/bin/vllm").stat().st_ino == before
    assert installation.main([]) == installation.main(["--help"]) == 2


@pytest.mark.parametrize("name", ["tutorial-cause", "tutorial-diff"])
def test_its_pictures_are_of_its_text(name: str) -> None:
    if UPDATES:
        (IMAGES / f"{name}.svg").write_text(excerpts()[name])
    assert excerpts()[name] == (IMAGES / f"{name}.svg").read_text(), "python -m tests.tools.screenshots"


@pytest.mark.parametrize(
    ("told", "written", "agrees"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a\nb\nc\nd\n", "a\n…\nd\n", True),
        ("a\nd\n", "a\n…\nd\n", True),
        ("a\nb\n", "a\n…\nd\n", False),
        ("a\nb\n", "a\n", False),
        ("ready  in 1.2 s\n", "ready  in 3 s\n", True),
        ("attempt  2\n", "attempt  3\n", False),
    ],
)
def test_what_agrees(told: str, written: str, agrees: bool) -> None:
    assert agree(alike(told), alike(written)) is agrees


def test_what_is_told_otherwise_is_written_and_the_rest_stays() -> None:
    written = "ready  in 3 s\n…\nexit 93\n"
    assert written_anew(written, "ready  in 1 s\nx\ny\nexit 0\n") == "ready  in 3 s\nx\ny\nexit 0\n"
    assert written_anew(written, "going  in 1 s\nx\nexit 93\n").endswith("\nexit 93\n")


def test_steps() -> None:
    document = "a\n```console\n$ x\n1\n2\n$ y\n```\n<!-- first terminal -->\n```console\n```\n```sh\n$ no\n```\n"
    found = steps(document)
    assert [(step.where, step.command, step.output) for step in found] == [
        ("", "x", "1\n2\n"),
        ("", "y", ""),
        ("first terminal", None, ""),
    ]
    assert [document[step.begins : step.ends] for step in found] == [step.output for step in found]
