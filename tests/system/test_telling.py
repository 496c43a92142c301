"""Metrics and hooks of a whole run, with the stand-in: what they tell is what happened, and they change none of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from supervise.host import procfs
from tests.support.launcher import Supervise, free_port
from tests.support.waiting import alive, wait_until

PORT_TAKEN = "OSError: [Errno 98] Address already in use"
ONCE = '[ $SUPERVISE_ATTEMPT = 1 ] && exec "$@" --crash-at load --crash-text "$0"; exec "$@"'
TELL = 'cat >> "$TMPDIR/told"'


def values(text: str) -> dict[str, float]:
    """Samples by name and labels, without those that all have."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["run"] == "X"
            more = {name: value for name, value in sample.labels.items() if name not in ("run", "engine")}
            found[
                sample.name.removeprefix("supervise_") + "".join(f" {name}={more[name]}" for name in sorted(more))
            ] = sample.value
    return found


def scrape(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return values(answer.read().decode())


def told(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_that_fails_once_is_told_as_it_went(supervise: Supervise, port: int) -> None:
    endpoint, file = free_port(), supervise.tmp / "x.prom"
    server = supervise.standin("--load-s", 0.05, port=port)
    launched = supervise.start(
        "--name", "X", "--grace", 1, "--restart", "on-failure", "--backoff", 0.05,
        "--metrics", endpoint, "--metrics-file", file, "--on", "any", TELL,
        "sh", "-c", ONCE, PORT_TAKEN, *server,
    )  # fmt: skip
    launched.wait_said("ready")
    wait_until(lambda: scrape(endpoint)["ready"], failure=lambda: scrape(endpoint))
    now = scrape(endpoint)
    assert (now["attempts_total"], now["restarts_total class=transient"], now["restarts_total class=asked"]) == (
        2,
        1,
        0,
    )
    assert now["failures_total class=transient outcome=died signature=address-in-use"] == 1
    assert (now["up"], now["state state=ready"], now["state state=starting"], now["attempt"]) == (1, 1, 0, 2)
    assert (now["kill_seconds_count"], now["survivors"]) == (1, 0)
    assert now["ready_seconds"] > 0
    assert now["log_bytes"] > 0
    assert now["open_fds"] < 60
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    last = values(file.read_text())
    assert (last["up"], last["ready"], last["attempts_total"], last["exit_status"]) == (0, 0, 2, 143)
    events = told(supervise.tmp / "told")
    assert [event["event"] for event in events] == ["launch", "crash", "relaunch", "launch", "ready", "stop"]
    crash = events[1]
    assert (crash["attempt"], crash["signature"], crash["class"]) == (1, "address-in-use", "transient")
    assert crash["exit_status"] == json.loads((supervise.attempt(1) / "outcome.json").read_text())["exit_status"]
    assert "Address already in use" in crash["cause"]
    assert Path(events[4]["log"]).samefile(supervise.attempt(2) / "server.log")


def test_a_keeper_that_is_killed_takes_no_hook_along_and_the_end_is_clean(supervise: Supervise, port: int) -> None:
    family = supervise.family()
    hook = 'echo $$ > "$TMPDIR/hook"; while [ ! -e "$TMPDIR/go" ]; do sleep 0.05; done; touch "$TMPDIR/over"'
    server = supervise.standin("--load-s", 0.05, "--escape", "setsid,double-fork", port=port, pids=family.path)
    launched = supervise.start("--name", "X", "--grace", 1, "--on", "ready", hook, *server)
    pid = int(
        wait_until(
            lambda: (supervise.tmp / "hook").exists() and (supervise.tmp / "hook").read_text(), failure=supervise.said
        )
    )
    process = procfs.read(pid)
    assert process is not None
    assert process.marker is None
    keeper = json.loads((supervise.attempt() / "attempt.json").read_text())["keeper"]["pid"]
    guard = json.loads((supervise.attempt() / "attempt.json").read_text())["guard"]["pid"]
    os.kill(guard, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not family.survivors and (supervise.attempt() / "outcome.json").exists(), failure=supervise.said)
    assert alive(pid)
    (supervise.tmp / "go").touch()
    launched.wait()
    assert (supervise.tmp / "over").exists()
    assert supervise.outcome()["verified"]
    assert not alive(pid)


def test_a_hook_that_hangs_delays_neither_the_server_nor_its_end(supervise: Supervise, port: int) -> None:
    family = supervise.family()
    hang = "trap : TERM; echo $$ >> $TMPDIR/hooks; while :; do sleep 0.1; done"
    server = supervise.standin("--load-s", 0.05, port=port, pids=family.path)
    endpoint = free_port()
    shown = ("--metrics", endpoint, "--on", "any", hang, "--on-timeout", 60)
    launched = supervise.start("--name", "X", "--grace", 1, *shown, *server)
    launched.wait_said("ready")
    launched.send(signal.SIGTERM)
    launched.wait_said("waiting for")
    # Whoever scrapes or asks is still told how it went.
    now = scrape(endpoint)
    assert (now["up"], now["exit_status"], now["state state=done"]) == (0, 143, 1)
    assert list((supervise.state / "supervise/X").glob("control.sock*"))
    assert family.survivors == []
    assert supervise.outcome()["verified"]
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    assert "not over when supervise left" in launched.stderr
    for pid in map(int, (supervise.tmp / "hooks").read_text().split()):
        assert not alive(pid)


def test_an_endpoint_that_cannot_be_had_is_said_before_anything_is_launched(supervise: Supervise, port: int) -> None:
    server = supervise.standin(port=port)
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        refused = supervise.run("--metrics", taken, *server)
    assert refused.popen.returncode == 125
    assert re.search(
        rf"^supervise: --metrics 127\.0\.0\.1:{taken}: somebody has the port", refused.stderr, re.MULTILINE
    )
    mistake = supervise.run("--metrics", port, "--profile", "vllm", *server)
    assert mistake.popen.returncode == 2
    assert f"the server itself wants port {port}" in mistake.stderr
    assert not list((supervise.state / "supervise").glob("*/attempts/0*"))


def test_what_cannot_be_executed_is_told_as_the_console_has_it(supervise: Supervise) -> None:
    script, message = supervise.tmp / "serve", supervise.tmp / "message"
    script.write_text("#!/no/interpreter\n")
    script.chmod(0o700)
    launched = supervise.run("--name", "X", "--termination-log", message, "--on", "crash", TELL, script)
    why = f"{script}: cannot execute: its interpreter (the #! line) does not exist"
    assert why in launched.stderr
    assert message.read_text().startswith(f"exit status 127: {why}\n")
    assert told(supervise.tmp / "told")[0]["cause"] == why
