from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervise.host import tty
from tests.support.pty import Pty


@pytest.fixture
def pty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pty]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(tty, "in_foreground", lambda _: True)
    made = Pty()
    yield made
    made.close()
