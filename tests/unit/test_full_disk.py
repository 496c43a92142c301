"""A state directory on a full disk: what can be kept is, and nothing half-made counts as an attempt."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervise.attempts.store import Run, StoreError
from supervise.host import files, procfs
from supervise.model.need import Need
from supervise.model.snapshot import NO_GPUS
from supervise.model.tier import Tier, Tiers
from supervise.runner.attempt import Opened


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(str(tmp_path), "r")
    made.create()
    made.open_attempt()
    made.write_state({"state": "ready", "phase": "a phase with a long name"})
    return made


def refuse(number: int) -> Any:
    def refused(*_arguments: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


@pytest.mark.parametrize("state", [{"state": "done"}, {"state": "done", "more": "x" * 1000}])
def test_the_state_goes_where_the_last_one_was(
    run: Run, monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]
) -> None:
    monkeypatch.setattr(files, "write_atomic", refuse(errno.ENOSPC))
    run.write_state(state)
    assert run.read_state() == {"version": 1, **state}
    json.loads(Path(run.path, "run.json").read_text())


def test_what_does_not_fit_there_is_refused_and_the_last_one_stays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "write_atomic", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        run.write_state({"state": "done", "more": "x" * 100_000})
    assert (run.read_state() or {})["state"] == "ready"


def test_where_there_was_none_there_is_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    os.unlink(os.path.join(run.path, "run.json"))
    monkeypatch.setattr(files, "write_atomic", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        run.write_state({"state": "done"})
    assert run.read_state() is None


def test_other_errors_are_not_worked_around(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "write_atomic", refuse(errno.EROFS))
    with pytest.raises(OSError, match="Read-only"):
        run.write_state({"state": "done"})


@pytest.mark.parametrize("call", ["open", "symlink"])
def test_an_attempt_that_could_not_be_begun_is_none(run: Run, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    real = getattr(os, call)

    def full(*arguments: Any, **more: Any) -> Any:
        if "0002" in str(arguments[0]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(StoreError, match="No space left"):
            run.open_attempt()
    assert run.numbers() == [1]
    assert os.readlink(os.path.join(run.path, "latest")) == "attempts/0001"
    assert run.open_attempt().number == 3


@pytest.mark.parametrize("what", ["private_directory", "write_json"])
def test_neither_is_one_whose_records_could_not_be(run: Run, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(files, what, refuse(errno.ENOSPC))
    us: Any = SimpleNamespace(id=procfs.self_id(), guard=procfs.self_id())
    planned: Any = SimpleNamespace(
        need=Need("vllm", "r", (), (), ports=()), env={}, options=SimpleNamespace(trial=None)
    )
    with pytest.raises(OSError, match="No space left"):
        Opened.begin(run, ["x"], planned, NO_GPUS, keeper=us, tiers=Tiers((Tier.SUBREAPER,), None, {}))
    assert run.numbers() == [1]
    assert os.readlink(os.path.join(run.path, "latest")) == "attempts/0001"
