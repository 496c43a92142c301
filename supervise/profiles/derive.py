"""From a matched command line to its Need; pure but for `read_text`, and the program need not exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from supervise.model.need import Need, Port
from supervise.model.profile import PartRule, Profile
from supervise.profiles.config import resolve
from supervise.profiles.devices import devices
from supervise.profiles.load import GENERIC
from supervise.profiles.match import Match, started
from supervise.profiles.ports import ports
from supervise.profiles.values import Values

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 80
_SERVING = ("http", "grpc")
# ssl.CERT_REQUIRED; the module takes long to import.
_CERT_REQUIRED = 2


def derive(match: Match, env: Mapping[str, str], *, read_text: Callable[[str], str], run: str | None = None) -> Need:
    """Tell what a launch wants of the host.

    Args:
        match: the command line, matched.
        env: the environment it is started in, before its wrappers.
        read_text: gives the text of the engine's own YAML; its OSError or ValueError becomes a note.
        run: the run's name; by default it is told from profile and address.

    Returns:
        The Need; what could not be derived is in its notes.
    """
    profile = match.profile
    arguments, notes = resolve(match.arguments, profile, read_text)
    values = Values(profile, arguments, environment(match, env))
    bound = ports(values, profile)
    uds = values.text("uds")
    model = values.text("model")
    part = _part(values, profile)
    return Need(
        profile=profile.name,
        run=safe_name(run or _run(match, bound, uds)),
        argv=match.argv,
        program=match.program,
        ports=bound,
        uds=uds,
        scheme="https" if values.given("tls") and not (part and part.plain) else "http",
        devices=devices(values, profile),
        memory_fraction=values.fraction("fraction"),
        memory_rule=profile.memory_rule,
        model=model,
        max_length=values.text("max_length"),
        tensor_parallel=values.number("tp"),
        named=bool(values.all("served")),
        served_names=values.all("served") or ((model,) if model and not match.guessed else ()),
        part=part.name if part else None,
        drain_s=float(max(0, values.number("drain") or 0)),
        mutual_tls=values.number("client_certs") == _CERT_REQUIRED,
        # Several keys may be given, each is good; an empty one is none.
        key=next(filter(None, values.all("key")), None),
        notes=(*notes, *values.notes),
    )


def _part(values: Values, profile: Profile) -> PartRule | None:
    later = bool(values.number("node_rank"))
    return next(
        (rule for rule in profile.parts if all(map(values.given, rule.when)) and (later or not rule.later_node)), None
    )


def environment(match: Match, env: Mapping[str, str]) -> dict[str, str]:
    """The environment that the engine will see behind its wrappers.

    Args:
        match: holds what `env` among the wrappers does.
        env: the one before.
    """
    seen: dict[str, str | None] = {} if match.cleared else dict(env)
    seen.update(match.env)
    return {name: value for name, value in seen.items() if value is not None}


def safe_name(text: str) -> str:
    """A run name that is a file name anywhere: letters, digits, `._-`, at most 80 of them, never hidden or empty."""
    name = _UNSAFE.sub("-", text).strip("-.")[:_LONGEST_NAME]
    return name or "run"


def _run(match: Match, bound: tuple[Port, ...], uds: str | None) -> str:
    name = match.profile.name
    if uds is not None:
        return f"{name}-uds-{PurePosixPath(uds).stem}"
    served = next((port.number for port in bound if port.role in _SERVING), None)
    if served is not None:
        return f"{name}-{served}"
    return PurePosixPath(started(match.program)).stem if name == GENERIC else name
