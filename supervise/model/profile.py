"""A profile as a value: everything supervise knows about one engine, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from supervise.model.liveness import LivenessRule
from supervise.model.need import MemoryRule

ANSWER_S, EVERY_S = 5, 1
"""How long an answer of a server may take, and how often it is asked for, unless its profile knows better."""

BEFORE_PHASES = "start"
"""What comes before the first line that a profile knows: imports, mostly, and silence for 13 to 16 s."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to start the engine: `program` (basename) followed by `words`, or `python -m module` and `words`."""

    program: str | None = None
    module: str | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseRule:
    """A phase of start-up that begins when `begins` is found in a line's text."""

    name: str
    begins: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ReadyRule:
    """How the engine says it serves: any of `lines` in the log, and `http` answering 200 on our own listener.

    `lines` empty: HTTP (or the listener alone when `http` is None) decides. `models` is the identity endpoint, and with
    `resolves` the model may be served by the path of what was found for it. An answer may take `timeout_s`, and is
    asked for every `every_s` seconds: SGLang generates a token for each.
    """

    lines: tuple[re.Pattern[str], ...] = ()
    http: str | None = None
    models: str | None = None
    resolves: bool = False
    timeout_s: int = ANSWER_S
    every_s: int = EVERY_S


@dataclass(frozen=True, slots=True)
class PartRule:
    """A launch that is but a part of a server whose HTTP is on another host, and how that one says it is up.

    It is meant if every one of the values `when` is given by a flag, and with `later_node` only for a rank above 0.
    `plain`: it never speaks TLS.
    """

    name: str
    ready: ReadyRule
    when: tuple[str, ...] = ()
    later_node: bool = False
    plain: bool = False


@dataclass(frozen=True, slots=True)
class SettingsRule:
    """How the engine tells in its log what it runs with: a mapping, as Python prints it, right after what `line` finds.

    `exact`: the values are those of its command line; else it has changed some of them itself by then.
    """

    line: re.Pattern[str]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class FlagSpec:
    """Where a value comes from, first match wins: flags, position, a file's flags, environment, another value, default.

    `flags` are spelled with dashes. `positional` counts the words that belong to no flag, from 0. `fallback` names
    another value of the same profile.
    """

    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    positional: int | None = None
    fallback: str | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class PortRule:
    """A port that the engine binds on this host.

    `value` and `host` name values of the profile; a `host` of None is all interfaces. `when` are values of which every
    one must be given by a flag, `unless` values of which none may be. `multi_node` asks for more than one node,
    `first_node` for rank 0. There are `width` consecutive ports, or as many as the value named by `count` says.
    `offset` is how far the first of them lies above the value, or below it where there is no such port above.
    """

    role: str
    value: str
    host: str | None = None
    count: str | None = None
    width: int = 1
    offset: int = 0
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    multi_node: bool = False
    first_node: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine. See profiles/*.toml for the data and supervise/profiles/load.py for the schema and its errors.

    `titles` match the command line of a renamed process, whole; `protected` titles are never touched, whatever else
    they match. `title_prefix` is an environment variable that changes what comes before `::` in a title, and what it
    is by default. `environment` is added to the server's unless the user set the variable; `{dir}` in it is the
    attempt's private runtime directory, `{tmp}` the temporary directory before, `{user}` the user name. `signatures`
    names the signature sets in profiles/signatures/, `leftovers` those of profiles/leftovers/,
    `parts` are the launches that are no whole server, the first that is meant counts.
    `packages` are the distributions that the engine is installed from. `switches` take no value, and `lists` take
    several words; any other flag takes one. An engine that says which switches are `one_way` has a form `--no-x` of
    every other. `gpu_product` names the values whose product is the number of GPUs over all nodes, each one in
    `gpu_unless` only while the value it maps to is not given by a flag. `patience` are the seconds that nothing may
    move in a phase of start-up.
    """

    name: str
    summary: str
    source: str
    forms: tuple[Form, ...]
    values: dict[str, FlagSpec]
    switches: frozenset[str]
    one_way: frozenset[str]
    lists: frozenset[str]
    config_flags: tuple[str, ...]
    ports: tuple[PortRule, ...]
    gpu_product: tuple[str, ...]
    gpu_unless: dict[str, str]
    memory_rule: MemoryRule | None
    titles: tuple[re.Pattern[str], ...]
    title_prefix: tuple[str, str] | None
    protected: tuple[re.Pattern[str], ...]
    environment: dict[str, str]
    phases: tuple[PhaseRule, ...]
    percents: tuple[re.Pattern[str], ...]
    ready: ReadyRule
    signatures: tuple[str, ...]
    leftovers: tuple[str, ...]
    packages: tuple[str, ...]
    grace_s: float
    linger_s: float
    patience: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[PartRule, ...] = ()
    liveness: LivenessRule | None = None
    settings: SettingsRule | None = None

    @property
    def negatable(self) -> frozenset[str]:
        """The switches that have a form `--no-x`."""
        both = (flag for flag in self.switches - self.one_way if flag.startswith("--"))
        return frozenset(both) if self.one_way else frozenset()

    def in_part(self, name: str | None) -> Profile:
        """This profile for a launch that is a part of a server (`Need.part`), unchanged for a whole one."""
        rule = next((part for part in self.parts if part.name == name), None)
        return self if rule is None else replace(self, ready=rule.ready)
