"""`supervise unit`: the options of `run`, printed into a unit file instead of acted upon."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from supervise.cli.telling import Paired

if TYPE_CHECKING:
    from supervise.runner import Options

_User = Annotated[bool, typer.Option("--user", help="For the service manager of a user instead of the system's.")]
_GIVEN = "supervise.unit.given"
_FLAG = "--user"
_REFUSED = {
    "scope": "Delegate=yes gives it a cgroup of its own",
    "detach": "systemd waits for the process that it started",
    "tty": "there is no terminal; a terminal of the server's own would only colour its log",
}

Instead = Callable[[list[str], "Options"], int]
_instead: ContextVar[Instead | None] = ContextVar("instead", default=None)


def do_instead(act: Instead) -> None:
    """Have this done with the command line and its options that are about to be read."""
    _instead.set(act)


class Verbatim(Paired):
    """A command that remembers its words as they were written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember them."""
        ctx.meta[_GIVEN] = tuple(args)
        return super().parse_args(ctx, args)


def instead() -> Instead | None:
    """What is to be done with a command line and its options instead of launching it; None to launch it."""
    return _instead.get()


def printed(run: Callable[..., None]) -> Callable[..., None]:
    """`run`, as typer reads it, with --user before its options; it prints instead of launching."""

    @functools.wraps(run)
    def unit(ctx: typer.Context, user: bool = False, **options: Any) -> None:
        """A unit file for systemd, on standard output, with the reason for each setting."""
        for option in (name for name in _REFUSED if options.get(name)):
            raise typer.BadParameter(f"--{option} has no place in a unit: {_REFUSED[option]}")
        given = ctx.meta[_GIVEN]
        own = given[: len(given) - len(options["command"])]
        words = tuple(word for word in own[: -1 if own[-1:] == ("--",) else None] if word != _FLAG)
        do_instead(functools.partial(_print, given=words, user=user))
        run(**options)

    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    flag = Parameter("user", Parameter.KEYWORD_ONLY, default=False, annotation=_User)
    shown = [context, flag, *signature(run).parameters.values()]
    vars(unit)["__signature__"] = Signature(shown)
    unit.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    unit.__doc__ = "A unit file for systemd, on standard output, with the reason for each setting."
    return unit


def _print(command: list[str], options: Options, *, given: tuple[str, ...], user: bool) -> int:
    from supervise.report.unitwords import UnwritableError
    from supervise.verbs.unit import unit

    try:
        return unit(command, options, given, user=user)
    except UnwritableError as error:
        raise typer.BadParameter(str(error)) from None
