"""What to say of a server that ended and printed no cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from signal import SIGABRT, SIGBUS, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGTERM, Signals
from typing import NamedTuple

from supervise.diagnosis.matching import Match
from supervise.model.diagnosis import End, FailureClass

_NATIVE_CRASH = (SIGSEGV, SIGBUS, SIGABRT)
_SILENT = " and its log names no cause"
_CODE = re.compile(r"-?\d+")
# Workers are named by their rank, and any of them may be the one that is killed.
_RANK = re.compile(r"(?:[-_ ]|(?<!\d))\d+$")
_OUT_OF_MEMORY = re.compile(r"Out of memory|oom-kill", re.IGNORECASE)


class Explanation(NamedTuple):
    """Class, meaning and advice of an end, and its kind: in a few words, the same for ends of the same kind."""

    failure: FailureClass
    meaning: str
    advice: tuple[str, ...] = ()
    kind: str | None = None


def explain(end: End, echoes: Sequence[Match], *, ready: bool = False) -> Explanation:
    """Explain an end from what the kernel said of it and from the echoes that the cause left in the log.

    Args:
        end: how the leader ended.
        echoes: matches of lines that report a failure without its cause, in order.
        ready: whether the log had said that the server is up.

    Returns:
        What can be said. It never claims more than that: a SIGKILL has many senders.
    """
    end = replace(end, ready=end.ready or ready)
    if end.oom_kills or end.kernel:
        told = _told_by_the_kernel(end)
    elif child := _dead_child(echoes):
        told = child
    elif echoes:
        of_leader, echo = _of_leader(end, echoed=True), echoes[0]
        meaning = f"No process printed a cause. {echo.meaning} {of_leader.meaning}"
        told = of_leader._replace(meaning=meaning, advice=(*echo.advice, *of_leader.advice))
    else:
        told = _of_leader(end)
    return told if told.kind else told._replace(kind=kind(end))


def kind(end: End) -> str | None:
    """How a server ended, in a few words; None if that is not known.

    Two that nobody knows more of are taken for the same failure if these are the same, and the phase is.
    """
    if end.signal is not None:
        return f"killed by {_name(end.signal)}"
    return None if end.code is None else f"exited with {end.code}"


def _told_by_the_kernel(end: End) -> Explanation:
    """What its log or its counters say is proof, whatever the engine made of it."""
    # memory.events has it on cgroup v2, memory.oom_control on v1: both call it oom_kill.
    counted = f"The kernel's OOM killer ended {end.oom_kills} of the group (oom_kill of its cgroup)."
    killed = next((line for line in end.kernel if "Killed process" in line), None)
    said = f"The kernel says: {killed or end.kernel[0]}" if end.kernel else ""
    if not end.oom_kills and not _OUT_OF_MEMORY.search(said):
        return Explanation(FailureClass.TRANSIENT, f"The log names no cause. {said}", _CRASH_ADVICE[SIGSEGV])
    return Explanation(
        FailureClass.DETERMINISTIC,
        " ".join(filter(None, (counted if end.oom_kills else "", said))),
        (
            "The host or the cgroup ran out of memory, not the GPU. Weights pass through it while loading.",
            "Raise the limit (systemd MemoryMax=, Kubernetes limits.memory, Slurm --mem), or load less at once.",
        ),
        "ended by the OOM killer",
    )


def _dead_child(echoes: Sequence[Match]) -> Explanation | None:
    """The first child of which an echo tells the signal that killed it."""
    for echo in echoes:
        signum = -int(code) if _CODE.fullmatch(code := echo.groups.get("code", "")) else 0
        if _CODE.fullmatch(told := echo.groups.get("signal", "")):
            signum = int(told)
        if signum > 0:
            return _child(echo.groups.get("who", "a child process"), signum)
    return None


def _child(who: str, signum: int) -> Explanation:
    failure, why, advice, _ = _of_signal(signum, ours=False)
    meaning = f"{who} was killed by {_name(signum)} and printed no cause. {why}"
    return Explanation(failure, meaning, advice, f"{_RANK.sub('', who)} killed by {_name(signum)}")


def _of_leader(end: End, *, echoed: bool = False) -> Explanation:
    """`echoed`: it has been said already that nobody printed a cause."""
    where = f" in phase {end.phase}" if end.phase and not end.ready else ""
    if end.signal is not None:
        ours = end.sent is not None and end.signal in end.sent
        failure, why, advice, _ = _of_signal(end.signal, ours=ours, echoed=echoed)
        sender = "" if end.sent is None else ", sent by us" if ours else ", not sent by us"
        meaning = f"The server was killed by {_name(end.signal)}{sender}{where}. {why}".rstrip()
        return Explanation(failure, meaning, advice)
    if not end.known:
        return Explanation(FailureClass.UNKNOWN, f"How the server ended{where} is not known.", _TELL)
    if end.code is None:
        return Explanation(FailureClass.UNKNOWN, f"The server has not ended{where}{'' if echoed else _SILENT}.")
    if end.code == 0:
        when = "after it had been ready" if end.ready else f"before it was ready{where}"
        meaning = f"The server ended by itself with status 0, {when}; a server that exits has failed."
        return Explanation(FailureClass.UNKNOWN, meaning if echoed else f"{meaning} Its log has no cause.")
    return _of_code(end.code, where, echoed=echoed)


def _of_code(code: int, where: str, *, echoed: bool) -> Explanation:
    if code > 128 and _name(code - 128) != f"signal {code - 128}":
        failure, why, advice, _ = _of_signal(code - 128, ours=False, echoed=echoed)
        said = f"The server exited with {code}{where}, as a shell does for a command killed by {_name(code - 128)}."
        return Explanation(failure, f"{said} {why}".rstrip(), advice)
    return Explanation(
        FailureClass.UNKNOWN,
        f"The server exited with {code}{where}{'' if echoed else _SILENT}.",
        ("Read the end of the log: what is printed there matches no known failure.",),
    )


def _of_signal(signum: int, *, ours: bool, echoed: bool = False) -> Explanation:
    if ours:
        return Explanation(FailureClass.UNKNOWN, "" if echoed else "The log names no cause before it.")
    if signum == SIGKILL:
        return Explanation(
            FailureClass.UNKNOWN,
            "That proves no sender: the kernel's OOM killer, an operator, a container runtime, or the engine itself "
            "(SGLang's launcher kills itself when a child fails).",
            (
                "Look for `Out of memory: Killed process` in `dmesg -T` or `journalctl -k`.",
                "Look at `oom_kill` in the cgroup's memory.events (memory.oom_control on cgroup v1).",
                "If it was memory: the host's, not the GPU's. Weights pass through it while loading.",
            ),
        )
    if signum in _NATIVE_CRASH:
        return Explanation(FailureClass.TRANSIENT, _CRASHES[signum], _CRASH_ADVICE[signum])
    if signum in (SIGTERM, SIGINT, SIGHUP, SIGQUIT):
        return Explanation(FailureClass.UNKNOWN, "Somebody asked it to end: a person, a job scheduler, a terminal.")
    return Explanation(FailureClass.UNKNOWN, "" if echoed else "The log names no cause.")


_TELL = (
    "Say how it ended, if that is known: --exit-status N, negative for a signal.",
    "Look above the first line of this log, and into the logs of the other nodes and of the kernel.",
)
_CRASHES: dict[int, str] = {
    SIGSEGV: "Native code touched memory that is not its own: a kernel library, a driver, an extension.",
    SIGBUS: "A mapped page could not be backed, which nearly always means that /dev/shm is full.",
    SIGABRT: "Native code gave up: a failed C++ assertion, an uncaught C++ exception, NCCL's watchdog.",
}
_CRASH_ADVICE: dict[int, tuple[str, ...]] = {
    SIGSEGV: ("Read the native frames in the log, if any; the kernel log may show an Xid of the GPU at that time.",),
    SIGBUS: ("Check `df -h /dev/shm`; in a container raise --shm-size or use --ipc=host.",),
    SIGABRT: ("Look for `terminate called` or `what():` in the log.",),
}


def _name(signum: int) -> str:
    try:
        return Signals(signum).name
    except ValueError:
        return f"signal {signum}"
