"""`-H`: which words go over, how they survive every shell on the way, and what the leash means to the other side."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervise.cli.remote import split
from supervise.host import ssh
from supervise.host.leash import FLAG, Leash, Told
from supervise.verbs.remote import remote, scripted
from tests.support.waiting import DEADLINE_S, wait_until

# Those that people have as login shells; whichever are installed here.
SHELLS = [path for name in ("sh", "bash", "dash", "zsh", "fish", "tcsh") if (path := shutil.which(name))]
ODD = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "\\",
    "\\'",
    "$HOME",
    "`id`",
    "!!",
    "a\nb",
    "\n",
    "%s%%",
    "#x",
    "~",
    "*",
    "é",
    "\x01",
    "-n",
]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["-H", "box"], ("box", [])),
        (["-H", "me@box", "-H", "other", "status"], ("me@box", ["-H", "other", "status"])),
        (["-Hbox", "stop", "X"], ("box", ["stop", "X"])),
        (["--host", "box", "--name", "X", "vllm"], ("box", ["--name", "X", "vllm"])),
        (["--host=box", "vllm", "--host", "::"], ("box", ["vllm", "--host", "::"])),
        (["-H"], ("", [])),
        (["--host="], ("", [])),
        (["--hostile"], None),
        (["--help"], None),
        (["-h"], None),
        (["vllm", "serve", "-H", "x"], None),
    ],
)
def test_the_host_is_named_first(argv: list[str], expected: object) -> None:
    assert split(argv) == expected


def test_what_is_told_comes_back() -> None:
    for told in (Told(60.0, "0.1.0", "me@box"), Told(None, "0.1.0", "ssh://me@box:22,x")):
        assert Told.read(told.flag) == told
    for wrong in ("", "60", "60,1", "x,1,box", "0,1,box", "-1,1,box", ",,"):
        assert Told.read(FLAG + wrong) is None


def spoken(line: str, shell: str = "sh", **env: str) -> subprocess.CompletedProcess[bytes]:
    """What sshd has a login shell do."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/dev/null/nowhere", **env}
    return subprocess.run([shell, "-c", line], env=environment, capture_output=True, timeout=60, check=False)


def printing(words: list[str]) -> str:
    return shlex.join(["printf", "%s\\0", *words])


@pytest.mark.parametrize("shell", SHELLS)
def test_odd_words_survive_every_login_shell(shell: str) -> None:
    said = spoken(ssh.for_any_shell(printing(ODD)), shell)
    assert said.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in ODD], said.stderr


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), min_size=1))
def test_any_words_survive(words: list[str]) -> None:
    said = spoken(ssh.for_any_shell(printing(words)))
    assert said.stdout.split(b"\0")[:-1] == [word.encode() for word in words]


def test_only_a_plain_line_is_told() -> None:
    """What one of those shells would take for its own is not there at all."""
    told = ssh.for_any_shell(printing(ODD)).removeprefix('exec sh -c \'eval "$(printf "').removesuffix('")"\'')
    assert not set(told) & set("'\"$`!\n%")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory of programs over there."""
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    return tmp_path / "bin"


def install(at: Path, body: str) -> None:
    at.write_text(f"#!/bin/sh\n{body}\n")
    at.chmod(0o755)


def there(bin_: Path, *words: str, program: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    script = scripted("box", words, program, None, ["ssh", "-p", "22"])
    # Alone: this machine may have any of the installers.
    if not (bin_ / "sh").exists():
        (bin_ / "sh").symlink_to(shutil.which("sh") or "")
    return spoken(ssh.for_any_shell(script), str(bin_ / "sh"), PATH=str(bin_), HOME=str(bin_.parent / "home"))


@pytest.mark.parametrize(("body", "status"), [("exit 3", 3), ("exit 255", 254), ("kill -9 $$", 137), ("kill $$", 143)])
def test_how_it_ended_is_passed_on(elsewhere: Path, body: str, status: int) -> None:
    """255, and death by a signal, would look like a connection that is lost."""
    install(elsewhere / "supervise", body)
    assert there(elsewhere).returncode == status


def test_the_flag_comes_first(elsewhere: Path) -> None:
    install(elsewhere / "supervise", 'printf "%s|" "$@"')
    install(elsewhere / "other", 'printf "other|"; printf "%s|" "$@"')
    flag, *words = there(elsewhere, "--name", "a b").stdout.decode().split("|")
    assert Told.read(flag) is not None
    assert words == ["--name", "a b", ""]
    assert there(elsewhere, program=(str(elsewhere / "other"), "more")).stdout.startswith(
        b"other|more|" + FLAG.encode()
    )
    assert there(elsewhere, program=("~/../bin/other",)).stdout.startswith(b"other|" + FLAG.encode())


@pytest.mark.parametrize(
    ("installer", "told"),
    [("uv", "uv tool install"), ("pipx", "pipx install"), ("other", "python3 -m venv ~/.local/supervise")],
)
def test_what_is_missing_is_told_with_what_installs_it(elsewhere: Path, installer: str, told: str) -> None:
    install(elsewhere / installer, "exit")
    said = there(elsewhere, "status")
    assert said.returncode == 127
    (line,) = said.stderr.decode().splitlines()
    assert line.startswith("supervise: box has no supervise on its PATH")
    assert f"ssh -p 22 box '{told}" in line


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ("echo serveraliveinterval 0", ["-o", "ServerAliveInterval=15"]),
        ("echo serveraliveinterval 30", []),
        ("exit 255", []),
    ],
)
def test_a_configuration_that_watches_is_left_alone(tmp_path: Path, configured: str, expected: list[str]) -> None:
    install(tmp_path / "ssh", f'[ "$1 $2 $3" = "-G -- box" ] || exit 9\n{configured}')
    assert ssh.watchful([str(tmp_path / "ssh")], "box") == expected


class Held:
    """A leash with its listener."""

    def __init__(self, silence_s: float) -> None:
        reading, self.writing = os.pipe()
        self.reading = reading
        self.heard: list[int] = []
        self.thread = threading.Thread(target=Leash(reading, silence_s, self.heard.append).watch)
        self.thread.start()

    def say(self, words: bytes) -> None:
        os.write(self.writing, words)

    def cut(self) -> None:
        if self.writing >= 0:
            os.close(self.writing)
        self.writing = -1

    def over(self) -> list[int]:
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        return self.heard


@pytest.fixture
def held(request: pytest.FixtureRequest) -> Iterator[Held]:
    made = Held(getattr(request, "param", 600.0))
    yield made
    made.cut()
    made.thread.join(DEADLINE_S)
    os.close(made.reading)


def test_signals_are_said_and_an_end_is_a_hang_up(held: Held) -> None:
    for piece in (b"beat\nI", b"NT\nbeat\nTER", b"M\nnonsense\n", b"x" * 9000 + b"\nQUIT\n"):
        held.say(piece)
    wait_until(lambda: held.heard == [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT], failure=lambda: held.heard)
    held.cut()
    assert held.over()[3:] == [signal.SIGHUP]


@pytest.mark.parametrize("held", [0.3], indirect=True)
def test_silence_is_a_hang_up(held: Held) -> None:
    held.say(b"beat\n")
    assert held.over() == [signal.SIGHUP]


def test_whoever_beats_is_there(held: Held) -> None:
    """The twin: the same, but that something is heard in time."""
    held.say(b"beat\n")
    held.thread.join(0.6)
    assert held.thread.is_alive()
    assert held.heard == []


@pytest.mark.parametrize(
    ("name", "said"), [("SUPERVISE_SSH", "ssh 'x"), ("SUPERVISE_REMOTE", '"'), ("SUPERVISE_LEASH", "soon")]
)
def test_a_variable_that_means_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    monkeypatch.setenv(name, said)
    assert remote("box", ["sleep", "1"]) == 2
    assert capsys.readouterr().err.startswith(f"supervise: {name}")
