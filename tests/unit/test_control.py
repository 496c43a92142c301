"""The control socket: what is asked for is done, and nobody who connects can hold up anything."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from supervise import lifecycle as life
from supervise.attempts.store import Run
from supervise.host import peers, procfs
from supervise.model import news
from supervise.model.process import ProcessId
from supervise.report.console import Console
from supervise.runner import clients, control
from supervise.runner.asking import SOCKET, Conversation, RefusedError, ask
from supervise.runner.control import Control, Foresight

NOBODY = 65534


class Served:
    """A control socket, with a loop that runs as long as a client's work does."""

    def __init__(self, path: Path, name: str = "r") -> None:
        self.run = Run(str(path), name)
        self.run.create()
        self.events: list[life.Event] = []
        self.out = io.StringIO()
        self.foresee: Foresight | None = None
        self.control: Control

    def during(self, work: Callable[..., Awaitable[Any]]) -> Any:
        async def live() -> Any:
            self.control = Control(self.run, self.events.append, Console(self.out), self.foresee)
            self.control.start()
            try:
                return await asyncio.wait_for(work(self), 30)
            finally:
                self.control.close()

        return asyncio.run(live())

    async def ask(self, request: str, **more: object) -> Any:
        return await asyncio.to_thread(ask, self.run, request, **more)

    async def connect(self) -> socket.socket:
        connected = await asyncio.to_thread(peers.connect, self.run.path, SOCKET, 10.0)
        connected.setblocking(False)
        return connected

    async def say(self, data: bytes) -> Any:
        """Say anything, and read the whole answer."""
        connected = await self.connect()
        with connected:
            try:
                await asyncio.get_running_loop().sock_sendall(connected, data)
            except ConnectionError:
                pass
            return json.loads(await self.hear(connected))

    async def hear(self, connected: socket.socket) -> bytes:
        """One line, or nothing if it was closed."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                piece = await asyncio.get_running_loop().sock_recv(connected, 65536)
            except ConnectionError:
                return line
            if not piece:
                return line
            line += piece
        return line


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


def state(name: str, attempt: int | None = 1) -> news.Entered:
    return news.Entered(name, attempt, None, None, time.time())


# --- what is asked for ------------------------------------------------------------------------------------------------


def test_status_is_what_run_json_says_and_what_is_known_besides(served: Served) -> None:
    served.run.write_state({"state": "starting", "tiers": ["keeper"]})

    async def work(_: Served) -> None:
        served.control.hear(state("starting", 3))
        served.control.hear(news.Progressed("loading weights", 40.0, 4, 10, 5.0, 30.0, new=False))
        told = await served.ask("status")
        assert (told["version"], told["run"], told["tiers"]) == (1, "r", ["keeper"])
        assert (told["state"], told["attempt"], told["phase"]) == ("starting", 3, "loading weights")
        assert (told["percent"], told["over"]) == (40.0, False)
        assert 20 < told["eta_s"] <= 30

    served.during(work)


@pytest.mark.parametrize(
    ("request_", "more", "posted"),
    [
        ("stop", {}, [life.StopAsked(signal.SIGTERM, patient=True)]),
        ("stop", {"now": True}, [life.StopAsked(signal.SIGTERM)] * 2),
        ("stop", {"now": "yes"}, [life.StopAsked(signal.SIGTERM, patient=True)]),
    ],
)
def test_a_stop_is_posted(served: Served, request_: str, more: dict[str, Any], posted: list[life.Event]) -> None:
    async def work(_: Served) -> None:
        assert (await served.ask(request_, **more))["ok"]

    served.during(work)
    assert served.events == posted


def test_a_restart_says_which_attempt_it_ends(served: Served) -> None:
    served.run.open_attempt()

    async def work(_: Served) -> None:
        assert (await served.ask("restart"))["attempt"] == 1

    served.during(work)
    assert [type(event) for event in served.events] == [life.RestartAsked]


ENDING = news.Ending("SIGTERM", asked=True, restarts=False, within_s=9.0)


@pytest.mark.parametrize(
    ("told", "begins_anew"),
    [
        (ENDING, False),
        (state("done"), False),
        (news.Over(143, None, None), False),
        (ENDING._replace(restarts=True), True),
        (ENDING._replace(asked=False), True),
    ],
)
def test_what_somebody_stops_does_not_begin_anew(served: Served, told: news.News, *, begins_anew: bool) -> None:
    async def work(_: Served) -> None:
        served.control.hear(told)
        if begins_anew:
            assert (await served.ask("restart"))["ok"]
            return
        with pytest.raises(RefusedError, match="being stopped") as refused:
            await served.ask("restart")
        assert refused.value.status == 3

    served.during(work)
    assert len(served.events) == begins_anew


def test_a_restart_after_a_stop_is_refused_and_a_second_stop_is_not(served: Served) -> None:
    async def work(_: Served) -> None:
        assert (await served.ask("stop"))["ok"]
        with pytest.raises(RefusedError, match="being stopped"):
            await served.ask("restart")
        assert (await served.ask("stop"))["ok"]

    served.during(work)
    assert served.events == [life.StopAsked(signal.SIGTERM, patient=True)] * 2


@pytest.mark.parametrize("name", ["ready", "starting", "sweeping", "waiting", "stopping"])
def test_a_server_is_not_ended_for_a_launch_that_is_sure_to_be_refused(served: Served, name: str) -> None:
    async def foresee() -> str | None:
        return "no room for a log"

    served.foresee = foresee

    async def work(_: Served) -> None:
        served.control.hear(state(name))
        if name not in ("ready", "starting"):
            assert (await served.ask("restart"))["ok"]
            return
        with pytest.raises(RefusedError, match="nothing was ended: no room for a log") as refused:
            await served.ask("restart")
        assert refused.value.status == 94

    served.during(work)
    assert len(served.events) == (name not in ("ready", "starting"))


@pytest.mark.parametrize("how", ["clear", "broken", "late"])
def test_what_is_not_sure_refuses_nothing(served: Served, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_FORESIGHT_S", 0.05)

    async def foresee() -> str | None:
        if how == "broken":
            raise OSError(5, "Input/output error")
        await asyncio.sleep(60 if how == "late" else 0)
        return None

    served.foresee = foresee

    async def work(_: Served) -> None:
        served.control.hear(state("ready"))
        assert (await served.ask("restart"))["ok"]

    served.during(work)
    assert [type(event) for event in served.events] == [life.RestartAsked]


def test_a_stop_that_comes_meanwhile_comes_first(served: Served) -> None:
    async def work(_: Served) -> None:
        looking, stopped = asyncio.Event(), asyncio.Event()

        async def foresee() -> str | None:
            looking.set()
            await stopped.wait()
            return None

        served.control._foresee = foresee
        served.control.hear(state("ready"))
        restarting = asyncio.ensure_future(served.ask("restart"))
        await looking.wait()
        assert (await served.ask("stop"))["ok"]
        stopped.set()
        with pytest.raises(RefusedError, match="being stopped"):
            await restarting

    served.during(work)
    assert served.events == [life.StopAsked(signal.SIGTERM, patient=True)]


def test_only_the_one_that_is_meant_is_asked(served: Served) -> None:
    async def work(_: Served) -> None:
        ours, init = procfs.self_id(), ProcessId(1, 1)
        assert (await served.ask("status", whose=ours))["ok"]
        assert await served.ask("stop", whose=init) is None

    served.during(work)
    assert served.events == []


def test_whoever_hung_up_before_it_was_his_turn_stops_nothing(served: Served) -> None:
    """Those who had no answer in time have sent a signal by now: both would take away the grace."""

    async def work(_: Served) -> None:
        for request in (b'{"request": "stop"}\n', b'{"request": "restart"}\n'):
            with peers.connect(served.run.path, SOCKET, 5.0) as hasty:
                hasty.sendall(request)
        await served.ask("status")

    served.during(work)
    assert served.events == []


def test_watch_tells_each_change_and_the_end(served: Served) -> None:
    async def work(_: Served) -> list[dict[str, Any]]:
        conversation = await asyncio.to_thread(Conversation.begin, served.run, "watch")
        assert conversation is not None
        with conversation:
            seen = [await asyncio.to_thread(conversation.next, 10.0)]
            for each in (state("sweeping"), state("starting"), state("ready")):
                served.control.hear(each)
                seen.append(await asyncio.to_thread(conversation.next, 10.0))
            served.control.hear(news.Working("x", 1.0, 2.0))
            served.control.hear(news.Over(143, "SIGTERM", None))
            seen.append(await asyncio.to_thread(conversation.next, 10.0))
            assert await asyncio.to_thread(conversation.next, 10.0) is None
            assert conversation.over
        return seen

    seen = served.during(work)
    assert [each["state"] for each in seen] == [None, "sweeping", "starting", "ready", "ready"]
    assert [each["over"] for each in seen] == [False] * 4 + [True]
    assert seen[-1]["exit_status"] == 143


def test_a_flood_of_percentages_is_told_in_few_lines_and_the_last_one_is(served: Served) -> None:
    async def work(_: Served) -> list[float]:
        with await served.connect() as watching:
            await asyncio.get_running_loop().sock_sendall(watching, b'{"request": "watch"}\n')
            await served.hear(watching)
            for percent in range(100):
                served.control.hear(news.Progressed("p", float(percent), None, None, 1.0, None, new=False))
            return [json.loads(await served.hear(watching))["percent"]]

    assert served.during(work) == [99.0]


@pytest.mark.parametrize(("until", "told"), [("ready", state("ready")), ("over", news.Over(1, None, None))])
def test_wait_answers_once_when_it_is_so(served: Served, until: str, told: news.News) -> None:
    async def work(_: Served) -> None:
        waiting = asyncio.ensure_future(served.ask("wait", until=until))
        await served.ask("status")
        served.control.hear(state("starting"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        served.control.hear(told)
        assert (await waiting)["ok"]

    served.during(work)


def test_wait_for_ready_hears_of_an_end_as_well(served: Served) -> None:
    async def work(_: Served) -> None:
        waiting = asyncio.ensure_future(served.ask("wait", until="ready"))
        await served.ask("status")
        served.control.hear(news.Over(93, None, "boom"))
        told = await waiting
        assert (told["over"], told["exit_status"], told["cause"]) == (True, 93, "boom")

    served.during(work)


# --- who asks, and how ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"\n", "no request"),
        (b"GET / HTTP/1.1\r\n\r\n", "no request"),
        (b"\xff\xfe\x00\n", "no request"),
        (b"[" * 4000 + b"\n", "no request"),
        (b'{"request": ' + b"9" * 4000 + b"}\n", "no request"),
        (b'{"request": 7}\n', "no request"),
        (b"[]\n", "no request"),
        (b'{"request": "dance"}\n', "request 'dance': use status"),
        (b'{"request": "wait", "until": "doomsday"}\n', "until 'doomsday'"),
        (b'{"request": "status", "version": 2}\n', "version 2"),
        (b"x" * 2**20, "at most 4096 bytes"),
    ],
)
def test_garbage_gets_one_line(served: Served, said: bytes, error: str) -> None:
    async def work(_: Served) -> None:
        told = await served.say(said)
        assert told["ok"] is False
        assert error in told["error"]
        assert (await served.ask("status"))["ok"]

    served.during(work)
    assert served.events == []


def test_two_hundred_silent_ones_are_turned_away_and_the_rest_leave_in_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_PATIENCE_S", 0.3)

    async def work(_: Served) -> None:
        silent = [await served.connect() for _ in range(200)]
        with pytest.raises(RefusedError, match="32 clients"):
            await served.ask("status")
        for each in silent[clients.MOST :]:
            assert b"are connected already" in await served.hear(each)
        for each in silent[: clients.MOST]:
            assert await served.hear(each) == b""
        assert (await served.ask("status"))["ok"]
        for each in silent:
            each.close()

    served.during(work)


def test_those_who_listen_leave_room_for_one_who_wants_to_stop_it(served: Served) -> None:
    async def work(_: Served) -> None:
        listening = [await served.connect() for _ in range(30)]
        for each in listening:
            await asyncio.get_running_loop().sock_sendall(each, b'{"request": "watch"}\n')
        answers = [json.loads(await served.hear(each))["ok"] for each in listening]
        assert answers.count(True) == 24
        assert (await served.ask("stop"))["ok"]
        for each in listening:
            each.close()
        assert (await served.ask("wait", within_s=0.1)) is None  # there is room again

    served.during(work)
    assert len(served.events) == 1


def test_one_that_never_reads_is_sent_away(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(_: Served) -> None:
        with await served.connect() as deaf:
            await asyncio.get_running_loop().sock_sendall(deaf, b'{"request": "watch"}\n')
            await served.hear(deaf)
            assert len(served.control._listening) == 1
            for number in range(2000):
                served.control.hear(news.Stalled("p", f"{number} " + "x" * 900))
                served.control._tell_all()
                if not served.control._listening:
                    break
            assert number < 1999
            assert not served.control._listening
            assert (await served.ask("status"))["ok"]

    served.during(work)


@pytest.mark.root
def test_another_user_is_refused_with_a_line(served: Served) -> None:
    async def work(_: Served) -> tuple[bytes, bool]:
        # As if all that keeps others out had been opened up.
        path = Path(served.run.path) / SOCKET
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o666)
        for parent in (path.parent, *path.parents[1:4]):
            if str(parent).startswith(str(Path(served.run.path).parent.parent)):
                parent.chmod(0o755)
        reading, writing = os.pipe()
        directory = os.open(served.run.path, os.O_PATH)
        if (child := os.fork()) == 0:
            try:
                os.setresuid(NOBODY, NOBODY, NOBODY)
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.settimeout(10)
                    stranger.connect(f"/proc/self/fd/{directory}/{SOCKET}")
                    stranger.sendall(b'{"request": "stop"}\n')
                    os.write(writing, stranger.recv(4096))
            finally:
                os._exit(0)
        os.close(writing)
        await asyncio.to_thread(os.waitpid, child, 0)
        told = os.read(reading, 4096)
        os.close(reading)
        os.close(directory)
        return told, (await served.ask("status"))["ok"]

    told, ours = served.during(work)
    assert ours
    assert b"uid 65534 may not ask" in told
    assert served.events == []


# --- the socket itself ------------------------------------------------------------------------------------------------


def test_a_path_of_any_length(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["long-state-directory" * 3] * 8)
    served = Served(deep, "r" * 80)
    assert len(served.run.path) > 500

    async def work(_: Served) -> None:
        assert (await served.ask("status"))["run"] == "r" * 80

    served.during(work)
    assert not os.path.lexists(os.path.join(served.run.path, SOCKET))


def test_a_stale_socket_gives_way_and_ours_goes_with_us(served: Served) -> None:
    path = os.path.join(served.run.path, SOCKET)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    assert ask(served.run, "status") is None

    async def work(_: Served) -> None:
        assert (await served.ask("status"))["ok"]

    served.during(work)
    assert not os.path.lexists(path)
    assert ask(served.run, "status") is None


def test_a_socket_that_is_not_ours_any_more_stays(served: Served) -> None:
    path = os.path.join(served.run.path, SOCKET)

    async def work(_: Served) -> None:
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(path)

    served.during(work)
    assert os.path.lexists(path)


def test_where_there_can_be_none_it_is_said_once_and_nothing_else_happens(served: Served) -> None:
    os.mkdir(os.path.join(served.run.path, SOCKET))

    async def work(_: Served) -> None:
        served.control.hear(state("ready"))
        served.control.hear(news.Over(0, None, None))

    served.during(work)
    assert served.out.getvalue().count("no control socket: ") == 1


def test_a_lack_of_descriptors_reaches_nobody(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would tell the service of it as of a failure of our own, and the server would be ended."""
    monkeypatch.setattr(clients, "_REST_S", 0.05)
    failed: list[dict[str, Any]] = []

    async def work(_: Served) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        accept = socket.socket.accept
        left = iter(range(3))

        def refuse(self: socket.socket) -> Any:
            if next(left, None) is not None:
                raise OSError(24, "Too many open files")
            return accept(self)

        monkeypatch.setattr(socket.socket, "accept", refuse)
        assert (await served.ask("status"))["ok"]
        assert next(left, None) is None

    served.during(work)
    assert failed == []


def test_an_answer_that_cannot_be_made_is_said_to_the_one_who_asked(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Run) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Run, "read_state", fail)

    async def work(_: Served) -> None:
        with pytest.raises(RefusedError, match="internal error: RuntimeError: boom"):
            await served.ask("status")

    served.during(work)
