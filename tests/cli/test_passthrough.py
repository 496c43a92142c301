"""The server gets exactly the command line, environment and directory that the user gave, and nothing of ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervise.host import procfs
from tests.support.launcher import Supervise

# Writes what it was given: argv NUL-separated, as /proc/self/cmdline has it, and three more things beside it.
DUMP = """\
import os, sys
base = os.environ["DUMP_TO"]
def put(name, data):
    with open(f"{base}.{name}", "wb") as file:
        file.write(data)
put("argv", b"\\0".join(map(os.fsencode, sys.argv[1:])))
put("environ", b"\\0".join(k + b"=" + v for k, v in os.environb.items()))
put("cwd", os.fsencode(os.getcwd()))
put("stdin", os.fsencode(os.readlink("/proc/self/fd/0")))
put("status", open("/proc/self/status", "rb").read())
put("fds", os.fsencode(" ".join(sorted(os.listdir("/proc/self/fd"), key=int))))
"""

ARGUMENTS: dict[str, list[bytes]] = {
    "none": [],
    "help": [b"--help", b"-h"],
    "version": [b"--version"],
    "ours": [b"--name", b"theirs", b"--grace", b"soon", b"--json", b"--dry-run", b"--ready-timeout=0"],
    "double-dash": [b"--", b"--", b"x", b"--"],
    "verbs": [b"run", b"clean", b"status"],
    "empty": [b"", b"x", b""],
    "blanks": [b" ", b"a b", b"\t", b"\n", b"line one\nline two\n", b"\r\n"],
    "shell": [b"$HOME", b"`id`", b"*", b"'", b'"', b"\\", b"{a,b}", b"~", b";", b"@file"],
    "not-utf-8": [b"\xff\xfe", b"caf\xe9", b"\xc3", b"--model=\x80"],
    "utf-8": ["modèle-😀".encode(), b"\xe2\x80\xa8"],
    "control": [bytes(range(1, 32)), b"\x7f\x1b[31m"],
    "equals": [b"=", b"--=", b"-", b"--x=", b"a=b"],
    "large": [b"x" * 100_000, *(b"%d" % number for number in range(2000))],
}
OPTIONS: dict[str, list[str]] = {
    "plain": [],
    "options": ["--name", "passed", "--grace", "1"],
    "equals": ["--name=passed"],
    "run": ["run"],
    "run-with-options": ["run", "--keep", "3"],
    "double-dash": ["--name", "passed", "--"],
}


class Dumped:
    """Runs the script under supervise, and reads what it found."""

    def __init__(self, supervise: Supervise) -> None:
        self.supervise = supervise
        self.script = supervise.base / "dump.py"
        self.script.write_text(DUMP)
        self._to = supervise.base / "dumped"

    def run(self, options: list[str], arguments: list[bytes], env: dict[str, str] | None = None, **popen: Any) -> None:
        """`python -m supervise OPTIONS python dump.py ARGUMENTS`, all of it as bytes."""
        command = [sys.executable, "-m", "supervise", *options, sys.executable, str(self.script)]
        done = subprocess.run(
            [*map(os.fsencode, command), *arguments],
            env=self.supervise.env | {"DUMP_TO": str(self._to)} | (env or {}),
            cwd=popen.pop("cwd", self.supervise.base),
            capture_output=True,
            timeout=30,
            check=False,
            **popen,
        )
        assert done.returncode == 91, done.stderr.decode(errors="replace")

    def read(self, what: str) -> bytes:
        """One of the things it wrote."""
        return Path(f"{self._to}.{what}").read_bytes()

    @property
    def argv(self) -> list[bytes]:
        """Its arguments; an empty file is no argument."""
        data = self.read("argv")
        return data.split(b"\0") if data else []

    @property
    def environ(self) -> dict[bytes, bytes]:
        """Its environment."""
        return dict(pair.split(b"=", 1) for pair in self.read("environ").split(b"\0"))

    @property
    def status(self) -> dict[str, str]:
        """Its /proc/self/status."""
        lines = self.read("status").decode().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
def dumped(supervise: Supervise) -> Dumped:
    return Dumped(supervise)


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_byte_for_byte(dumped: Dumped, arguments: list[bytes]) -> None:
    dumped.run([], arguments)
    assert dumped.argv == arguments


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_every_way_to_start_it(dumped: Dumped, options: list[str]) -> None:
    arguments = [argument for case in ARGUMENTS.values() for argument in case]
    dumped.run(options, arguments)
    assert dumped.argv == arguments


def test_the_environment_is_the_users_and_the_marker(dumped: Dumped) -> None:
    given = {
        "PLAIN": "a value",
        "EMPTY": "",
        "LINES": "one\ntwo",
        "BYTES": os.fsdecode(b"\xff\xfe"),
        "TMPDIR": str(dumped.supervise.tmp),
        "CUDA_VISIBLE_DEVICES": "",
        "SPT_NOENV": "0",
        "PYTHONUNBUFFERED": "",
    }
    to_us = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1", "LISTEN_FDS": "3", "SUPERVISE_RUN": "of another"}
    dumped.run([], [], given | to_us)
    expected = dumped.supervise.env | given
    seen = {os.fsdecode(name): os.fsdecode(value) for name, value in dumped.environ.items()}
    marker = {procfs.MARKER_RUN: "dump", procfs.MARKER_ATTEMPT: "1", procfs.MARKER_ID: seen[procfs.MARKER_ID]}
    ours = {"SPT_NOENV": "1", "PYTHONFAULTHANDLER": "1", **marker}
    assert seen[procfs.MARKER_ID]
    changed = {name: value for name, value in seen.items() if expected.get(name) != value}
    changed.pop("DUMP_TO")
    # The interpreter that runs the script adds this itself under a C locale (PEP 538).
    changed.pop("LC_CTYPE", None)
    assert changed == ours
    assert set(expected) <= set(seen)
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "LISTEN_FDS"} & set(seen)


def test_standard_input_is_empty(dumped: Dumped) -> None:
    dumped.run([], [], input=b"for nobody")
    assert dumped.read("stdin") == b"/dev/null"


def test_no_descriptor_of_ours_is_inherited(dumped: Dumped) -> None:
    """The fourth is that of the directory being listed."""
    dumped.run([], [])
    assert dumped.read("fds").split() == [b"0", b"1", b"2", b"3"]


def test_the_directory_is_kept(dumped: Dumped) -> None:
    elsewhere = dumped.supervise.base / "a directory\nof the user"
    elsewhere.mkdir()
    dumped.run([], [], cwd=elsewhere)
    assert dumped.read("cwd") == os.fsencode(elsewhere.resolve())


def _ignore() -> None:
    for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
        signal.signal(signum, signal.SIG_IGN)


def _block() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1})


def _signals(mask: str) -> set[int]:
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


@pytest.mark.parametrize("inherited", [_ignore, _block], ids=["ignored", "blocked"])
def test_signals_start_afresh(dumped: Dumped, inherited: Callable[[], None]) -> None:
    """Python itself ignores SIGPIPE and SIGXFSZ and catches SIGINT; 32 and 33 belong to the C library."""
    dumped.run([], [], preexec_fn=inherited)
    assert _signals(dumped.status["SigIgn"]) - {32, 33} == {signal.SIGPIPE, signal.SIGXFSZ}
    assert _signals(dumped.status["SigBlk"]) == set()
    assert signal.SIGINT in _signals(dumped.status["SigCgt"])
