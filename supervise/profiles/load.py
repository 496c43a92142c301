"""Loads and validates profiles: profiles/*.toml. Nothing in a file is ignored silently."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from string import Formatter

from supervise.model.need import MemoryRule
from supervise.model.profile import (
    ANSWER_S,
    BEFORE_PHASES,
    EVERY_S,
    FlagSpec,
    Form,
    PartRule,
    PhaseRule,
    PortRule,
    Profile,
    ReadyRule,
    SettingsRule,
)
from supervise.profiles import data_dir
from supervise.profiles.errors import ProfileError
from supervise.profiles.leftovers import available_rules
from supervise.profiles.liveness import liveness
from supervise.profiles.table import Table

GENERIC = "generic"
"""The profile of a program that nothing matches."""

_LEAST_PATIENCE_S = 60
_PLACEHOLDERS = ("dir", "tmp", "user")
VALUES = (
    "host", "port", "uds", "model", "max_length", "served", "devices", "device", "device_base", "device_step",
    "fraction", "tp", "pp", "pcp", "dp", "dp_local", "ep", "nodes", "node_rank", "tls", "supervisor_port",
    "master_port", "grpc_port", "nccl_port", "init_address", "loopback", "grpc", "headless", "multi_port", "dp_rank",
    "dp_attention", "key", "client_certs", "drain",
)  # fmt: skip
"""The names that a value of a profile may have."""


def names() -> tuple[str, ...]:
    """Name all profiles there are, sorted."""
    return tuple(sorted(path.stem for path in data_dir().glob("*.toml")))


def load(name: str) -> Profile:
    """Load the profile of that name.

    Args:
        name: a file name in profiles/ without `.toml`.

    Returns:
        The profile, validated.

    Raises:
        ProfileError: there is none of that name, or its file is damaged.
    """
    known = names()
    if name not in known:
        raise ProfileError(str(data_dir()), "", f"has no profile {name!r}", ", ".join(known))
    return load_file(data_dir() / f"{name}.toml")


def load_all() -> dict[str, Profile]:
    """Load every profile, by name; the generic one is among them.

    Raises:
        ProfileError: one is damaged, or the generic one is missing.
    """
    found = {name: load_file(data_dir() / f"{name}.toml") for name in names()}
    if GENERIC not in found:
        raise ProfileError(str(data_dir()), "", f"has no profile {GENERIC!r}", f"a directory with {GENERIC}.toml")
    return found


@cache
def load_file(path: Path) -> Profile:
    """Load one profile file; its name is the file's.

    Args:
        path: any TOML file.

    Returns:
        The profile, validated as a whole.

    Raises:
        ProfileError: naming file, dotted key, the problem and what is allowed.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(str(path), "", f"cannot be read: {error.strerror}", "a readable file") from error
    except ValueError as error:
        raise ProfileError(str(path), "", f"is not TOML: {error}", "a TOML document in UTF-8") from error
    top = Table(str(path), data)
    profile = _profile(path, top)
    top.done()
    return profile


def _profile(path: Path, top: Table) -> Profile:
    launch, gpus, titles = top.table("launch"), top.table("gpus"), top.table("titles")
    values = _values(top.table("values"))
    profile = Profile(
        name=path.stem,
        summary=top.text("summary"),
        source=str(path),
        forms=tuple(_form(table) for table in launch.tables("forms")),
        values=values,
        switches=launch.flag_text("switches"),
        one_way=launch.flag_text("one_way"),
        lists=launch.flag_text("lists"),
        config_flags=launch.flags("config_flags"),
        ports=tuple(_port(table, values) for table in top.tables("ports")),
        gpu_product=_named(gpus, "product", values),
        gpu_unless=_unless(gpus.table("unless"), values),
        memory_rule=_rule(gpus),
        titles=titles.patterns("patterns"),
        title_prefix=_prefix(titles.table("prefix")),
        protected=titles.patterns("protected"),
        environment=_environment(top.table("environment")),
        phases=(phases := tuple(_phase(table) for table in top.tables("phases"))),
        percents=top.patterns("percents", ("desc", "pct")),
        ready=_ready(top.table("ready")),
        signatures=top.texts("signatures"),
        leftovers=_known_sets(top),
        packages=top.texts("packages"),
        grace_s=top.seconds("grace_s"),
        linger_s=top.seconds("linger_s"),
        patience=_patience(top.table("patience"), phases),
        parts=tuple(_part(table, values) for table in top.tables("parts")),
        liveness=liveness(top.table("liveness")),
        settings=_settings(top.table("settings")),
    )
    for table in (launch, gpus, titles):
        table.done()
    return profile


def _known_sets(table: Table) -> tuple[str, ...]:
    """Names of sets of leftovers; what they say is read by whoever launches an engine."""
    found, known = table.texts("leftovers"), available_rules()
    for index, name in enumerate(found):
        if name not in known:
            raise table.error(f"leftovers[{index}]", f"is {name!r}", ", ".join(known))
    return found


def _form(table: Table) -> Form:
    form = Form(table.maybe_text("program"), table.maybe_text("module"), table.texts("words"))
    table.done()
    if (form.program is None) == (form.module is None):
        raise table.error("program", "must stand alone or be replaced by module", "one of program, module")
    return form


def _values(table: Table) -> dict[str, FlagSpec]:
    for name in table.present():
        if name not in VALUES:
            raise table.error(name, "is not a known value", ", ".join(VALUES))
    return {name: _spec(table.table(name), table.present()) for name in table.present()}


def _spec(table: Table, known: tuple[str, ...]) -> FlagSpec:
    spec = FlagSpec(
        flags=table.flags("flags"),
        env=table.texts("env"),
        positional=table.count("positional"),
        fallback=table.choice("fallback", known),
        default=table.maybe_text("default"),
    )
    table.done()
    return spec


def _port(table: Table, values: dict[str, FlagSpec]) -> PortRule:
    value = table.choice("value", values)
    rule = PortRule(
        role=table.text("role"),
        value=value or table.text("value"),
        host=table.choice("host", values),
        count=table.choice("count", values),
        offset=table.count("offset") or 0,
        width=table.count("width") or 1,
        when=_named(table, "when", values),
        unless=_named(table, "unless", values),
        multi_node=table.truth("multi_node"),
        first_node=table.truth("first_node"),
    )
    table.done()
    return rule


def _named(table: Table, key: str, values: dict[str, FlagSpec]) -> tuple[str, ...]:
    found = table.texts(key)
    for index, name in enumerate(found):
        if name not in values:
            raise table.error(f"{key}[{index}]", f"is {name!r}", ", ".join(values))
    return found


def _unless(table: Table, values: dict[str, FlagSpec]) -> dict[str, str]:
    for name in table.present():
        if name not in values:
            raise table.error(name, "is not a value of this profile", ", ".join(values))
    return {name: table.choice(name, values) or table.text(name) for name in table.present()}


def _rule(table: Table) -> MemoryRule | None:
    word = table.choice("memory_rule", [rule.value for rule in MemoryRule])
    return None if word is None else MemoryRule(word)


def _prefix(table: Table) -> tuple[str, str] | None:
    if not table.present():
        return None
    found = table.text("env"), table.text("default")
    table.done()
    return found


def _environment(table: Table) -> dict[str, str]:
    found = {}
    for name in table.present():
        found[name] = table.text(name)
        _check_template(table, name, found[name])
    return found


def _check_template(table: Table, key: str, template: str) -> None:
    allowed = ", ".join(f"{{{name}}}" for name in _PLACEHOLDERS)
    try:
        fields = [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise table.error(key, f"is no template: {error}", allowed) from error
    for field in fields:
        if field not in _PLACEHOLDERS:
            raise table.error(key, f"uses {{{field}}}", allowed)


def _phase(table: Table) -> PhaseRule:
    rule = PhaseRule(table.text("name"), table.pattern("begins"))
    table.done()
    return rule


def _patience(table: Table, phases: tuple[PhaseRule, ...]) -> dict[str, float]:
    """Seconds by phase; less than a minute is taken for a slip of the pen, it would end healthy servers."""
    known = (BEFORE_PHASES, *dict.fromkeys(rule.name for rule in phases))
    found = {}
    for name in table.present():
        if name not in known:
            raise table.error(name, "is no phase of this profile", ", ".join(known))
        if (seconds := table.seconds(name)) < _LEAST_PATIENCE_S:
            raise table.error(name, f"is {seconds:g}", f"seconds, {_LEAST_PATIENCE_S} to 86400")
        found[name] = seconds
    return found


def _ready(table: Table) -> ReadyRule:
    rule = _ready_rule(table)
    table.done()
    return rule


def _ready_rule(table: Table) -> ReadyRule:
    return ReadyRule(
        lines=table.patterns("lines"),
        http=table.maybe_text("http"),
        models=table.maybe_text("models"),
        resolves=table.truth("resolves"),
        timeout_s=table.count("timeout_s") or ANSWER_S,
        every_s=table.count("every_s") or EVERY_S,
    )


def _settings(table: Table) -> SettingsRule | None:
    if not table.present():
        return None
    rule = SettingsRule(table.pattern("line"), table.truth("exact"))
    table.done()
    return rule


def _part(table: Table, values: dict[str, FlagSpec]) -> PartRule:
    rule = PartRule(
        name=table.text("name"),
        ready=_ready_rule(table),
        when=_named(table, "when", values),
        later_node=table.truth("later_node"),
        plain=table.truth("plain"),
    )
    table.done()
    return rule
