"""`supervise try`: the options of `run`, those of the probe and of a sweep."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from supervise.cli.app import AsJson
from supervise.cli.telling import Paired
from supervise.cli.units import do_instead
from supervise.model.exits import Exit

if TYPE_CHECKING:
    from supervise.model.trial import Expected, Trial
    from supervise.runner import Options

_REFUSED = {
    "detach": "whoever tries waits for the verdict",
    "tty": "nobody is to type anything while a server is tried",
    "restart": "a verdict is about one attempt",
    "max_restarts": "a verdict is about one attempt",
    "watch": "a verdict is about the code as it is now",
}


class Judging(Paired):
    """A command whose mistakes end with 125: `git bisect run` would take the usual 2 for a verdict on the code."""

    def make_context(self, *args: Any, **more: Any) -> Any:
        """Read the command line."""
        return _judged(lambda: super(Judging, self).make_context(*args, **more))

    def invoke(self, ctx: Any) -> Any:
        """Act upon it."""
        return _judged(lambda: super(Judging, self).invoke(ctx))


def _judged(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except Exception as error:
        # typer carries a copy of click of its own in some versions: the mistake is told by what it is called.
        if hasattr(error, "exit_code") and any(kind.__name__ == "UsageError" for kind in type(error).__mro__):
            error.exit_code = int(Exit.INTERNAL)
        raise


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """What is asked of a server that is ready, and what is varied."""

    probe: Annotated[
        str | None,
        typer.Option(
            "--probe",
            metavar="CMD",
            help="Run CMD by /bin/sh once it is ready, with SUPERVISE_URL, _MODEL, _LOG and others in its environment: "
            "exit 0 passes, 125 cannot judge, anything else fails. Default: a completion, where they are served.",
        ),
    ] = None
    probe_timeout: Annotated[
        float,
        typer.Option(
            "--probe-timeout",
            metavar="SECONDS",
            min=0.1,
            max=86400,
            help="How long it may take.",
        ),
    ] = 300.0
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="What is to be completed.")] = None
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Tokens of the completion. Default: 32.")
    ] = None
    expect: Annotated[str | None, typer.Option("--expect", metavar="TEXT", help="The completion must contain it.")] = (
        None
    )
    expect_regex: Annotated[
        str | None,
        typer.Option("--expect-regex", metavar="RE", help="It must match somewhere; syntax of google/re2."),
    ] = None
    expect_json: Annotated[bool, typer.Option("--expect-json", help="It must be JSON.")] = False
    max_ttft: Annotated[
        float | None,
        typer.Option("--max-ttft", metavar="SECONDS", min=0, help="Its first token must come within this time."),
    ] = None
    allow_garbage: Annotated[
        bool,
        typer.Option(
            "--allow-garbage", help="Do not fail one that is empty, repeats itself or has characters that are none."
        ),
    ] = False
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FLAG=A,B,…",
            help="Try each value of a flag, or of a variable with env:NAME=A,B,…; of several every combination.",
        ),
    ] = None
    until_first: Annotated[bool, typer.Option("--until-first", help="Stop at the first that passes.")] = False
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew where the same sweep was cut short. Default: go on.")
    ] = False
    as_json: AsJson = False

    def trial(self) -> Trial:
        """What is asked.

        Raises:
            BadParameter: two ways of asking contradict each other.
        """
        from supervise.model.trial import Trial

        expected = self._expected()
        trial = Trial(self.probe, self.prompt, self.max_tokens, expected, self.probe_timeout)
        if self.probe is not None and trial.wants_completion:
            raise typer.BadParameter("--probe asks in its own way: leave out what the built-in completion is asked")
        if self.probe is not None and (not self.probe.strip() or "\0" in self.probe):
            raise typer.BadParameter("--probe: the command is empty")
        if self.probe is not None:
            from supervise.verbs.trying import mistake_in

            if (mistake := mistake_in(self.probe)) is not None:
                raise typer.BadParameter(f"--probe: {mistake}")
        return trial

    def _expected(self) -> Expected:
        from supervise.model.trial import Expected

        matches = None if self.expect_regex is None else _matcher(self.expect_regex)
        return Expected(
            self.expect, self.expect_regex, matches, self.expect_json, self.max_ttft, garbage=self.allow_garbage
        )


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Searches in time that grows with the text alone: no expression can make a trial go on for ever."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        told = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise typer.BadParameter(f"--expect-regex {pattern!r}: {told}") from None
    return lambda text: compiled.search(text) is not None


def tried(run: Callable[..., None]) -> Callable[..., None]:
    """`run`, as typer reads it, with the options of a trial before its own; it tries instead of serving."""
    kinds = get_type_hints(ProbeOptions, include_extras=True)
    own = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=kinds[field.name])
        for field in fields(ProbeOptions)
    ]

    @functools.wraps(run)
    def attempt(**options: Any) -> None:
        probe = ProbeOptions(**{field.name: options.pop(field.name) for field in fields(ProbeOptions)})
        for option in (name for name in _REFUSED if options.get(name)):
            raise typer.BadParameter(f"--{option.replace('_', '-')} has no place in a trial: {_REFUSED[option]}")
        if not probe.set_ and (probe.until_first or probe.fresh):
            raise typer.BadParameter("--until-first and --fresh mean a sweep: they need --set")
        do_instead(functools.partial(_try, probe=probe, scope=options["scope"]))
        run(**options)

    shown = [*own, *signature(run).parameters.values()]
    vars(attempt)["__signature__"] = Signature(shown)
    attempt.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    attempt.__doc__ = """Slate, launch, wait until it is ready, probe, stop, verify; for `git bisect run`.

    Exit 0 passed, 1 failed, 125 cannot judge: the slate, the machine or somebody else is in the way, or this command
    line is wrong. With --set: 0 if one passed, 1 if none did. Stopped by a signal: 128+n, which ends a bisection.
    """
    return attempt


def _try(command: list[str], options: Options, *, probe: ProbeOptions, scope: bool) -> int:
    from supervise.cli import leave
    from supervise.model.sweep import SweepError, axes

    trial = probe.trial()
    try:
        swept = axes(probe.set_ or ())
    except SweepError as error:
        raise typer.BadParameter(str(error)) from None
    if scope:
        from supervise.runner import scope as scopes

        scopes.enter()
    if not swept:
        from supervise.verbs.trying import tried as once

        leave(once(command, options, trial, as_json=probe.as_json))
    from supervise.verbs.sweep import Sweep

    try:
        sweep = Sweep(command, options, trial, swept, until_first=probe.until_first)
    except SweepError as error:
        raise typer.BadParameter(str(error)) from None
    leave(sweep.run(fresh=probe.fresh, as_json=probe.as_json))
