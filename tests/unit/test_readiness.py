"""When all proofs of readiness agree, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from supervise.model.need import Need, Port
from supervise.model.probe import Answer, Probed
from supervise.runner.readiness import Readiness
from tests.support.virtual import play

PORTS = (Port(8000, "", "http", "default"),)
SERVED = Need("vllm", "r", (), (), ports=PORTS)
UNSERVED = Need("vllm", "r", (), ())
YES, SILENT, NOT_YET = Probed(Answer.YES), Probed(Answer.SILENT), Probed(Answer.NOT_YET)
LOST = Probed(Answer.NOT_OURS, "pid 9 nginx")
LIMIT_S = 100.0


class Course:
    """What a probe finds from which second on, and when the line comes.

    Attributes:
        at_s: the second in which the answer came, None if none did.
        probed: that answer.
        asked_at: the seconds in which the server was asked.
        last: what was found last.
    """

    def __init__(self, *found: tuple[float, Probed], line_s: float | None, need: Need, expects_line: bool) -> None:
        self.asked_at: list[float] = []
        self._found, self._line_s, self._need, self._expects_line = found, line_s, need, expects_line
        self.probed, self.at_s = play(self._run())

    async def _run(self) -> tuple[Probed | None, float | None]:
        clock = asyncio.get_running_loop().time

        def probe(_members: object) -> Probed:
            self.asked_at.append(clock())
            return [probed for since, probed in self._found if since <= clock()][-1]

        async def at_once(function: Callable[..., Probed], *arguments: object) -> Probed:
            return function(*arguments)

        readiness = Readiness(self._need, probe, expects_line=self._expects_line, clock=clock, in_thread=at_once)
        self.readiness = readiness
        if self._line_s is not None:
            asyncio.get_running_loop().call_later(self._line_s, readiness.announce)
        try:
            found = await asyncio.wait_for(readiness.found(list, lambda: clock() < LIMIT_S), LIMIT_S + 1)
        except TimeoutError:
            return None, None
        return found, None if found is None else clock()

    @property
    def last(self) -> Probed | None:
        return self.readiness.last


def course(*found: tuple[float, Probed], line_s: float | None = None, need: Need = SERVED, line: bool = True) -> Course:
    return Course(*found, line_s=line_s, need=need, expects_line=line)


def test_line_and_http_agree() -> None:
    assert course((0, SILENT), (30, YES), line_s=30).at_s == pytest.approx(30, abs=1)


def test_the_line_alone_is_not_enough() -> None:
    assert course((0, SILENT), line_s=3).probed is None
    assert course((0, NOT_YET), line_s=3).probed is None


def test_http_waits_for_the_line() -> None:
    assert course((0, YES), line_s=5).at_s == pytest.approx(5)


def test_a_server_that_was_told_to_log_less_is_ready_once_it_has_answered_for_a_while() -> None:
    assert course((0, SILENT), (7, YES)).at_s == pytest.approx(17, abs=1)
    # One that stops answering in between starts anew.
    assert course((0, YES), (5, NOT_YET), (8, YES)).at_s == pytest.approx(18, abs=1)


def test_without_a_line_to_expect_http_decides() -> None:
    assert course((0, SILENT), (4, YES), line=False).at_s == pytest.approx(4, abs=1)


def test_the_note_comes_with_the_answer() -> None:
    noted = Probed(Answer.YES, note="401")
    assert course((0, noted), line_s=1).probed == noted


def test_one_that_says_it_is_up_while_another_answers_has_lost_its_port() -> None:
    found = course((0, LOST), line_s=5)
    assert (found.probed, found.at_s) == (LOST, pytest.approx(20, abs=1))


def test_what_was_found_last_is_kept() -> None:
    """Should it be ended for want of time, that is the cause."""
    assert course((0, SILENT), (40, LOST)).last == LOST
    assert course((0, LOST), (40, SILENT)).last == SILENT


def test_while_it_loads_another_on_its_port_is_no_end() -> None:
    assert course((0, LOST)).probed is None


def test_another_that_was_there_for_a_moment_is_no_end() -> None:
    """A socket that is closed between two readings belongs to nobody; a slow /health has nothing to do with it."""
    found = course((0, NOT_YET), (40, LOST), (43, NOT_YET), (60, YES), line_s=5)
    assert (found.probed, found.at_s) == (YES, pytest.approx(60, abs=1))


def test_a_server_that_works_for_each_answer_is_asked_seldom_and_at_once_when_it_says_it_is_up() -> None:
    slow = Probed(Answer.NOT_YET, again_s=5)
    found = course((0, slow), (22, YES), line_s=22)
    assert found.asked_at == pytest.approx([0, 5, 10, 15, 20, 22])


def test_nothing_to_ask_is_ready_by_its_line() -> None:
    assert course((0, SILENT), line_s=9, need=UNSERVED).at_s == pytest.approx(9)
    assert course((0, SILENT), need=UNSERVED).probed is None
    assert course((0, SILENT), need=UNSERVED, line=False).at_s == 0


def test_a_port_of_grpc_is_looked_at() -> None:
    grpc = Need("vllm", "r", (), (), ports=(Port(8000, "", "grpc", "--port"),))
    assert course((0, SILENT), line_s=9, need=grpc).probed is None
    assert course((0, SILENT), (12, YES), line_s=9, need=grpc).at_s == pytest.approx(12, abs=1)
