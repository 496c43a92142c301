"""What `attach` tells to type next: over `-H` that has the host in it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from supervise.host import leash
from supervise.model.process import ProcessId
from supervise.verbs import attach as verb

HOSTS = [(None, "supervise"), (leash.Told(None, "0.0.7", "me@box"), "supervise -H me@box")]


@pytest.fixture(autouse=True)
def run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "choose", lambda *_, **__: SimpleNamespace(name="X", read_state=dict))
    monkeypatch.setattr(verb, "living", lambda *_: ProcessId(1, 1))


@pytest.mark.parametrize(("told", "called"), HOSTS)
def test_one_that_was_not_detached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: leash.Told | None, called: str
) -> None:
    monkeypatch.setattr(leash._Here, "told", told)
    monkeypatch.setattr(verb, "_console", lambda *_: None)
    assert verb.attach("X") == 2
    assert f"; see {called} status X --watch" in capsys.readouterr().err


@pytest.mark.parametrize(("told", "called"), HOSTS)
def test_a_key_leaves_it_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], told: leash.Told | None, called: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leash._Here, "told", told)
    monkeypatch.setattr(verb, "_console", lambda *_: "/nowhere")
    monkeypatch.setattr(verb, "_show", interrupted)
    monkeypatch.setattr(verb.signal, "signal", lambda *_: None)
    assert verb.attach("X") == 0
    assert f"run X goes on, {called} stop X ends it" in capsys.readouterr().err
