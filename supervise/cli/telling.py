"""The options of `run` that say whom it tells of itself: metrics, and commands of the user's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from supervise.model.telling import Address, Hook, Occasion, Telling

_OCCASIONS = ", ".join(Occasion)
_LOOPBACK = "127.0.0.1"
_SUFFIX = ".prom"


class Pair(tuple[str, str]):
    """Two words that are the value of one option."""

    __slots__ = ()


def _as_given(value: Any) -> Any:
    """What typer has made of it: the pair in new versions, its words one by one in old ones."""
    return value


class Paired(TyperCommand):
    """A command with options that take two words and may be given more than once, which typer has no type for."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        for parameter in self.params:
            if parameter.name == "on":
                parameter.nargs = 2


@dataclass(frozen=True, slots=True)
class TellingOptions:
    """Whom a run tells of itself."""

    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="[ADDR:]PORT",
            help="Serve metrics for Prometheus on http://ADDR:PORT/metrics; without ADDR on the loopback only.",
        ),
    ] = None
    metrics_file: Annotated[
        str | None,
        typer.Option(
            "--metrics-file",
            metavar="PATH",
            help="Keep them in a file as well, for node_exporter's textfile collector: a name that ends in .prom.",
        ),
    ] = None
    on: Annotated[
        list[Pair] | None,
        typer.Option(
            "--on",
            metavar="EVENT CMD",
            parser=_as_given,
            help=f"Run CMD by /bin/sh on an event, with JSON about it on its standard input: {_OCCASIONS}. It changes "
            "nothing for the server; its output goes to hooks.log.",
        ),
    ] = None
    on_timeout: Annotated[
        float,
        typer.Option(
            "--on-timeout",
            metavar="SECONDS",
            min=0.1,
            max=86400,
            help="How long such a command may take until it is ended.",
        ),
    ] = 30.0

    def telling(self) -> Telling | None:
        """None if nobody is told anything.

        Raises:
            BadParameter: an address, a file or an event is none.
        """
        told = Telling(
            metrics=None if self.metrics is None else _address(self.metrics),
            textfile=None if self.metrics_file is None else _textfile(self.metrics_file),
            hooks=tuple(_hook(*pair) for pair in self.on or ()),
            hook_timeout_s=self.on_timeout,
        )
        return told if told.measured or told.hooks else None


def _address(given: str) -> Address:
    import ipaddress

    host, colon, port = given.rpartition(":")
    if not colon:
        host = _LOOPBACK
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise typer.BadParameter(f"--metrics {given!r}: put an IPv6 address in brackets, like [::1]:9400")
    try:
        host = str(ipaddress.ip_address(_LOOPBACK if host == "localhost" else host))
    except ValueError:
        raise typer.BadParameter(
            f"--metrics {given!r}: use PORT or ADDR:PORT with a numeric address, like 9400 or 0.0.0.0:9400"
        ) from None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise typer.BadParameter(f"--metrics {given!r}: a port is a number from 1 to 65535")
    return Address(host, int(port))


def _textfile(given: str) -> str:
    path = os.path.abspath(os.path.expanduser(given))
    if not path.endswith(_SUFFIX) or os.path.basename(path) == _SUFFIX:
        raise typer.BadParameter(f"--metrics-file {given!r}: node_exporter reads only names that end in {_SUFFIX}")
    if os.path.isdir(path):
        raise typer.BadParameter(f"--metrics-file {given!r}: is a directory")
    if not os.path.isdir(os.path.dirname(path)):
        raise typer.BadParameter(f"--metrics-file {given!r}: name a file in a directory that exists")
    return path


def _hook(event: str, command: str) -> Hook:
    if event not in [occasion.value for occasion in Occasion]:
        raise typer.BadParameter(f"--on {event!r}: use one of {_OCCASIONS}")
    if not command.strip() or "\0" in command:
        raise typer.BadParameter(f"--on {event}: the command is empty")
    return Hook(Occasion(event), command)
