"""What a service manager is told: the datagrams of sd_notify(3), and what each piece of news becomes."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervise.model import news
from supervise.model.exits import Exit
from supervise.model.slate import Finding, Ownership, SlateResult
from supervise.report.notify import Notify
from supervise.report.systemd import Systemd
from supervise.runner.heartbeat import Heartbeat

SLATE_S, STOP_S, SLACK_S = 100.0, 40.0, 30.0


class Manager:
    """A service manager's end of the socket."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(address)

    def heard(self) -> list[dict[str, str]]:
        """Every datagram since the last time."""
        found = []
        while True:
            try:
                text = self.socket.recv(65536).decode()
            except BlockingIOError:
                return found
            found.append(dict(line.split("=", 1) for line in text.split("\n")))


@pytest.fixture
def manager(short_dir: Path) -> Iterator[Manager]:
    made = Manager(str(short_dir / "notify"))
    yield made
    made.socket.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def notify(manager: Manager, complaints: list[str]) -> Iterator[Notify]:
    made = Notify.from_environment({"NOTIFY_SOCKET": manager.socket.getsockname()}, complaints.append)
    assert made is not None
    yield made
    made.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def systemd(notify: Notify, manager: Manager, clock: Clock) -> Systemd:
    made = Systemd(notify, slate_s=SLATE_S, stop_s=STOP_S, clock=clock)
    assert manager.heard() == [{"EXTEND_TIMEOUT_USEC": _usec(SLATE_S)}]
    return made


def _usec(within_s: float) -> str:
    return str(int((within_s + STOP_S + SLACK_S) * 1e6))


def _progressed(phase: str = "weights", percent: float | None = 33.0, *, new: bool = True) -> news.Progressed:
    return news.Progressed(phase, percent, 1, 3, 41.0, 125.0, new)


READY = news.BecameReady(3, 62.0, {"weights": 40.0, "tiny": 0.1})


class TestSocket:
    @pytest.mark.parametrize("given", ["", "/", "@", "vsock:2:1234", "relative", None])
    def test_what_is_no_socket_of_ours(self, given: str | None) -> None:
        env = {} if given is None else {"NOTIFY_SOCKET": given}
        assert Notify.from_environment(env, print) is None

    def test_abstract(self) -> None:
        name = f"supervise-test-{os.getpid()}"
        manager = Manager(f"\0{name}")
        notify = Notify.from_environment({"NOTIFY_SOCKET": f"@{name}"}, print)
        assert notify is not None
        notify.send(READY=1, STATUS="serves")
        assert manager.heard() == [{"READY": "1", "STATUS": "serves"}]
        notify.close()
        manager.socket.close()

    def test_nobody_listens_is_said_once_and_ends_nothing(self, short_dir: Path, complaints: list[str]) -> None:
        notify = Notify(str(short_dir / "none"), complaints.append)
        notify.send(READY=1)
        notify.send(READY=1)
        assert complaints == [f"the service manager does not listen on {short_dir}/none: No such file or directory"]
        notify.close()

    def test_a_path_that_no_socket_can_have_is_said_once(self, complaints: list[str]) -> None:
        notify = Notify("/" + "x" * 200, complaints.append)
        notify.send(READY=1)
        assert len(complaints) == 1
        notify.close()

    def test_a_full_queue_loses_nothing_that_is_still_true(self, notify: Notify, manager: Manager) -> None:
        sent = 0
        while not notify.waits:
            notify.send(STATUS=sent)
            sent += 1
        notify.send(RELOADING=1, STATUS="again")
        notify.send(READY=1, STATUS="serves")

        async def until_told() -> list[dict[str, str]]:
            notify.send()
            found: list[dict[str, str]] = manager.heard()
            while notify.waits:
                await asyncio.sleep(0.01)
            return found + manager.heard()

        told = asyncio.run(asyncio.wait_for(until_told(), 20))
        assert told[-1] == {"READY": "1", "STATUS": "serves"}
        assert [one["STATUS"] for one in told[:-1]] == [str(number) for number in range(len(told) - 1)]


class TestSystemd:
    def test_while_it_starts(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Entered("sweeping", None, None, None, 0.0))
        systemd.hear(news.Entered("starting", 3, None, None, 0.0))
        systemd.hear(_progressed())
        swept, starting, loading = manager.heard()
        assert swept == {
            "STATUS": "looking for what earlier attempts left",
            "EXTEND_TIMEOUT_USEC": _usec(SLATE_S),
        }
        assert starting["STATUS"] == "attempt 3: starting"
        assert loading["STATUS"] == "attempt 3: weights 33 % (1/3) after 41 s, ready in about 2 min"
        assert int(loading["EXTEND_TIMEOUT_USEC"]) >= int(_usec(60))

    @pytest.mark.parametrize(
        ("idle_s", "within_s"), [(0.0, 240.0), (200.0, 40.0), (240.0, 0.0)], ids=["works", "stands", "just"]
    )
    def test_an_extension_covers_the_rest_of_the_patience_and_the_stop_path(
        self, systemd: Systemd, manager: Manager, idle_s: float, within_s: float
    ) -> None:
        systemd.hear(news.Working("weights", idle_s, 240.0))
        (told,) = manager.heard()
        assert told["EXTEND_TIMEOUT_USEC"] == _usec(within_s)

    def test_a_stall_stays_told_and_grows_until_something_moves(self, systemd: Systemd, manager: Manager) -> None:
        """One that is busy and gets nowhere is idle for no second."""
        systemd.hear(news.Entered("starting", 3, None, None, 0.0))
        systemd.hear(_progressed())
        systemd.hear(news.Working("weights", 0.0, 240.0, "no progress for 4 min in weights"))
        systemd.hear(news.Stalled("weights", "no progress for 4 min in weights"))
        systemd.hear(news.Working("weights", 0.0, 240.0, "no progress for 5 min in weights"))
        systemd.hear(news.Working("weights", 0.0, 240.0))
        systemd.hear(news.Working("weights", 5.0, 240.0))
        told = [one["STATUS"] for one in manager.heard() if "STATUS" in one]
        assert told[2:] == [
            "attempt 3: no progress for 4 min in weights",
            "attempt 3: no progress for 5 min in weights",
            "attempt 3: weights 33 % (1/3)",
        ]

    def test_none_once_the_patience_is_over(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Working("weights", 250.0, 240.0))
        (told,) = manager.heard()
        assert told == {"STATUS": "weights, no progress for 4 min"}

    def test_progress_within_a_phase_is_told_soon_and_the_last_of_it_is_not_lost(
        self, systemd: Systemd, manager: Manager
    ) -> None:
        async def load() -> list[dict[str, str]]:
            for percent in range(100):
                systemd.hear(_progressed(percent=percent, new=percent == 0))
            told: list[dict[str, str]] = manager.heard()
            while len(told) < 2:
                await asyncio.sleep(0.01)
                told += manager.heard()
            return told

        first, last = asyncio.run(asyncio.wait_for(load(), 20))
        assert "0 %" in first["STATUS"]
        assert "99 %" in last["STATUS"]

    def test_what_is_told_soon_comes_with_what_is_told_now(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(_progressed(new=False))
        assert manager.heard() == []
        systemd.hear(READY)
        (told,) = manager.heard()
        assert told["READY"] == "1"
        assert "ready in" in told["STATUS"]
        assert "EXTEND_TIMEOUT_USEC" in told

    def test_ready_once_and_then_no_extension(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Entered("starting", 3, None, None, 0.0))
        systemd.hear(READY)
        systemd.hear(news.WasHung(("no token for 5 min", "CPU 0 %")))
        systemd.hear(news.Ending("hung", asked=False, restarts=False, within_s=40.0))
        systemd.hear(news.Entered("sweeping", None, None, None, 0.0))
        _, ready, hung, ending, sweeping = manager.heard()
        assert ready == {"READY": "1", "STATUS": "attempt 3: ready in 62 s (weights 40 s)"}
        assert hung == {"STATUS": "attempt 3: hung: no token for 5 min; CPU 0 %"}
        assert "EXTEND_TIMEOUT_USEC" not in ending | sweeping
        assert "STOPPING" not in ending

    def test_a_stop_is_final_and_gets_its_time(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(READY)
        systemd.hear(news.Ending("SIGTERM", asked=True, restarts=False, within_s=STOP_S))
        systemd.hear(news.Over(143, None, None))
        _, ending, over = manager.heard()
        assert ending["STOPPING"] == "1"
        assert ending["EXTEND_TIMEOUT_USEC"] == _usec(0.0)
        assert over["EXIT_STATUS"] == "143"
        assert "ERRNO" not in over

    def test_a_restart_that_was_asked_for_reloads(self, systemd: Systemd, manager: Manager, clock: Clock) -> None:
        systemd.hear(READY)
        systemd.hear(news.Ending("restart", asked=True, restarts=True, within_s=STOP_S))
        systemd.hear(news.Entered("sweeping", None, None, None, 0.0))
        systemd.hear(READY)
        _, ending, sweeping, ready = manager.heard()
        assert ending["RELOADING"] == "1"
        assert ending["MONOTONIC_USEC"] == str(int(clock.now * 1e6))
        assert "STOPPING" not in ending
        assert sweeping["WATCHDOG"] == "1"
        assert ready["READY"] == "1"

    def test_a_restart_before_it_was_ready_goes_on_starting(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Ending("restart", asked=True, restarts=True, within_s=STOP_S))
        (ending,) = manager.heard()
        assert "RELOADING" not in ending
        assert ending["EXTEND_TIMEOUT_USEC"] == _usec(0.0)

    def test_a_relaunch_of_ours_is_waited_for(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Relaunching(3, 8.0, "transient", "CUDA error", "transient"))
        (told,) = manager.heard()
        assert told == {"STATUS": "attempt 3: CUDA error; again in 8.0 s", "EXTEND_TIMEOUT_USEC": _usec(8.0)}

    def test_the_cause_is_the_last_word(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Over(90, "no progress", "CUDA\nout of memory " + "x" * 400))
        (told,) = manager.heard()
        assert told["ERRNO"] == "110"
        assert told["STOPPING"] == "1"
        assert told["STATUS"].startswith("CUDA\\x0aout of memory ")
        assert len(told["STATUS"]) == 200

    def test_what_is_in_the_way_is_the_cause_of_a_launch_that_was_refused(
        self, systemd: Systemd, manager: Manager
    ) -> None:
        port = Finding("port", "port 8000", Ownership.FOREIGN, ("pid 7 listens",))
        systemd.hear(news.Entered("sweeping", None, None, None, 0.0))
        systemd.hear(news.Swept(SlateResult("r", (), (port,), (), (), 0.0)))
        systemd.hear(news.Over(Exit.SLATE, None, None))
        assert manager.heard()[-1]["STATUS"] == "nothing was launched: port 8000 (foreign, pid 7 listens)"

    def test_the_server_is_never_handed_over(self, systemd: Systemd, manager: Manager) -> None:
        systemd.hear(news.Launched(3, "/log", 42))
        systemd.hear(READY)
        assert all("MAINPID" not in told for told in manager.heard())


class TestHeartbeat:
    @pytest.mark.parametrize(
        "env",
        [{}, {"WATCHDOG_USEC": ""}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "-5"}, {"WATCHDOG_USEC": "soon"}]
        + [{"WATCHDOG_USEC": "2000000", "WATCHDOG_PID": pid} for pid in ("1", "")],
    )
    def test_nobody_waits_for_it(self, notify: Notify, env: dict[str, str]) -> None:
        assert Heartbeat.from_environment(env, notify) is None

    def test_beats_twice_within_the_time_and_misses_it_while_the_loop_is_blocked(
        self, notify: Notify, manager: Manager
    ) -> None:
        env = {"WATCHDOG_USEC": "100000", "WATCHDOG_PID": str(os.getpid())}

        async def beats() -> tuple[int, int]:
            heart = Heartbeat.from_environment(env, notify)
            assert heart is not None
            heart.hear(READY)
            await asyncio.sleep(0.2)
            free = manager.heard()
            time.sleep(0.2)  # the blocked loop that this is about
            blocked = manager.heard()
            heart.close()
            await asyncio.sleep(0.1)
            assert manager.heard() == []
            assert all(told == {"WATCHDOG": "1"} for told in free)
            return len(free), len(blocked)

        free, blocked = asyncio.run(beats())
        assert free >= 2
        assert blocked == 0
