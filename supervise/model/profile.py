"""A profile as a value: everything supervise knows about one engine, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
    """Where a value comes from: flags (canonical dashes), environment variables, position, default."""

    flags: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    positional: int | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One engine. See profiles/*.toml for the data and supervise/profiles/load.py for the schema and its errors.

    `titles` match the command line of a renamed process, whole; `protected` titles are never touched, whatever else
    they match. `environment` is added to the server's unless the user set the variable; `{dir}` in it is the attempt's
    private runtime directory, `{tmp}` the temporary directory before, `{user}` the user name. `signatures` names the
    signature sets in profiles/signatures/.
    """

    name: str
    summary: str
    source: str
    forms: tuple[Form, ...]
    values: dict[str, FlagSpec]
    switches: frozenset[str]
    config_flags: tuple[str, ...]
    gpu_product: tuple[str, ...]
    memory_rule: str | None
    titles: tuple[re.Pattern[str], ...]
    protected: tuple[re.Pattern[str], ...]
    environment: dict[str, str]
    phases: tuple[PhaseRule, ...]
    percents: tuple[re.Pattern[str], ...]
    ready: ReadyRule
    signatures: tuple[str, ...]
    grace_s: float
    linger_s: float
