"""`supervise profiles check`: one line if all holds, one line for each fault if not."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise.diagnosis.proving import TooLongError
from supervise.model.exits import Exit
from supervise.profiles import data_dir
from supervise.verbs import profiles
from supervise.verbs.profiles import check
from tests.support import own_signatures
from tests.support.launcher import Supervise
from tests.support.waiting import DEADLINE_S

OWN = own_signatures.OWN.replace("licence-server-down", "my-service-is-down")


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
    assert any("native-crash: match sample 1 holds none of the literals; add one" in line for line in lines), lines


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda _: "", "there is nothing in it"),
        (lambda own: own.replace('["licence server"]', '["l"]'), "at least 4 characters"),
        (lambda own: own.replace(r"(?P<name>\S+) does", r"(?P<name>(?:\w+ ?)*)does"), "exponential effort"),
        (lambda own: own + own, "the id is used in own.toml, too; choose another"),
    ],
)
def test_what_would_be_a_burden_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[str], str], says: str
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(change(OWN))
    assert check([str(path)]) == Exit.USAGE
    assert says in capsys.readouterr().out


def test_what_editors_put_first_does_not_matter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xef\xbb\xbf" + OWN.encode())
    assert check([str(path)]) == Exit.OK, capsys.readouterr().out


def test_an_id_that_comes_along_is_said_to_be_replaced_and_a_copy_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace("my-service-is-down", "native-crash"))
    assert check([str(path)]) == Exit.OK
    assert "native-crash: the id is used in host.toml, too; this one stands in for it" in capsys.readouterr().out
    path.write_bytes((Path(data_dir()) / "signatures" / "stop.toml").read_bytes())
    assert check([str(path)]) == Exit.USAGE
    assert "asked-to-stop: the id is used in stop.toml, too, word for word" in capsys.readouterr().out


def test_standard_input_is_a_file(supervise: Supervise) -> None:
    checked = subprocess.run(
        [supervise.python, "-m", "supervise", "profiles", "check", "-"],
        input=OWN, capture_output=True, env=supervise.env, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert checked.stdout == "1 signatures and 0 traps in 1 file hold on 2 samples\n"


def test_a_proof_that_does_not_end_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a pattern explode although its structure does not tell, as with what refers to a group."""
    monkeypatch.setattr(profiles, "_ENTRY_S", 0.05)
    with pytest.raises(TooLongError), profiles._limited():
        re.search(r"^(a+)+$", "a" * 64 + "b")


def test_two_names_are_refused(supervise: Supervise) -> None:
    refused = supervise.run("profiles", "vllm", "sglang")
    assert refused.popen.returncode == Exit.USAGE
    assert len(refused.stderr.splitlines()) == 1
