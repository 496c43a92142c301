"""The verbs that ask a living supervise, with real processes: status, wait, restart, stop, and a second launch."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import pytest

from supervise.attempts.store import Run
from supervise.host import procfs, signals
from supervise.runner.asking import SOCKET, ask
from tests.support.launcher import Launched, Supervise, free_port
from tests.support.waiting import wait_gone, wait_until

GRACE = ("--name", "X", "--grace", 1)


def start(supervise: Supervise, port: int, *options: object, load_s: float = 0.05) -> Launched:
    return supervise.start(
        *GRACE, *supervise.standin("--load-s", load_s, *options, port=port, pids=supervise.tmp / "pids")
    )


def wait_ready(supervise: Supervise) -> None:
    waited = supervise.run("wait", "X", "--ready", "--timeout", 30)
    assert waited.popen.returncode == 0, supervise.said()


def asked_to_stop(supervise: Supervise, launched: Launched) -> None:
    assert supervise.run("stop", "X").popen.returncode == 0
    assert launched.wait() == -signal.SIGTERM


def test_a_run_is_waited_for_restarted_watched_and_stopped(supervise: Supervise, port: int) -> None:
    # Whoever waits may be there first.
    waiting = supervise.start("wait", "X", "--ready", "--timeout", 30)
    launched = start(supervise, port)
    assert waiting.wait() == 0
    assert "X  ready  attempt 1" in waiting.stderr
    watching = supervise.start("status", "X", "--watch", "--json")
    wait_until(lambda: watching.stdout, failure=supervise.said)
    first = supervise.identity("leader")
    restarted = supervise.run("restart", "X", "--wait", "--timeout", 30)
    assert restarted.popen.returncode == 0, restarted.stderr
    assert "attempt 1 is being ended, attempt 2 follows" in restarted.stderr
    assert "X  ready  attempt 2" in restarted.stderr
    wait_gone([first])
    assert supervise.identity("supervisor") == launched.id
    asked_to_stop(supervise, launched)
    assert watching.wait() == 143
    seen = [json.loads(line) for line in watching.stdout.splitlines()]
    assert [each["over"] for each in seen] == [False] * (len(seen) - 1) + [True]
    assert {("ready", 1), ("stopping", 1), ("starting", 2), ("ready", 2)} <= {(e["state"], e["attempt"]) for e in seen}
    assert {each["version"] for each in seen} == {1}
    assert not os.path.lexists(supervise.run_directory() / SOCKET)


def test_without_a_socket_all_but_restart_works(supervise: Supervise, port: int) -> None:
    (supervise.state / "supervise" / "X" / "attempts").mkdir(parents=True)
    (supervise.state / "supervise" / "X" / SOCKET).mkdir()
    launched = start(supervise, port)
    wait_ready(supervise)
    assert launched.stderr.count("no control socket: ") == 1
    restarted = supervise.run("restart", "X")
    assert restarted.popen.returncode == 125
    assert "its control socket does not answer" in restarted.stderr
    watching = supervise.start("status", "X", "--watch")
    wait_until(lambda: "X  ready  attempt 1" in watching.stdout, failure=supervise.said)
    asked_to_stop(supervise, launched)
    assert watching.wait() == 143


def test_a_killed_supervise_leaves_a_socket_that_is_in_nobodys_way(supervise: Supervise, port: int) -> None:
    launched = start(supervise, port)
    wait_ready(supervise)
    path = supervise.run_directory() / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    waiting = supervise.start("wait", "X")
    launched.send(signal.SIGKILL)
    launched.wait()
    assert waiting.wait() == 125
    assert "no record of how" in waiting.stderr
    assert stat.S_ISSOCK(path.stat().st_mode)
    again = start(supervise, port)
    wait_ready(supervise)
    told = ask(Run(str(supervise.state / "supervise"), "X"), "status")
    assert told is not None
    assert told["attempt"] == 2
    asked_to_stop(supervise, again)


def test_a_state_directory_with_a_long_path(supervise: Supervise, port: int) -> None:
    deep = supervise.base.joinpath(*["x" * 60] * 4)
    supervise.extra_env["XDG_STATE_HOME"] = str(deep)
    supervise.state = deep
    launched = start(supervise, port)
    wait_ready(supervise)
    run = Run(str(deep / "supervise"), "X")
    assert len(run.path) > 200
    told = ask(run, "status")
    assert told is not None
    assert told["state"] == "ready"
    asked_to_stop(supervise, launched)


@pytest.mark.parametrize("ready", [(), ("--ready",)], ids=["end", "ready"])
def test_wait_has_the_status_of_a_run_that_ends(supervise: Supervise, port: int, ready: tuple[str, ...]) -> None:
    waited = supervise.start("wait", "X", *ready, "--timeout", 30)
    launched = start(supervise, port, "--crash-at", "load", "--exit-code", 7, load_s=1)
    assert waited.wait() == launched.wait() == 7
    assert "ended with status 7: RuntimeError: boom" in waited.stderr
    # The same of one that is over.
    again = supervise.run("wait", "X", *ready)
    assert again.popen.returncode == 7
    assert "is not running" in again.stderr


def test_what_is_late_is_told_from_what_failed(supervise: Supervise, port: int) -> None:
    launched = start(supervise, port, load_s=60)
    supervise.wait_state("starting")
    late = supervise.run("wait", "X", "--ready", "--timeout", 0.2)
    assert late.popen.returncode == 90
    assert "has not become ready within 0.20 s, it goes on: X  starting" in late.stderr
    assert supervise.run("wait", "X", "--timeout", 0.2).popen.returncode == 125
    asked_to_stop(supervise, launched)
    assert supervise.run("wait", "X", "--ready", "--timeout", 0.2).popen.returncode == 90
    never = supervise.run("wait", "Y", "--ready", "--timeout", 0.2)
    assert never.popen.returncode == 90
    assert "run Y has not been started within" in never.stderr
    assert supervise.run("wait", "Y", "--timeout", 0.2).popen.returncode == 125
    assert supervise.run("wait", "Y", "--ready").popen.returncode == 2
    assert supervise.run("restart", "X").popen.returncode == 3


def test_a_stop_is_patient_with_another_one_and_no_restart_follows(supervise: Supervise, port: int) -> None:
    launched = start(supervise, port, "--ignore-term")
    wait_ready(supervise)
    run = Run(str(supervise.state / "supervise"), "X")
    for _ in range(2):
        assert ask(run, "stop") is not None
    restarted = supervise.run("restart", "X")
    assert restarted.popen.returncode == 3
    assert "being stopped" in restarted.stderr or "nothing to restart" in restarted.stderr
    assert launched.wait() == -signal.SIGTERM
    assert json.loads((supervise.attempt(1) / "outcome.json").read_text())["stop_s"] >= 1


def test_a_restart_that_is_sure_to_fail_ends_no_server(supervise: Supervise, port: int) -> None:
    program = supervise.tmp / "python"
    program.symlink_to(sys.executable)
    command = supervise.standin("--load-s", 0.05, port=port)
    launched = supervise.start(*GRACE, program, *command[1:])
    wait_ready(supervise)
    leader = supervise.identity("leader")
    program.unlink()
    refused = supervise.run("restart", "X")
    assert refused.popen.returncode == 94
    assert "the next launch would be refused" in refused.stderr
    assert "command not found" in refused.stderr or "not an executable" in refused.stderr
    assert signals.alive(leader)
    asked_to_stop(supervise, launched)


def test_one_that_is_suspended_is_said_to_be(supervise: Supervise, port: int) -> None:
    launched = start(supervise, port)
    wait_ready(supervise)
    watching = supervise.start("status", "X", "--watch")
    wait_until(lambda: "X  ready" in watching.stdout, failure=supervise.said)
    signals.send(launched.id, signal.SIGSTOP)
    wait_until(lambda: "X  suspended  attempt 1" in watching.stdout, failure=lambda: watching.stdout)
    waited = supervise.run("wait", "X", "--timeout", 0.2)
    assert waited.popen.returncode == 125
    assert "it is suspended" in waited.stderr
    signals.send(launched.id, signal.SIGCONT)
    asked_to_stop(supervise, launched)
    assert watching.wait() == 143


# --- a second launch --------------------------------------------------------------------------------------------------

# Two that begin within the same second do not end each other.
_OLD_S = 1.2


def wait_old(launched: Launched) -> None:
    wait_until(lambda: procfs.age_s(launched.id.ticks) > _OLD_S)


def test_the_second_one_is_told_who_holds_the_run(supervise: Supervise, port: int) -> None:
    launched = start(supervise, port, "--api-key", "sesame")
    wait_ready(supervise)
    refused = start(supervise, port)
    assert refused.wait() == 94
    assert f"BLOCKED run X is live: supervise {launched.id} holds it, for " in refused.stderr
    assert ", ready, attempt 1" in refused.stderr
    assert f"--port {port}" in refused.stderr
    assert "sesame" not in refused.stderr
    for way_out in ("supervise stop X", "--replace", "--name OTHER"):
        assert way_out in refused.stderr
    asked_to_stop(supervise, launched)


def test_replace_ends_one_that_resists_by_its_stop_path(supervise: Supervise, port: int) -> None:
    first = start(supervise, port, "--ignore-term")
    wait_ready(supervise)
    wait_old(first)
    old = supervise.family()
    old.wait_ready()
    members = list(old.members.values())
    second = supervise.start(
        *GRACE, "--replace", *supervise.standin("--load-s", 0.05, port=port, pids=supervise.tmp / "pids.2")
    )
    assert first.wait() == -signal.SIGTERM
    wait_gone(members)
    wait_until(lambda: supervise.identity("supervisor") == second.id, failure=supervise.said)
    wait_ready(supervise)
    assert f"run X: ending supervise {first.id}, for" in second.stderr
    # It had its grace, and no second request took that away.
    told = json.loads((supervise.attempt(1) / "outcome.json").read_text())
    assert (told["verified"], told["stop_s"] >= 1) == (True, True)
    assert "SIGKILL to what is left" not in first.stderr
    asked_to_stop(supervise, second)


def test_those_who_follow_the_one_that_is_replaced_hear_of_its_end(supervise: Supervise, port: int) -> None:
    first = start(supervise, port)
    wait_ready(supervise)
    wait_old(first)
    following = [supervise.start("wait", "X"), supervise.start("status", "X", "--watch", "--json")]
    wait_until(lambda: following[1].stdout, failure=supervise.said)
    second = supervise.start(*GRACE, "--replace", *supervise.standin("--load-s", 0.05, port=port))
    assert first.wait() == -signal.SIGTERM
    for each in following:
        assert each.wait(5.0) == 143
        assert "ended with status 143" in each.stderr
    assert json.loads(following[1].stdout.splitlines()[-1])["attempt"] == 1
    wait_ready(supervise)
    assert supervise.identity("supervisor") == second.id
    asked_to_stop(supervise, second)


def listening() -> socket.socket:
    there = socket.socket()
    there.bind(("127.0.0.1", 0))
    there.listen()
    return there


def test_nobody_is_replaced_for_a_launch_that_cannot_be(supervise: Supervise, port: int) -> None:
    own_metrics = free_port()
    first = start(supervise, port)
    wait_ready(supervise)
    wait_old(first)
    leader = supervise.identity("leader")
    with listening() as foreign:
        held = foreign.getsockname()[1]
        port_taken = supervise.run(*GRACE, "--replace", *supervise.standin(port=held))
        metrics_taken = supervise.run(*GRACE, "--replace", "--metrics", held, *supervise.standin(port=port))
        own_port = supervise.run(*GRACE, "--replace", "--metrics", own_metrics, *supervise.standin(port=own_metrics))
    assert (port_taken.popen.returncode, metrics_taken.popen.returncode, own_port.popen.returncode) == (94, 125, 2)
    assert f"BLOCKED port {held}" in port_taken.stderr
    assert "nothing was touched: run X goes on" in port_taken.stderr
    assert "somebody has the port" in metrics_taken.stderr
    assert supervise.identity("leader") == leader
    assert signals.alive(leader)
    asked_to_stop(supervise, first)


def test_its_own_ports_are_in_nobodys_way(supervise: Supervise, port: int) -> None:
    metrics = free_port()
    first = supervise.start(*GRACE, "--metrics", metrics, *supervise.standin("--load-s", 0.05, port=port))
    wait_ready(supervise)
    wait_old(first)
    second = supervise.start(*GRACE, "--replace", "--metrics", metrics, *supervise.standin("--load-s", 0.05, port=port))
    assert first.wait() == -signal.SIGTERM, second.stderr
    wait_until(lambda: supervise.identity("supervisor") == second.id, failure=supervise.said)
    wait_ready(supervise)
    asked_to_stop(supervise, second)


def test_of_two_that_replace_at_once_one_wins(supervise: Supervise, port: int) -> None:
    first = start(supervise, port, "--ignore-term")
    wait_ready(supervise)
    wait_old(first)
    server = supervise.standin("--load-s", 0.05, port=port)
    both = [supervise.start(*GRACE, "--replace", *server) for _ in range(2)]
    assert first.wait() == -signal.SIGTERM
    wait_until(lambda: [each for each in both if each.popen.poll() is not None], failure=supervise.said)
    (loser,) = [each for each in both if each.popen.poll() is not None]
    (winner,) = [each for each in both if each is not loser]
    assert loser.wait() == 94
    assert "BLOCKED run X is" in loser.stderr
    wait_until(lambda: supervise.identity("supervisor") == winner.id, failure=supervise.said)
    wait_ready(supervise)
    asked_to_stop(supervise, winner)


def test_replace_continues_one_that_is_suspended(supervise: Supervise, port: int) -> None:
    first = start(supervise, port)
    wait_ready(supervise)
    wait_old(first)
    assert signals.send(first.id, signal.SIGSTOP) is signals.Sent.DELIVERED
    told = supervise.run("restart", "X")
    assert told.popen.returncode == 125
    assert "is suspended" in told.stderr
    second = supervise.start(*GRACE, "--replace", sys.executable, "-c", "pass")
    assert second.wait() == 91, supervise.said()
    assert first.wait() == -signal.SIGTERM


def test_replace_of_nobody_is_a_launch(supervise: Supervise, short_dir: Path) -> None:
    assert supervise.run("--name", "X", "--replace", sys.executable, "-c", "pass").popen.returncode == 91
