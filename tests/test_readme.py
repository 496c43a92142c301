"""What the README says is so."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from supervise.cli import VERBS
from supervise.model.evict import Evict
from supervise.model.exits import Exit
from supervise.preflight import NAMES
from supervise.profiles.settings import parse_settings
from tests.support.launcher import Supervise
from tests.support.readable import ROOT

README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    """The text under a heading."""
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def command(number: int) -> str:
    """The only line of the block that is marked so."""
    found = re.findall(rf"<!-- command {number} -->\n```sh\n(.+)\n```\n", README)
    assert len(found) == 1
    return str(found[0])


def test_the_two_commands() -> None:
    setup = "python3.11 -m venv .venv && .venv/bin/pip install -q -e '.[test]' && "
    assert command(1) == f"{setup}.venv/bin/supervise demo"
    assert command(2) == f"{setup}.venv/bin/python -m pytest"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "test" in project["optional-dependencies"]
    assert project["requires-python"] == ">=3.11"


def test_the_demo_shows_what_it_says(supervise: Supervise) -> None:
    """A crash with its cause, the double SIGKILL, the clean start; within the 30 seconds that `--help` names."""
    launched = supervise.run("demo", deadline_s=30.0)
    told = launched.stderr
    assert launched.popen.returncode == Exit.OK, told
    crash, both, clean = told.split("\n-- ")[1:]
    assert "\ncause    KeyError: 'model.layers.0.mlp.experts.w13_weight_scale'" in crash
    assert "\nexit     93\n" in crash
    assert "\nleft     pid " in both
    assert "\n         ended   pid " in clean
    assert "\nready    in " in clean
    assert re.search(r"^verified 0 processes left, port \d+ free, ", clean, re.MULTILINE)


def test_every_verb_of_the_usage_is_there() -> None:
    shown = re.findall(r"^supervise (\w+)", section("Use"), re.MULTILINE)
    assert set(shown) == set(VERBS) - {"run"}
    assert re.search(r"^supervise \[OPTIONS\] COMMAND…", section("Use"), re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_of_the_usage_is_there(supervise: Supervise, verb: str) -> None:
    helped = supervise.run(verb, "--help")
    line = next((line for line in section("Use").splitlines() if line.startswith(f"supervise {verb} ")), "")
    assert helped.popen.returncode == Exit.OK
    for option in re.findall(r"(?<=\[)--?[\w-]+", line):
        assert re.search(rf"(?m)^ +.*{option}\b", helped.stdout), option


def test_the_exit_table_is_what_the_code_leaves_with() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \|", section("Exit status"), re.MULTILINE)
    table = {int(number) for row in rows for number in row.split(",")}
    assert table == {int(status) for status in _used()} - {Exit.OK}


def _used() -> set[Exit]:
    """The members of Exit that any code of ours mentions."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / "supervise").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {Exit[node.attr] for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "Exit"}


def test_the_levels_of_eviction() -> None:
    table = section("Use").split("| `--evict` |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [level.value for level in Evict]


def test_the_checks_of_the_preflight() -> None:
    text = section("Use").split("### What is checked before anything is touched\n")[1].split("What is\ncertain")[0]
    told = re.findall(r"`(\w+)`", text.split("What is certain")[0])
    assert set(told) == set(NAMES)


def test_the_help_names_every_check(supervise: Supervise) -> None:
    helped = re.sub(r"\s+", " ", supervise.run("run", "--help").stdout)
    told = re.search(r"Skip a check: (.+?); or all", helped)
    assert told
    assert told[1].split(", ") == [*NAMES, "packages"]


def test_the_settings_are_understood() -> None:
    (text,) = re.findall(r"```toml\n(.+?)```", section("Use"), re.DOTALL)
    settings = parse_settings(text.encode(), "config.toml", {})
    assert settings.artefacts == ("/tmp/*_debug_*.pt",)
    assert settings.evict is Evict.OWN
    assert [pattern.pattern for pattern in settings.protected] == ["my-weight-server"]


def test_the_unit_file_line() -> None:
    told = re.search(r"`RestartPreventExitStatus=([\d ]+)`", README)
    assert told
    assert [Exit(int(number)) for number in told[1].split()] == [Exit.DETERMINISTIC, Exit.SLATE, Exit.SURVIVORS]


def test_the_layout_is_the_tree() -> None:
    places = re.findall(r"^\| `([\w/.]+)` \|", section("Layout"), re.MULTILINE)
    assert [place for place in places if not (ROOT / place).exists()] == []
    packages = {f"supervise/{path.parent.name}/" for path in ROOT.glob("supervise/*/__init__.py")}
    assert packages <= set(places)
    verbs = next(line for line in section("Layout").splitlines() if "`supervise/verbs/`" in line)
    assert set(re.findall(r"`(\w+)`", verbs)) == set(VERBS) - {"run"}
