"""What a launch wants from the host, derived from its argv, environment and the engine's own YAML."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port the server will bind. `source` says where the number was found: a flag, a file, or "default"."""

    number: int
    host: str
    role: str
    source: str


class DeviceKind(StrEnum):
    """How the devices of a launch are named."""

    ALL = "all"
    NONE = "none"
    LISTED = "listed"


@dataclass(frozen=True, slots=True)
class Devices:
    """The GPUs a launch may touch.

    `ids` holds indices, `GPU-…` UUIDs (a prefix is allowed) or `MIG-…` names as given in CUDA_VISIBLE_DEVICES. `count`
    is how many of them the parallelism flags use on this host, None when unknown.
    """

    kind: DeviceKind
    ids: tuple[str, ...] = ()
    count: int | None = None
    source: str = "default"


class MemoryRule(StrEnum):
    """What a memory fraction is a fraction of when the engine starts (FIELD.md B1 rows 5 and 11)."""

    OF_TOTAL = "of-total"
    OF_FREE = "of-free"


@dataclass(frozen=True, slots=True)
class Need:
    """Everything one launch wants, and nothing about what the host has.

    `notes` are sentences about what could not be derived (an unreadable YAML, say): unknown is never clean, so they
    are shown. `max_length` is the context length as given, `tensor_parallel` the number of GPUs that share each layer.
    `program` is the engine's own command line after wrappers such as `env` or `numactl`. `part` names what this launch
    is of a server whose rest is elsewhere, as its profile calls it; None for a whole one. `named`: the names
    that it serves were given, and not told from the model. `mutual_tls`: clients must show a certificate. `key` is what
    requests must carry as a bearer token: it is held in memory and never shown.
    `drain_s` is for how many seconds the engine lets requests finish once it is told to stop.
    """

    profile: str
    run: str
    argv: tuple[str, ...] = field(repr=False)
    program: tuple[str, ...] = field(repr=False)
    ports: tuple[Port, ...] = ()
    uds: str | None = None
    scheme: str = "http"
    devices: Devices = Devices(DeviceKind.ALL)
    memory_fraction: float | None = None
    memory_rule: MemoryRule | None = None
    model: str | None = None
    max_length: str | None = None
    tensor_parallel: int | None = None
    served_names: tuple[str, ...] = ()
    named: bool = False
    notes: tuple[str, ...] = ()
    part: str | None = None
    mutual_tls: bool = False
    drain_s: float = 0.0
    key: str | None = field(default=None, repr=False)

    @property
    def wrappers(self) -> tuple[str, ...]:
        """The words in front of the engine's own command line."""
        return self.argv[: len(self.argv) - len(self.program)]

    @property
    def http(self) -> Port | None:
        """The port that answers /health, None with --uds or for a program that serves nothing we know of."""
        return next((port for port in self.ports if port.role == "http"), None)

    @property
    def doors(self) -> tuple[Port, ...]:
        """Every port that must be open before it serves: those of HTTP, else those of gRPC; none with --uds."""
        asked = tuple(port for port in self.ports if port.role in ("http", "supervisor"))
        return asked or tuple(port for port in self.ports if port.role == "grpc")
