"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from supervise.model.need import Need
from supervise.model.preflight import Check, Level
from supervise.model.snapshot import Gpus
from supervise.preflight import disk, ports
from supervise.preflight.launch import Launch, NotReadError
from supervise.profiles.load import GENERIC
from supervise.text import printable

_Family = Callable[[Launch], Iterable[Check]]
_OF_ANY: dict[str, _Family] = {ports.NAME: ports.check, disk.NAME: disk.check}
NAMES = (
    *("model", "heads", "length", "gpus", "memory", "hostmemory", "shm", "limits", "core", "effect"),
    *(ports.NAME, disk.NAME),
)
"""What --no-preflight takes."""


def _of_engines() -> dict[str, _Family]:
    # Any other program's launch does not pay for what reads a model.
    from supervise.preflight import devices, effect, heads, length, limits, memory, model, shm

    return {
        model.NAME: model.check,
        heads.NAME: heads.check,
        length.NAME: length.check,
        devices.NAME: devices.check,
        memory.NAME: memory.check,
        memory.HOST_NAME: memory.check_host,
        shm.NAME: shm.check,
        limits.NAME: limits.check,
        limits.CORE_NAME: limits.check_core,
        effect.NAME: effect.check,
    }


def check(
    need: Need,
    env: Mapping[str, str],
    gpus: Gpus,
    skip: frozenset[str],
    *,
    state_dir: str | None = None,
    watch: tuple[str, ...] = (),
) -> tuple[Check, ...]:
    """Check a launch before anything is touched. Nothing is changed.

    A refusal is certain: the engine itself would fail, for this reason. Whatever is not certain is a warning, and what
    could not be looked at is one, too.

    Args:
        need: of the launch.
        env: the environment that its engine will see.
        gpus: the slate's reading of them.
        skip: names of checks to leave out; "all" for every one.
        state_dir: where our own files go, None if that is not to be looked at.
        watch: absolute paths of what the user works on.

    Returns:
        One OK for each check that found nothing, else what it found.
    """
    if "all" in skip:
        return ()
    launch = Launch(need, env, gpus, state_dir, watch)
    families = _OF_ANY if need.profile == GENERIC else _of_engines() | _OF_ANY
    found: list[Check] = []
    for name, family in families.items():
        if name not in skip:
            found += _told(name, family, launch)
    return tuple(found)


def _told(name: str, family: _Family, launch: Launch) -> list[Check]:
    found: list[Check] = []
    try:
        # Step by step: what was found before an error is kept.
        found.extend(replace(told, text=printable(told.text), fix=printable(told.fix)) for told in family(launch))
    except NotReadError:
        return found
    except (OSError, ValueError) as error:
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        found.append(Check(name, Level.WARNING, f"not checked: {printable(why)}"))
    return found or [Check(name, Level.OK, "")]
