"""Groups of options: where a verb takes a dataclass, the command line has an option for each of its fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb as typer can read it, which knows no groups: each field in the place of its group.

    Args:
        verb: takes keyword arguments only, so that a group may stand behind an option with a default.
    """
    kinds = get_type_hints(verb, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in kinds.items() if is_dataclass(kind)}

    @functools.wraps(verb)
    def spread_out(**given: Any) -> None:
        gathered = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        verb(**given, **gathered)

    shown = list(_shown(signature(verb), kinds, groups))
    vars(spread_out)["__signature__"] = Signature(shown)
    spread_out.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return spread_out


def _shown(asked: Signature, kinds: dict[str, Any], groups: dict[str, Any]) -> Iterator[Parameter]:
    for name, parameter in asked.parameters.items():
        if name not in groups:
            yield parameter.replace(annotation=kinds[name])
            continue
        within = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=within[field.name])
