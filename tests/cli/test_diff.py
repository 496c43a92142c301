"""`supervise diff` and `supervise history` on records that were made by hand, damaged ones among them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Run, Store
from supervise.model.sources import Base, Change, Root, Source, Sources
from supervise.report import sides
from supervise.report.patches import Patch
from supervise.report.since import since
from supervise.verbs.diff import diff
from supervise.verbs.history import history
from tests.cli.test_report import CAUSE, make

TEXT = "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1 +1 @@\n-x = 1\n+x = '\f\udcff'\n"
PATCH = Patch("vllm", "vllm/a.py", TEXT, 1, 1, known=True)
CODE = Sources("/venv/bin/python", "3.12.1", {"vllm": "0.11.0"}, (Root("vllm", "/site", Base.WHEEL, "0.11.0"),))
REST = {
    "environment": {},
    "options": [],
    "limits": {},
    "limits_raised": [],
    "gpus": None,
    "supervise": "0.1.0",
    "interpreter": "/venv/bin/python",
}

Asked = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    found = Store(str(tmp_path / "supervise")).run("vllm-8000")
    found.create()
    return found


@pytest.fixture
def asked(run: Run, capfd: pytest.CaptureFixture[str]) -> Asked:
    def ask(*numbers: int, as_json: bool = False, patch: bool = False) -> tuple[int, str]:
        capfd.readouterr()
        return diff(None, numbers, as_json=as_json, patch=patch), capfd.readouterr().out

    return ask


def attempt(run: Run, *, code: bool = True, **more: Any) -> int:
    number = make(run, **{**more, "record": REST | more.get("record", {})})
    if code:
        sources.write(run.attempt(number), CODE, {})
    return number


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "patches", lambda *_: (PATCH,))


@pytest.fixture
def unpatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "patches", lambda *_: ())


@pytest.mark.usefixtures("unpatched")
def test_exit_status_is_that_of_diff(run: Run, asked: Asked) -> None:
    attempt(run)
    attempt(run)
    attempt(run, record={"cwd": "/tmp"})
    attempt(run, record={"cwd": "/tmp"}, code=False)
    assert asked(1, 2)[0] == 0
    assert asked(2)[0] == 0
    assert asked(2, 3)[0] == 1
    assert asked(3, 4) == asked()
    status, said = asked(as_json=True)
    assert (status, json.loads(said)["same"], json.loads(said)["unknown"]) == (1, None, ["code of #4"])
    assert asked(1)[0] == 2
    assert asked(9)[0] == 2


def test_an_empty_run_has_nothing_to_compare(run: Run, asked: Asked) -> None:
    assert asked() == (2, "")


@pytest.mark.usefixtures("patched")
def test_all_of_it_is_told(run: Run, asked: Asked) -> None:
    attempt(run, cause=CAUSE)
    attempt(run, record={"environment": {"VLLM_X": "1"}})
    status, said = asked()
    assert status == 1
    assert said.splitlines() == [
        "diff     vllm-8000, attempt 1 -> attempt 2",
        "environ  VLLM_X: unset -> 1",
        "code     patch vllm/a.py (+1 −1)",
        "ended    cause moved: ValueError (vllm-weights-missing) at weights -> ready",
    ]


@pytest.mark.usefixtures("patched")
def test_a_patch_comes_out_as_it_is(run: Run, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    attempt(run)
    attempt(run)
    assert diff(None, (), as_json=False, patch=True) == 1
    assert capfdbinary.readouterr().out.endswith(b"\n" + TEXT.encode("utf-8", "surrogateescape"))


@pytest.mark.usefixtures("patched")
def test_the_text_of_patches_is_in_the_json_where_it_was_asked_for(run: Run, asked: Asked) -> None:
    attempt(run)
    attempt(run)
    assert json.loads(asked(as_json=True, patch=True)[1])["patches"] == [PATCH._asdict()]
    assert "text" not in json.loads(asked(as_json=True)[1])["patches"][0]


@pytest.mark.usefixtures("unpatched")
@pytest.mark.parametrize("name", ["attempt", "outcome", "sources"])
@pytest.mark.parametrize("damage", [None, b"", b"[]", b'{"version": 1, "ready_s": 1e999, "argv": 7}'])
def test_a_record_that_is_missing_or_damaged_is_unknown(
    run: Run, asked: Asked, name: str, damage: bytes | None
) -> None:
    for _ in range(2):
        attempt(run)
    path = Path(run.attempt(1).path, f"{name}.json")
    path.unlink() if damage is None else path.write_bytes(damage)
    status, said = asked()
    assert (status, "of #1" in said, "nothing recorded differs" in said) == (1, True, True)
    assert (f"note: {name}.json of #1" in said) == (damage is not None or name != "sources")
    assert history(None, last=None, as_json=False) == 0


@pytest.mark.usefixtures("patched")
def test_a_history(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    attempt(run, cause=CAUSE)
    attempt(run)
    attempt(run, code=False)
    assert history(None, last=2, as_json=True) == 0
    two, three = json.loads(capfd.readouterr().out)["attempts"]
    assert (two["attempt"], two["before"], two["reached"], two["seconds"]) == (2, 1, "ready", 5.0)
    assert (two["changed"], two["unknown"]) == (["patch vllm/a.py (+1 −1)"], [])
    assert (three["changed"], three["unknown"]) == ([], ["code of #3"])
    assert history(None, last=None, as_json=False) == 0
    head, one, *_ = capfd.readouterr().out.splitlines()
    assert head.split() == ["#", "when", "seconds", "reached", "cause", "changed"]
    assert one.split()[5:] == ["weights", "vllm-weights-missing", "-"]


def edited(run: Run, content: bytes) -> int:
    number = attempt(run, code=False)
    source = Source("vllm/a.py", Change.MODIFIED, hashlib.sha256(content).hexdigest(), len(content), kept=True)
    roots = (Root("vllm", "/site", Base.WHEEL, "0.11.0", (source,)),)
    sources.write(run.attempt(number), dataclasses.replace(CODE, roots=roots), {("/site", source.path): content})
    return number


def test_what_was_edited_is_told_from_the_copies(run: Run, asked: Asked) -> None:
    edited(run, b"x = 1\n")
    edited(run, b"x = 2\ny = 3\n")
    assert "code     patch vllm/a.py (+2 −1)\n" in asked()[1]
    assert "\n-x = 1\n+x = 2\n+y = 3\n" in asked(patch=True)[1]


def test_lines_after_an_attempt_compare_with_the_newest_that_is_kept(run: Run) -> None:
    for value in b"1234":
        edited(run, b"x = %c\n" % value)
    for number in (2, 3):
        os.rename(run.attempt(number).path, run.attempt(number).path + ".pruned")
    last = run.attempt(4)
    told = since(run, last, last.read("outcome") or {})
    assert told == ("differs from #1 by: patch a.py (+1 −1)", "ready as #1")
    assert since(run, run.attempt(1), {}) == ()


def test_what_goes_wrong_in_them_is_not_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt(run)
    attempt(run)
    monkeypatch.setattr(Run, "numbers", lambda _: 1 / 0)
    assert since(run, run.attempt(2), {}) == ()
