"""`supervise stop` of what is not ours to stop."""

from __future__ import annotations

import time

import pytest

from supervise.attempts.store import Run
from supervise.host import procfs, signals
from supervise.verbs import stop as verb


def test_another_users_run_is_not_waited_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(str(tmp_path), "r")
    run.create()
    # Some process that is not this one.
    init = procfs.identify(1)
    assert init is not None
    run.write_state({"host": procfs.host_id()._asdict(), "supervisor": init._asdict(), "state": "ready"})
    monkeypatch.setattr(verb, "choose", lambda *_, **__: run)
    monkeypatch.setattr(verb, "ask_to_stop", lambda *_, **__: signals.Sent.REFUSED)
    began = time.monotonic()
    assert verb.stop("r", now=False, timeout_s=5.0) == 125
    assert time.monotonic() - began < 2
    said = capfd.readouterr().err
    assert "belongs to another user" in said
    assert "--now" not in said
