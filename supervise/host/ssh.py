"""The door to ssh: the user's own program and configuration, and a command line that any login shell understands.

sshd(8) has the login shell of the user run one string. Whether that is bash, dash, fish, zsh or tcsh is not known here.
"""

from __future__ import annotations

import os
import shlex
import signal
import string
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from supervise.host import kernel, program

COMMAND = "SUPERVISE_SSH"
"""The variable with the ssh to use, as a shell would read it: `ssh -p 2222 -F file`."""

LOST = 255
"""What ssh ends with for a reason of its own (ssh(1), EXIT STATUS), and where the other side died of a signal."""

_CONFIGURED_WITHIN_S = 5.0
# ssh_config(5): the connection is given up after ServerAliveCountMax of these, which is 3.
_ALIVE_EVERY_S = 15
# What neither a login shell changes within single quotes nor sh within double ones; percent signs mean printf.
_PLAIN = frozenset((string.ascii_letters + string.digits + " _./:=@+,-;|&<>()[]").encode())


def command(env: Mapping[str, str]) -> list[str]:
    """The ssh that the user wants.

    Args:
        env: our environment.

    Raises:
        ValueError: it cannot be read as a shell would; the message says why.
    """
    return words(env, COMMAND) or ["ssh"]


def words(env: Mapping[str, str], name: str) -> list[str]:
    """The words of a variable, as a shell would read them; none where it is not set.

    Raises:
        ValueError: it cannot be read so; the message says why.
    """
    try:
        return shlex.split(env.get(name, ""))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def watchful(ssh: Sequence[str], host: str) -> list[str]:
    """Options that have a dead network noticed within a minute; none where the user's configuration has it noticed.

    Args:
        ssh: the user's ssh.
        host: as the user has named it.

    Returns:
        At most five seconds later; none where that ssh does not tell (`ssh -G`).
    """
    try:
        told = program.ask([*ssh, "-G", "--", host], _CONFIGURED_WITHIN_S).printed.lower().splitlines()
    except (OSError, TimeoutError):
        return []
    return ["-o", f"ServerAliveInterval={_ALIVE_EVERY_S}"] if "serveraliveinterval 0" in told else []


def for_any_shell(script: str) -> str:
    """A command line that has sh(1) run a script, whichever shell reads it.

    Each byte that could mean something to one of them is told to printf(1) as a number: then there is no quote, dollar,
    exclamation mark or newline for a shell to take for its own, and a backslash stands before a digit only.

    Args:
        script: for a POSIX shell; its last character is no newline.
    """
    told = "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in os.fsencode(script))
    return f"""exec sh -c 'eval "$(printf "{told}")"'"""


def on_terminal() -> bool:
    """Whether we have a controlling terminal: ssh asks there, its keys are for us, and its shell continues a job."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def start(command: Sequence[str], stdin: int | None, blocked: Iterable[int] = (), *, apart: bool = False) -> int:
    """Start it as a child that shares our terminal and our output.

    One that reads our terminal would outlive us there unseen, and with it what it holds on the other side: it gets a
    SIGTERM when we end. One with a standard input of its own learns of our end from that.

    Args:
        command: its words.
        stdin: its standard input; None for our own.
        blocked: signals that do not reach it, nor a master which it leaves behind for others (ssh_config(5),
            ControlPersist).
        apart: in a process group of its own, which what is sent to ours does not reach. On a terminal such a one is in
            the background: it cannot ask there for a password, nor would it be continued with us.

    Returns:
        Its pid; nobody else waits for it.

    Raises:
        OSError: it cannot be started.
    """
    ours = os.getpid()

    def become() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if stdin is None:
            kernel.die_with_parent(signal.SIGTERM)
            if os.getppid() != ours:
                os._exit(LOST)

    # There is one thread. SIGPIPE and SIGXFSZ, which Python has ignored, are as they were for a program.
    started = subprocess.Popen(
        command, stdin=stdin, close_fds=False, preexec_fn=become, process_group=0 if apart else None
    )
    # Nobody but `ended` waits for it.
    started.returncode = 0
    return started.pid


def ended(pid: int, *, alike: bool) -> int | None:
    """The exit status of a child, -n for a signal; None while it runs.

    Args:
        pid: of the child.
        alike: whether we stop when a key or a question on the terminal has stopped it. ssh stops itself alone by its
            escape character (ssh(1), `~^Z`), and the shell waits for us; without one nobody would continue us.
    """
    found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if not found:
        return None
    if os.WIFSTOPPED(status):
        # Whoever sends a SIGSTOP to ssh means that one, and continues it.
        if alike and os.WSTOPSIG(status) != signal.SIGSTOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        return None
    return os.waitstatus_to_exitcode(status)
