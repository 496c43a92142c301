"""A profile as a value: everything supervise knows about one engine, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from supervise.model.need import MemoryRule


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

    `lines` empty: HTTP (or the listener alone when `http` is None) decides. `models` is the identity endpoint.
    """

    lines: tuple[re.Pattern[str], ...] = ()
    http: str | None = None
    models: str | None = None


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
    `packages` are the distributions that the engine is installed from. `switches` take no value and `lists` take
    several words; any other flag takes one. `gpu_product` names the values whose product is the number of GPUs over all
    nodes, each one in `gpu_unless` only while the value it maps to is not given by a flag.
    """

    name: str
    summary: str
    source: str
    forms: tuple[Form, ...]
    values: dict[str, FlagSpec]
    switches: frozenset[str]
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
