"""What is known of an attempt at its launch, for whoever compares it with another one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from supervise import __version__
from supervise.host import interpreter, limits
from supervise.model.need import Need
from supervise.model.snapshot import Gpus, GpuStatus
from supervise.text import HIDDEN, redact

if TYPE_CHECKING:
    from supervise.runner.plan import Plan

# What they are followed by is a command of the user's: its words may be anything. `--on` names an event before it.
_COMMANDS = {"--on": 2, "--probe": 1}


def told(command: Sequence[str], planned: Plan, gpus: Gpus) -> dict[str, Any]:
    """All of it, as JSON; nothing is started for it.

    Args:
        command: the server's command line.
        planned: what is to be run.
        gpus: as they were before the launch.
    """
    need, trial = planned.need, planned.options.trial
    python, _ = interpreter.find(need.program, planned.env, before=need.wrappers)
    return {
        "interpreter": python.executable if python else None,
        "need": _need(need),
        "gpus": _gpus(gpus),
        "limits": {name: list(limit) for name, limit in limits.told().items()},
        "supervise": __version__,
        "options": own_words(sys.argv, trial.typed if trial is not None and trial.typed else command),
    }


def own_words(argv: Sequence[str], command: Sequence[str]) -> list[str] | None:
    """What stands in front of the server's command line, without secrets.

    Args:
        argv: of the process.
        command: the server's command line.

    Returns:
        None if the command line is not the end of it: whoever called us has not told.
    """
    words = list(argv[1:])
    kept = len(words) - len(command)
    return _without_commands(redact(words[:kept])) if kept >= 0 and words[kept:] == list(command) else None


def _without_commands(words: Sequence[str]) -> list[str]:
    shown = list(words)
    for at, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in _COMMANDS and equals:
            shown[at] = f"{name}={HIDDEN}"
        elif name in _COMMANDS and at + _COMMANDS[name] < len(shown):
            shown[at + _COMMANDS[name]] = HIDDEN
    return shown


def _need(need: Need) -> dict[str, Any]:
    devices = need.devices
    return {
        "ports": [{"number": port.number, "host": port.host, "role": port.role} for port in need.ports],
        "uds": need.uds,
        "gpus": {"kind": devices.kind.value, "ids": list(devices.ids), "count": devices.count},
        "memory_fraction": need.memory_fraction,
        "memory_rule": need.memory_rule.value if need.memory_rule else None,
        "max_length": need.max_length,
        "tensor_parallel": need.tensor_parallel,
    }


def _gpus(gpus: Gpus) -> dict[str, Any] | None:
    if gpus.status is GpuStatus.ABSENT:
        return None
    from supervise.host import gpudevices

    devices = [{"gpu": each.label, "name": each.name, "uuid": each.uuid} for each in gpus.devices]
    return {"driver": gpudevices.driver(), "devices": devices, "error": gpus.error}
