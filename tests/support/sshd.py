"""An sshd of the test's own on the loopback, and what a user has to have to log in there as who we are."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from supervise.host import procfs, signals
from supervise.model.process import ProcessId
from tests.support.launcher import Supervise, free_port
from tests.support.waiting import DEADLINE_S, wait_until

PROGRAM = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
HOST = "box"
SHARED = "shared"
"""The same host, by a connection that several share (ssh_config(5), ControlMaster)."""

# Compiled in; where root runs it without a service manager nobody has made it yet (sshd(8), FILES).
_EMPTY = Path("/run/sshd")
_SERVER = """\
ListenAddress 127.0.0.1:{port}
HostKey {base}/host
AuthorizedKeysFile {base}/user.pub
StrictModes no
UsePAM no
PidFile none
PasswordAuthentication no
PermitRootLogin yes
SetEnv PATH={base}/bin:/usr/bin:/bin HOME={base}/home
"""
_CLIENT = """\
Host {host} {shared}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {base}/user
  IdentitiesOnly yes
  UserKnownHostsFile {base}/known
  StrictHostKeyChecking accept-new
  LogLevel ERROR
Host {shared}
  ControlMaster auto
  ControlPath {base}/master
  ControlPersist 60
"""


class Sshd:
    """It listens from the beginning.

    Args:
        base: a directory of its own, with a short path.
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._made = os.geteuid() == 0 and not _EMPTY.exists()
        if self._made:
            _EMPTY.mkdir(mode=0o755)
        port, user = free_port(), pwd.getpwuid(os.geteuid()).pw_name
        for name in ("bin", "home"):
            (base / name).mkdir()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / key], check=True)
        (base / "sshd_config").write_text(_SERVER.format(base=base, port=port))
        (base / "config").write_text(_CLIENT.format(base=base, port=port, user=user, host=HOST, shared=SHARED))
        with (base / "log").open("wb") as log:
            self._popen = subprocess.Popen(
                [str(PROGRAM), "-D", "-e", "-f", str(base / "sshd_config")], stdin=subprocess.DEVNULL, stderr=log
            )
        wait_until(lambda: _listens(port), failure=(base / "log").read_text)

    @property
    def program(self) -> Path:
        """Where the other side has its supervise, or has not."""
        return self.base / "bin/supervise"

    def serve(self, supervise: Supervise) -> None:
        """Have a supervise with these directories over there, and this ssh to go there over here."""
        env = {
            name: value for name, value in supervise.env.items() if name.startswith(("HOME", "XDG_", "TMPDIR", "PY"))
        }
        lines = [f"export {name}='{value}'" for name, value in env.items()]
        code = supervise.code
        lines += [f"PYTHONPATH='{code}'", "export PYTHONPATH", f'exec {supervise.python} -m supervise "$@"']
        self.program.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        self.program.chmod(0o755)
        supervise.extra_env["SUPERVISE_SSH"] = self.ssh

    @property
    def ssh(self) -> str:
        """What goes there."""
        return f"ssh -F {self.base}/config"

    def session(self, inside: ProcessId) -> ProcessId:
        """The process of sshd that this one hangs from: with it the connection is cut."""
        pid = inside.pid
        while (process := procfs.read(pid)) is not None and process.comm != "sshd":
            pid = process.ppid
        assert process is not None
        assert process.pid != self._popen.pid
        return process.id

    def master(self) -> int:
        """The pid of whoever has the connection that is shared."""
        asked = [*self.ssh.split(), "-O", "check", SHARED]
        ended = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
        return int(ended.stderr.partition("pid=")[2].partition(")")[0])

    def part(self) -> None:
        """Nothing is shared any more."""
        if (self.base / "master").exists():
            subprocess.run(
                [*self.ssh.split(), "-O", "exit", SHARED], capture_output=True, check=True, timeout=DEADLINE_S
            )
        self.program.unlink(missing_ok=True)

    def close(self) -> None:
        """It ends."""
        self._popen.send_signal(signal.SIGTERM)
        self._popen.wait(DEADLINE_S)
        if self._made:
            _EMPTY.rmdir()


def cut(session: ProcessId) -> None:
    """The connection is gone at once, and nobody is told."""
    assert signals.send(session, signal.SIGKILL) is signals.Sent.DELIVERED


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
