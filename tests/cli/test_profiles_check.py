"""`supervise profiles check`: one line if all holds, one line for each fault if not."""

from __future__ import annotations

import re

from supervise.model.exits import Exit
from tests.support.launcher import Supervise

OWN = """
[[signature]]
id = "my-service-is-down"
role = "root"
literals = ["licence server"]
pattern = '^licence server (?P<name>\\S+) does not answer$'
class = "transient"
fatal = true
meaning = "{name} does not answer."
advice = ["Start {name}."]
match = ["licence server lic1 does not answer"]
nomatch = ["the licence server answers"]
"""


def test_what_comes_along_holds(supervise: Supervise) -> None:
    checked = supervise.run("profiles", "check")
    assert re.fullmatch(r"\d+ signatures and \d+ traps in \d+ files hold on \d+ samples\n", checked.stdout)
    assert checked.popen.returncode == Exit.OK


def test_a_file_of_ones_own_is_proven(supervise: Supervise) -> None:
    path = supervise.base / "own.toml"
    path.write_text(OWN)
    checked = supervise.run("profiles", "check", str(path))
    assert checked.stdout == "1 signatures and 0 traps in 1 file hold on 2 samples\n"
    assert checked.popen.returncode == Exit.OK


def test_each_fault_is_one_line_that_says_what_to_do(supervise: Supervise) -> None:
    path, absent, broken = (supervise.base / name for name in ("own.toml", "absent.toml", "broken.toml"))
    path.write_text(OWN.replace('"licence server lic1', '"licence serfer lic1').replace("my-service", "native-crash"))
    path.write_text(path.read_text().replace("native-crash-is-down", "native-crash"))
    broken.write_text("[[signature]]\nid = 3\n")
    checked = supervise.run("profiles", "check", str(path), str(absent), str(broken))
    lines = checked.stdout.splitlines()
    assert checked.popen.returncode == Exit.USAGE
    assert checked.stderr == ""
    assert any(line.startswith(f"{absent}: cannot be read: No such file") for line in lines), lines
    assert any(line.startswith(f"{broken}: signature") and "allowed: " in line for line in lines), lines
    assert any("native-crash: the id is used in host.toml, too; choose another" in line for line in lines), lines
    assert any("native-crash: match sample 1 holds none of the literals; add one" in line for line in lines), lines


def test_two_names_are_refused(supervise: Supervise) -> None:
    refused = supervise.run("profiles", "vllm", "sglang")
    assert refused.popen.returncode == Exit.USAGE
    assert len(refused.stderr.splitlines()) == 1
