"""`-H`: which words go over, how they survive every shell on the way, and what the leash means to the other side."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervise.cli.remote import split
from supervise.host import procfs, ssh
from supervise.host.leash import FLAG, Leash, Told
from supervise.verbs.installing import Source
from supervise.verbs.over_there import scripted
from supervise.verbs.remote import remote
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


ORIGIN = Source("supervise-llm==0.0.7")


def there(bin_: Path, *words: str, program: tuple[str, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    script = scripted("box", words, program, None, ["ssh", "-p", "22"], ORIGIN)
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
    [
        ("uv", "uv tool install --force supervise-llm==0.0.7'"),
        ("pipx", "pipx install --force supervise-llm==0.0.7'"),
        ("other", "python3 -m venv ~/.local/supervise"),
    ],
)
def test_what_is_missing_is_told_with_what_installs_it(elsewhere: Path, installer: str, told: str) -> None:
    install(elsewhere / installer, "exit")
    said = there(elsewhere, "status")
    assert said.returncode == 127
    (line,) = said.stderr.decode().splitlines()
    assert line.startswith("supervise: box has no supervise on its PATH")
    assert f"ssh -p 22 box '{told}" in line


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo No such option: --over-ssh >&2; exit 2", True),
        ("echo usage: supervise dir >&2; exit 111", True),
        # The twins: ours knows what is said to it, and this was a mistake in what came after.
        ('[ "$2" = --version ] || exit 2', False),
        ("exit 3", False),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_one_that_is_too_old_or_not_ours_is_told(elsewhere: Path, body: str, said: bool, named: bool) -> None:
    install(elsewhere / "supervise", body)
    install(elsewhere / "pipx", "exit")
    ended = there(elsewhere, "status", program=(str(elsewhere / "supervise"),) if named else ())
    assert ended.returncode in (2, 3, 111)
    told = [line for line in ended.stderr.decode().splitlines() if line.startswith("supervise: box: ")]
    assert len(told) == said
    for line in told:
        assert f"{elsewhere}/supervise does not know -H: it is too old, or not ours" in line
        assert "SUPERVISE_REMOTE names" in line
        assert ("pipx install --force supervise-llm==0.0.7" in line) is not named


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


@pytest.mark.parametrize(("stdin", "stays"), [(None, False), (0, True)])
def test_what_reads_our_terminal_does_not_outlive_us(stdin: int | None, stays: bool) -> None:
    """Killed where the terminal goes on, as below an interactive shell: nothing else would tell ssh."""
    code = (
        "import time; from supervise.host import ssh\n"
        f"print(ssh.start(['sleep', '60'], {stdin}, ()), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as popen:
        assert popen.stdout is not None
        pid = int(popen.stdout.readline())
        popen.kill()
        popen.wait()
    try:
        if stays:
            time.sleep(0.3)
            assert procfs.read(pid) is not None
        else:
            wait_until(lambda: (found := procfs.read(pid)) is None or found.state == "Z")
    finally:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def waited(pid: int) -> int:
    """How it has ended."""
    ends: list[int | None] = []
    wait_until(lambda: ends.append(ssh.ended(pid, alike=False)) or ends[-1] is not None)
    assert ends[-1] is not None
    return ends[-1]


def test_a_mistake_in_the_program_is_told() -> None:
    assert waited(ssh.start(["true"], None)) == 0
    with pytest.raises(FileNotFoundError):
        ssh.start(["/nowhere/ssh"], None)


@pytest.mark.parametrize("apart", [False, True])
def test_what_is_meant_for_all_of_us_does_not_reach_it(apart: bool) -> None:
    """Blocked on a terminal; without one it has a group of its own, and whoever it leaves behind hears all signals."""
    pid = ssh.start(["sleep", "60"], 0, () if apart else (signal.SIGTERM,), apart=apart)
    try:
        assert (os.getpgid(pid) == pid) is apart
        blocked = Path(f"/proc/{pid}/status").read_text().partition("SigBlk:")[2].split()[0]
        assert bool(int(blocked, 16) >> signal.SIGTERM - 1 & 1) is not apart
    finally:
        os.kill(pid, signal.SIGKILL)
        assert waited(pid) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("signum", "alike", "stops"),
    [(signal.SIGTSTP, True, True), (signal.SIGTSTP, False, False), (signal.SIGSTOP, True, False)],
)
def test_we_stop_with_it_only_where_somebody_continues_us(signum: int, alike: bool, stops: bool) -> None:
    code = (
        "import os, signal, time; from supervise.host import ssh\n"
        "pid = ssh.start(['sleep', '60'], 0)\n"
        f"os.kill(pid, {int(signum)}); print(pid, flush=True)\n"
        f"while ssh.ended(pid, alike={alike}) is None: time.sleep(0.02); print(end='.', flush=True)"
    )
    # Its parent is in the same session, but in another group: only then a SIGTSTP stops anybody (setpgid(2)).
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, process_group=0) as popen:
        assert popen.stdout is not None
        pid = int(popen.stdout.readline())
        if stops:
            wait_until(lambda: (found := procfs.read(popen.pid)) is not None and found.state == "T")
        else:
            wait_until(lambda: (found := procfs.read(pid)) is not None and found.state == "T")
            # It has looked at least once since.
            popen.stdout.read(2)
        os.kill(pid, signal.SIGKILL)
        popen.send_signal(signal.SIGCONT)
        popen.communicate(timeout=DEADLINE_S)
        assert popen.returncode == 0


def test_too_many_words_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    install(tmp_path / "ssh", "exit 1")
    monkeypatch.setenv("SUPERVISE_SSH", str(tmp_path / "ssh"))
    assert remote("box", ["--help", '"' * 60_000]) == 125
    assert "too long for ssh" in capsys.readouterr().err


def test_a_key_before_anything_has_begun_is_no_traceback() -> None:
    code = (
        "import sys, supervise.cli as cli\n"
        "def interrupted(): raise KeyboardInterrupt\n"
        "cli._parser = interrupted\n"
        "sys.argv = ['supervise', 'status']\n"
        "cli.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, b"")


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
