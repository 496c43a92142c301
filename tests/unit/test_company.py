"""Those who listen until the end: in which order they go, and how long hooks have."""

from __future__ import annotations

import asyncio

import pytest

from supervise.runner.audience import Audience
from supervise.runner.listeners import Company, _Allowance


class Fake:
    """Hooks, or somebody who listens; writes down what happens to it."""

    def __init__(self, happened: list[str], name: str, *, raises: bool = False) -> None:
        self.happened, self.name, self.raises = happened, name, raises
        self.most_s: float | None = None

    def hear(self, news: object) -> None: ...

    def close(self) -> None:
        self.happened.append(f"{self.name} closes")

    def hurry(self) -> None:
        self.happened.append("hurry")

    async def finished(self, most_s: float | None = None) -> None:
        self.most_s = most_s
        self.happened.append(f"{self.name} finishes")
        if self.raises:
            raise OSError(0, "no")


@pytest.mark.parametrize("raises", [False, True])
def test_all_listen_until_hooks_are_over(raises: bool) -> None:
    happened: list[str] = []
    hooks = Fake(happened, "hooks", raises=raises)

    async def story() -> None:
        audience = Audience([Fake(happened, "metrics"), hooks], None)
        joining = [lambda _: Fake(happened, "control")]
        company = Company(audience, joining, hooks=hooks)
        company.begin(lambda _: None)
        await company.end()

    if raises:
        with pytest.raises(OSError, match="no"):
            asyncio.run(story())
    else:
        asyncio.run(story())
    assert happened == ["hooks finishes", "metrics closes", "hooks closes", "control closes"]


def test_who_asks_while_hooks_are_waited_for_asks_them() -> None:
    happened: list[str] = []
    hooks = Fake(happened, "hooks")
    company = Company(Audience((), None), hooks=hooks, within_s=10.0)
    company.asked()
    assert happened == []
    asyncio.run(company.end())
    assert hooks.most_s is not None
    assert hooks.most_s < 10
    company.asked()
    assert happened == ["hooks finishes", "hurry"]


def test_nobody_waits_for_more_than_there_is() -> None:
    now = [100.0]
    allowance = _Allowance(5.0, lambda: now[0])
    assert allowance.left() is None
    allowance.begin()
    now[0] = 103.0
    allowance.begin()
    assert allowance.left() == pytest.approx(1.3)
    now[0] = 104.9
    assert 0 < allowance.left() < 0.5
    assert _Allowance(None).left() is None
