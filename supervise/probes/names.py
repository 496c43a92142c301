"""The names under which a server serves its model, and whether they are those of this launch."""

from __future__ import annotations

import json
from collections.abc import Iterable

from supervise.model.need import Need
from supervise.text import printable, shorten

_LONGEST = 100


def names(body: bytes) -> tuple[str, ...]:
    """Read an answer of /v1/models (OpenAI API, "List models": `data[].id`).

    Args:
        body: as sent.

    Returns:
        The names, none if it is no such answer.
    """
    try:
        data = json.loads(body)["data"]
        return tuple(each["id"] for each in data if isinstance(each["id"], str))
    except (ValueError, LookupError, TypeError, RecursionError):
        return ()


def another(need: Need, served: Iterable[str], *, resolves: bool = False) -> str | None:
    """Say who answers if it is not the server of this launch.

    A name that was given is served as it is; vLLM serves several, and its adapters beside them. A model without one is
    served by the words that name it, unless SGLang has found the file that they stand for: its path holds them still.

    Args:
        need: what was asked for.
        served: names that are served; none is no proof of anything.
        resolves: a model may be served by the path of what was found for it.

    Returns:
        Both names in a phrase, None if one of the names is ours.
    """
    served, wanted = tuple(served), need.served_names
    same = _holds if resolves and not need.named else str.__eq__
    if not served or not wanted or any(same(each, name) for each in served for name in wanted):
        return None
    return f"a server of {_quoted(served)}, while this launch serves {_quoted(wanted)}"


def _holds(served: str, model: str) -> bool:
    """Whether a path or name is the model's, as a whole word of it: `Q-7B` is not in `Q-7B-Instruct`.

    ModelScope's cache writes a dot as three underscores, that of Hugging Face a slash as two hyphens.
    """
    last = model.rstrip("/").rpartition("/")[2].partition(":")[0]
    return served == model or (bool(last) and last in served.replace("___", ".").replace("--", "/").split("/"))


def _quoted(found: tuple[str, ...]) -> str:
    return ", ".join(f"'{shorten(printable(name), _LONGEST)}'" for name in found[:3])
