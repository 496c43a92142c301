"""What blocks runs beside the loop; a thread that never comes to life is noticed."""

from __future__ import annotations

import _thread
import asyncio
import threading

import pytest

from supervise.runner import threads


def test_results_and_errors_come_back() -> None:
    assert asyncio.run(threads.in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(threads.in_thread(divmod, 7, 0))


def test_a_thread_that_dies_before_it_begins_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: 0)
    monkeypatch.setattr(threads, "_BIRTH_S", 0.01)
    with pytest.raises(MemoryError, match="before it began"):
        asyncio.run(threads.in_thread(divmod, 7, 2))


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
