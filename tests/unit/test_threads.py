"""What blocks runs beside the loop; a thread that never comes to life is noticed."""

from __future__ import annotations

import _thread
import asyncio
import threading
from collections.abc import Callable

import pytest

from supervise.runner import threads


def test_results_and_errors_come_back() -> None:
    assert asyncio.run(threads.in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(threads.in_thread(divmod, 7, 0))


def told(loop: asyncio.AbstractEventLoop) -> list[str]:
    said: list[str] = []
    loop.set_exception_handler(lambda _, context: said.append(str(context["exception"])))
    return said


def refuse(*_: object) -> int:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("start", "why"), [(lambda *_: 0, "died before it began"), (refuse, "no thread can be started")]
)
def test_what_no_thread_can_be_had_for_is_done_without(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., int], why: str
) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", start)
    monkeypatch.setattr(threads, "_BIRTH_S", 0.01)
    monkeypatch.setattr(threads, "_RETRIES_S", (0.01,))

    async def act() -> None:
        said = told(asyncio.get_running_loop())
        assert await threads.in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await threads.in_thread(divmod, 7, 0)
        assert [why in each for each in said] == [True, True]

    asyncio.run(act())


def test_one_that_comes_to_life_too_late_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(_thread, "start_new_thread", lambda work, _: late.append(work) or 0)
    monkeypatch.setattr(threads, "_BIRTH_S", 0.01)
    calls: list[int] = []

    async def act() -> None:
        told(asyncio.get_running_loop())
        await threads.in_thread(calls.append, 1)
        late[0]()
        assert calls == [1]

    asyncio.run(act())


def test_one_that_began_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_BIRTH_S", 0.01)
    gate = threading.Event()

    async def wait() -> bool:
        asyncio.get_running_loop().call_later(0.05, gate.set)
        return await threads.in_thread(gate.wait, 10)

    assert asyncio.run(wait())


def test_whoever_gives_up_waiting_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(threads.in_thread(gate.wait, 10), 0.01)
        gate.set()
        await asyncio.sleep(0)

    asyncio.run(give_up())
