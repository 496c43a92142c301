"""What `supervise unit` prints, under a real systemd: from `activating` with a percentage to nothing left."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervise.report.unitwords import line, word
from tests.real.server import START_S, RealVllm
from tests.support.launcher import NOBODY
from tests.support.readable import readable_python
from tests.support.sdbox import USER, Box
from tests.support.sdunit import Unit

pytestmark = pytest.mark.root

PORT = 21300
STOP_S = 90.0
DETERMINISTIC = "ModuleNotFoundError: No module named 'flashinfer'"
TRANSIENT = "OSError: [Errno 98] Address already in use"
FIRST_FAILS = f"""[ "$SUPERVISE_ATTEMPT" -gt 1 ] && exec "$@"; exec "$@" --crash-at load --crash-text "{TRANSIENT}" """

Make = Callable[..., Unit]


@pytest.fixture
def unit(box: Box, short_dir: Path) -> Iterator[Make]:
    """Makes the one unit that a test is about."""
    made: list[Unit] = []

    def make(uid: int = 0, *, user: bool = False) -> Unit:
        made.append(Unit(box, short_dir, uid, user=user))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(("uid", "user"), [(0, False), (NOBODY, False), (USER, True)], ids=["root", "nobody", "user"])
def test_from_its_start_to_its_stop(unit: Make, uid: int, user: bool) -> None:
    trial = unit(uid, user=user)
    trial.install(command=trial.server("--shm", 4096, port=PORT))
    assert trial.ask("systemd-analyze", "verify", trial.name) == ""

    trial.start()
    trial.wait_up()
    shown = trial.shown()
    assert shown["StatusText"].startswith("attempt 1: ready in ")
    trial.stop()
    assert (shown := trial.shown())["Result"] == "success", trial.told(shown)
    assert shown["ActiveState"] == "inactive"
    trial.assert_nothing_left()


# Asks for a completion, has the unit stopped once that runs, and prints the status of the answer.
_STOPPED_WITHIN_A_REQUEST = """
import subprocess, sys, threading, time, urllib.request
base, unit = sys.argv[1:]
def ask():
    with urllib.request.urlopen(urllib.request.Request(base + "/v1/completions", b"{}"), timeout=30) as answer:
        print(answer.status)
asking = threading.Thread(target=ask)
asking.start()
until = time.monotonic() + 10
while b"num_requests_running" not in (told := urllib.request.urlopen(base + "/metrics").read()) or not any(
    line.startswith(b"vllm:num_requests_running") and float(line.split()[-1]) for line in told.splitlines()
):
    assert time.monotonic() < until
    time.sleep(0.05)
subprocess.run(["systemctl", "stop", "--no-block", unit], check=True)
asking.join()
"""


@pytest.mark.parametrize("drains", [True, False])
def test_a_stop_lets_requests_finish_where_the_server_does(unit: Make, drains: bool) -> None:
    trial = unit()
    options = ("--shm", 4096, "--request-s", 1, "--shutdown-timeout", 10 if drains else 0)
    trial.install("--grace", 15, command=trial.server(*options, port=PORT))
    trial.start()
    trial.wait_up()
    client = [readable_python(), "-c", _STOPPED_WITHIN_A_REQUEST, f"http://127.0.0.1:{PORT}", trial.name]
    told = trial.ask("sh", "-c", '"$@" 2>&1 || true', "sh", *client)
    assert told.strip() == "200" if drains else "RemoteDisconnected" in told, told
    trial.wait(ActiveState="inactive", Result="success")
    trial.assert_nothing_left()


def test_the_journal_has_priorities_and_no_live_line(unit: Make) -> None:
    trial = unit()
    trial.install(command=trial.server("--crash-at", "load", "--crash-text", DETERMINISTIC, port=PORT))
    trial.start()
    trial.wait(ActiveState="failed")
    priorities = {each["MESSAGE"].split()[0]: each["PRIORITY"] for each in trial.journal()}
    assert (priorities["slate"], priorities["cause"], priorities["try"]) == ("6", "3", "6"), priorities
    assert not any("\r" in each["MESSAGE"] or "\x1b" in each["MESSAGE"] for each in trial.journal())


def test_a_hang_while_it_loads_shows_where_and_ends_by_our_own_deadline(unit: Make) -> None:
    trial = unit()
    server = trial.server("--hang-at", "load", "--shm", 4096, port=PORT)
    trial.install("--ready-timeout", 5, command=server, settings=("Restart=no",))
    trial.start()
    shown = trial.wait(StatusText="100 % (3/3)")
    assert shown["ActiveState"] == "activating"
    shown = trial.wait(ActiveState="failed")
    assert (shown["Result"], shown["ExecMainStatus"], shown["StatusErrno"]) == ("exit-code", "90", "110")
    (outcome,) = trial.outcomes()
    assert outcome["exit_status"] == 90
    trial.assert_nothing_left()


def test_what_would_fail_the_same_way_is_not_started_again(unit: Make) -> None:
    trial = unit()
    trial.install(command=trial.server("--crash-at", "load", "--crash-text", DETERMINISTIC, port=PORT))
    trial.start()
    shown = trial.wait(ActiveState="failed")
    assert (shown["Result"], shown["ExecMainStatus"], shown["NRestarts"]) == ("exit-code", "93", "0")
    assert "flashinfer" in shown["StatusText"]
    assert len(trial.outcomes()) == 1
    trial.assert_nothing_left()


@pytest.mark.parametrize("ours", [False, True], ids=["by systemd", "by us"])
def test_what_may_pass_is_started_again(unit: Make, ours: bool) -> None:
    trial = unit()
    options = ("--restart", "on-failure", "--backoff", 0.05) if ours else ()
    server = ["/bin/sh", "-c", FIRST_FAILS, "sh", *trial.server("--shm", 4096, port=PORT)]
    trial.install(*options, command=server)
    trial.start()
    trial.wait(StatusText="attempt 2: ready")
    shown = trial.shown()
    assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0" if ours else "1")
    trial.stop()
    trial.assert_nothing_left()


def test_sigkill_of_supervise_leaves_nothing(unit: Make) -> None:
    trial = unit()
    escapes = ("--escape", "setsid,double-fork", "--ignore-term")
    trial.install(command=trial.server("--shm", 4096, *escapes, port=PORT), settings=("Restart=no",))
    trial.start()
    trial.wait_up()
    trial.kill(signal.SIGKILL)
    shown = trial.wait(ActiveState="failed")
    assert shown["Result"] == "signal"
    trial.assert_nothing_left()


def test_a_supervise_that_stands_still_is_ended_by_the_watchdog(unit: Make) -> None:
    trial = unit()
    trial.install(command=trial.server("--shm", 4096, port=PORT), settings=("Restart=no", "WatchdogSec=3"))
    trial.start()
    trial.wait_up()
    trial.kill(signal.SIGSTOP)
    shown = trial.wait(ActiveState="failed")
    assert shown["Result"] == "watchdog"
    trial.assert_nothing_left()


def test_systemd_reads_the_very_words(unit: Make, box: Box) -> None:
    """Of a command and of the environment; the words are the worst that a shell or systemd itself knows."""
    chance = random.Random(20)
    alphabet = [*"ab%$\"'\\;#{}~=*?\n\t\x01\x1f\x7f -", "ü", "𝄞", "$$", "${A}", "%n", "\\x41", "\\\n", "%%"]
    words = [*alphabet, "", *("".join(chance.choices(alphabet, k=chance.randint(2, 12))) for _ in range(400))]
    values = [each for each in words if not set(each) & set("\x01\x1f\x7f")]
    trial = unit()
    told = trial.base / "told"
    code = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    start = line(["ExecStart=/usr/bin/python3", *map(word, ("-c", code, *words))])
    env = [f"Environment={word(f'V{number}={value}', expanded=False)}" for number, value in enumerate(values)]
    trial.put("", "\n".join(("[Service]", "Type=oneshot", f"StandardOutput=file:{told}", *env, start, "")))
    trial.systemctl("daemon-reload")
    trial.systemctl("start", trial.name)
    argv, environment = json.loads(told.read_text())
    assert argv == words
    assert [environment.get(f"V{number}") for number in range(len(values))] == values


def test_a_restart_that_was_asked_for_is_a_reload(unit: Make) -> None:
    trial = unit()
    trial.install(command=trial.server("--load-s", 2, port=PORT))
    trial.start()
    before = trial.wait(StatusText="attempt 1: ready")
    trial.systemctl("reload", "--no-block", trial.name)
    shown = trial.wait(ActiveState="reloading")
    assert shown["StatusText"].startswith("attempt ")
    after = trial.wait(ActiveState="active", StatusText="attempt 2: ready")
    assert (after["MainPID"], after["NRestarts"]) == (before["MainPID"], "0")


@pytest.mark.real
@pytest.mark.timeout(900, func_only=True)
def test_a_real_vllm(unit: Make, real_vllm: RealVllm) -> None:
    trial = unit()
    shutil.copytree(real_vllm.models / "tiny", trial.base / "tiny")
    command = real_vllm.command(PORT, model=str(trial.base / "tiny"))
    trial.install("--grace", 30, command=command, env=real_vllm.environment)
    trial.start()
    trial.wait(START_S, ActiveState="activating", StatusText="attempt 1: ")
    shown = trial.wait(START_S, ActiveState="active")
    assert shown["StatusText"].startswith("attempt 1: ready in ")
    ask = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{PORT}/v1/models').status)"
    assert trial.box.run("/usr/bin/python3", "-c", ask) == "200\n"
    trial.systemctl("stop", "--no-block", trial.name)
    assert trial.wait(STOP_S, ActiveState="inactive")["Result"] == "success"
    (outcome,) = trial.outcomes()
    assert outcome["verified"] is True
    trial.assert_empty()
