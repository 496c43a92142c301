"""`--scope`: run inside a scope that systemd makes for us, where we may make cgroups of our own."""

from __future__ import annotations

import os
import subprocess
import sys

from supervise.report.console import for_stream

_INSIDE = "SUPERVISE_IN_SCOPE"
_TRIAL_S = 20.0


def enter() -> None:
    """Become a process of a new scope with `Delegate=yes` (systemd.resource-control(5)): same pid, same arguments.

    Comes back where we are in one already, and where there is none to be had, which is said in one line: the service
    manager is not there, or does not let us.
    """
    if os.environ.pop(_INSIDE, None):
        return
    manager = ["systemd-run", *([] if os.geteuid() == 0 else ["--user"]), "--scope", "--quiet", "--collect"]
    command = [*manager, "--property=Delegate=yes", "--"]
    if why := _refusal([*command, "true"]):
        for_stream().line("note", f"no scope: {why}")
        return
    # As Python itself was started: with `-m` it would import whatever lies around in the working directory.
    again = [*command, sys.executable, *sys.orig_argv[1:]]
    from supervise.host import leash

    leash.pass_on()
    os.execvpe(command[0], again, {**os.environ, _INSIDE: "1"})


def _refusal(trial: list[str]) -> str | None:
    """Why there can be none, tried out: what systemd-run says; None if there can."""
    try:
        tried = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_S, check=False)
    except FileNotFoundError:
        return "systemd-run is not installed"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"systemd-run: {error}"
    said = tried.stderr.decode(errors="replace").strip().splitlines()
    return None if tried.returncode == 0 else (said[-1] if said else f"systemd-run ended with {tried.returncode}")
