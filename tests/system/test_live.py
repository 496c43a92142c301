"""The live view and its keys, on a terminal of the test's own."""

from __future__ import annotations

import os
import signal
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from supervise.host import procfs, signals
from tests.support.launcher import Supervise
from tests.support.nvml import library
from tests.support.session import Session
from tests.support.vt import Vt
from tests.support.waiting import wait_until

IN_FRONT = 'export TERM=xterm; exec "$@" 2>&1'
# A job that a shell has started with `&`, and does not bring to the front.
BEHIND = 'export TERM=xterm; set -m; "$@" 2>&1 & wait'
RULE = "─" * 79


def started(supervise: Supervise, screen: Session, port: int, *options: object, shell: str = IN_FRONT) -> Session:
    command = supervise.standin(port=port)
    return screen.start("--profile", "vllm", "--no-preflight", "all", *options, *command, shell=shell)


def window(screen: Session) -> str:
    """What stands on the terminal."""
    return Vt(24, 80).feed(screen.look()).all


def wait_window(screen: Session, text: str) -> None:
    wait_until(lambda: text in window(screen), failure=lambda: f"{text!r} in\n{window(screen)}")


def ready(screen: Session) -> None:
    """The view says so, and the keys are taken."""
    wait_window(screen, "ready since")
    wait_window(screen, "q stop")


def takes_keys(screen: Session) -> bool:
    return not screen.current_modes()[3] & termios.ICANON


def test_the_view_is_there_and_q_leaves_nothing_of_it(supervise: Supervise, screen: Session, port: int) -> None:
    started(supervise, screen, port)
    ready(screen)
    assert RULE in window(screen)
    assert takes_keys(screen)
    assert screen.current_modes()[3] & termios.ISIG
    screen.type("?")
    wait_window(screen, "without grace")
    screen.type("q")
    assert screen.wait() == -signal.SIGINT
    assert supervise.outcome()["verified"] is True
    left = window(screen)
    assert "─" not in left
    assert "stop     key q: SIGTERM to the leader" in left.split("group empty")[0]
    assert "loading" not in left, "what the view has shown is no line"
    assert left.split("\n")[-1].startswith("verified 0 processes left")
    assert screen.current_modes() == screen.modes


def test_r_and_c_begin_anew_and_c_without_compile_caches(supervise: Supervise, screen: Session, port: int) -> None:
    cache = supervise.base / "home/.cache/vllm/torch_compile_cache"
    cache.mkdir(parents=True)
    (cache / "kernel").touch()
    started(supervise, screen, port)
    ready(screen)
    screen.type("r")
    wait_window(screen, "attempt 2  ready")
    assert (cache / "kernel").exists()
    screen.type("c")
    wait_window(screen, "attempt 3  ready")
    assert not cache.exists()
    assert len(list(cache.parent.glob("*/kernel"))) == 1, "nothing is deleted"
    screen.type("qq")
    assert screen.wait() == -signal.SIGINT
    assert "key c" in window(screen)


@pytest.mark.parametrize(
    "asked",
    [
        (("r", "stop     key r:"), ("r", ""), ("q", "key q: nothing follows")),
        (("q", "stop     key q:"), ("r", "key r: it is being stopped, and does not begin again"), ("r", "")),
    ],
)
def test_what_is_asked_of_a_server_that_is_stopping_is_answered_once(
    supervise: Supervise, screen: Session, port: int, asked: tuple[tuple[str, str], ...]
) -> None:
    command = supervise.standin("--ignore-term", port=port)
    screen.start("--profile", "vllm", "--no-preflight", "all", "--grace", 60, *command, shell=IN_FRONT)
    ready(screen)
    for key, told in asked:
        screen.type(key)
        wait_window(screen, told)
    screen.type("q")
    assert screen.wait() == -signal.SIGINT
    left = window(screen)
    assert left.count("stop     ") == 1
    assert left.count("nothing follows") + left.count("does not begin again") == 1


def test_r_ends_the_wait_for_a_change(supervise: Supervise, screen: Session, port: int, tmp_path: Path) -> None:
    (tmp_path / "watched.py").touch()
    command = supervise.standin("--crash-at", "weights", port=port)
    watched = ("--watch", tmp_path / "watched.py")
    screen.start("--profile", "vllm", "--no-preflight", "all", *watched, *command, shell=IN_FRONT)
    wait_window(screen, "for a change of a watched file, or for r")
    screen.type("r")
    wait_window(screen, "restart  key r: waits no longer, the next attempt begins")
    wait_window(screen, "attempt 2  waiting")
    screen.type("q")
    assert screen.wait() == -signal.SIGINT
    assert "stop     key q: nothing runs" in window(screen)


def test_what_is_typed_ahead_or_pasted_means_nothing(supervise: Supervise, screen: Session, port: int) -> None:
    started(supervise, screen, port)
    ready(screen)
    for text in ("ls -l /qrc\n", "\x1b[A", "q\n", "é"):
        screen.type(text)
    # Alone: what comes together with the rest is of the rest.
    wait_until(lambda: _explained(screen), failure=lambda: window(screen))
    assert supervise.status()["state"] == "ready"
    assert supervise.status()["attempt"] == 1
    os.kill(screen.id.pid, signal.SIGTERM)
    assert screen.wait() == -signal.SIGTERM


def test_what_is_typed_before_keys_are_taken_means_nothing_later(
    supervise: Supervise, screen: Session, port: int
) -> None:
    started(supervise, screen, port)
    screen.type("q")  # nobody listens yet
    ready(screen)
    wait_until(lambda: _explained(screen), failure=lambda: window(screen))
    assert supervise.status()["state"] == "ready"
    os.kill(screen.id.pid, signal.SIGTERM)
    assert screen.wait() == -signal.SIGTERM


@pytest.mark.parametrize("how", ["server killed", "supervise stopped", "ctrl-c"])
def test_every_end_gives_the_terminal_back(supervise: Supervise, screen: Session, port: int, how: str) -> None:
    started(supervise, screen, port)
    ready(screen)
    assert takes_keys(screen)
    if how == "server killed":
        signals.send(supervise.identity("leader"), signal.SIGKILL)
    elif how == "ctrl-c":
        screen.type("\x03")
    else:
        os.kill(screen.id.pid, signal.SIGTERM)
    screen.wait()
    assert screen.current_modes() == screen.modes
    assert "─" not in window(screen)


def test_ctrl_z_gives_the_terminal_back_for_a_while(supervise: Supervise, screen: Session, port: int) -> None:
    started(supervise, screen, port)
    ready(screen)
    screen.type("\x1a")
    wait_until(lambda: _state(screen) == "T")
    assert screen.current_modes() == screen.modes
    assert "─" not in window(screen)
    os.kill(screen.id.pid, signal.SIGCONT)
    ready(screen)
    wait_until(lambda: takes_keys(screen))
    screen.type("q")
    assert screen.wait() == -signal.SIGINT
    assert screen.current_modes() == screen.modes


@pytest.mark.parametrize("plain", [(), ("--plain",)], ids=["live", "plain"])
def test_a_terminal_that_stands_still_holds_nothing_up(
    supervise: Supervise, screen: Session, port: int, plain: tuple[str, ...]
) -> None:
    started(supervise, screen, port, *plain)
    supervise.wait_state("ready")
    wait_window(screen, "ready")
    screen.type("\x13")
    os.kill(screen.id.pid, signal.SIGTERM)
    assert screen.wait() == -signal.SIGTERM
    assert supervise.outcome()["verified"] is True
    assert screen.current_modes() == screen.modes
    assert "verified 0" not in window(screen)


def test_behind_a_shell_nothing_is_drawn_nor_taken(supervise: Supervise, screen: Session, port: int) -> None:
    started(supervise, screen, port, shell=BEHIND)
    supervise.wait_state("ready")
    wait_window(screen, "ready    in")
    assert screen.current_modes() == screen.modes
    screen.type("q\n")
    supervisor = supervise.identity("supervisor")
    assert _running(supervisor.pid)
    signals.send(supervisor, signal.SIGTERM)
    screen.wait()
    assert b"\x1b" not in screen.look()
    assert supervise.outcome()["signal"] == signal.SIGTERM


def test_the_memory_of_gpus_is_there_and_follows(
    supervise: Supervise, screen: Session, port: int, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("gpu GPU-aa 81920 0\n")
    found = library.environment(library.build(tmp_path), tmp_path / "state")
    supervise.extra_env |= {name: found[name] for name in ("LD_LIBRARY_PATH", "NVML_STANDIN")}
    command = supervise.standin("--load-s", 100, port=port)
    screen.start("--profile", "vllm", "--no-preflight", "all", *command, shell=IN_FRONT)
    wait_window(screen, "GPU 0 ──────────   0.0/80.0 GiB")
    (tmp_path / "state").write_text("gpu GPU-aa 81920 40960\n")
    wait_window(screen, "GPU 0 ━━━━━─────  40.0/80.0 GiB")
    (tmp_path / "state").write_text("gpu GPU-aa 81920 0\n")
    screen.type("q")
    assert screen.wait() == -signal.SIGINT


def test_plain_is_lines_and_no_keys(supervise: Supervise, screen: Session, port: int) -> None:
    started(supervise, screen, port, "--plain")
    supervise.wait_state("ready")
    wait_window(screen, "ready    in")
    assert screen.current_modes() == screen.modes
    screen.type("q")
    os.kill(screen.id.pid, signal.SIGTERM)
    assert screen.wait() == -signal.SIGTERM
    assert b"\x1b" not in screen.look()
    assert "loading  weights" in window(screen)


def _explained(screen: Session) -> bool:
    """Whether one more `?` has been heard."""
    screen.type("?")
    with suppress(AssertionError):
        wait_until(lambda: "without grace" in window(screen), 1.0)
        return True
    return False


def _state(screen: Session) -> str:
    found = procfs.read(screen.id.pid)
    return found.state if found else "gone"


def _running(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "SR"
