"""The door to py-spy, which reads the stacks of a Python process from outside, if it is installed."""

from __future__ import annotations

import os
import re
import sys
import time

from supervise.host.program import ask

_NAME = "py-spy"


class PySpyError(Exception):
    """There are no stacks; the message is one line that says why."""


def find() -> str | None:
    """The program: beside our own Python, where `pip install py-spy` puts it, else in PATH; None without one."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), _NAME) if sys.executable else ""
    return shutil.which(beside) if beside and os.path.isfile(beside) else shutil.which(_NAME)


def dump(program: str, pid: int, timeout_s: float) -> str:
    """The stacks of all threads of a Python process.

    First without pausing it: that goes with a stopped process too, and harms nothing. A busy one may change its stacks
    while they are read; then it is paused for the milliseconds that it takes.

    Args:
        program: py-spy, from `find`.
        pid: the process.
        timeout_s: how long both tries together may take, in seconds; a py-spy that is still there then is killed.

    Returns:
        What py-spy prints, from the Python version on. The line before it is the command line, secrets included.

    Raises:
        PySpyError: not permitted, not a Python, ended, too late.
    """
    deadline = time.monotonic() + timeout_s
    reason = ""
    for how in (["--nonblocking"], []):
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            break
        printed, reason = _run([program, "dump", *how, "--pid", str(pid)], remaining)
        stacks = _without_command_line(printed)
        if re.search(r"^Thread ", stacks, re.MULTILINE):
            return stacks
    raise PySpyError(reason or f"py-spy had no time ({timeout_s:g} s)")


def _run(command: list[str], timeout_s: float) -> tuple[str, str]:
    """What it printed, and why if that is not enough; by its exit status alone neither can be told."""
    try:
        answer = ask(command, timeout_s)
    except TimeoutError:
        raise PySpyError(f"py-spy did not answer in {timeout_s:.1f} s") from None
    except OSError as error:
        raise PySpyError(f"{command[0]}: {error.strerror}") from None
    return answer.printed, _one_line(answer.complaint)


def _without_command_line(printed: str) -> str:
    """Everything from the line with the version on; a command line may itself have several lines."""
    at = printed.rfind("\nPython v")
    return printed[at + 1 :] if at >= 0 else ""


def _one_line(complaint: str) -> str:
    """The error and its innermost cause; the backtrace of py-spy itself helps nobody."""
    said = [line.strip() for line in complaint.partition("Stack backtrace:")[0].splitlines() if line.strip()]
    if not said:
        return "py-spy printed no stacks"
    first, last = said[0].removeprefix("Error: "), re.sub(r"^\d+: ", "", said[-1])
    return first if len(said) == 1 else f"{first} ({last})"
