"""The words of a readiness probe."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Answer(Enum):
    """What a readiness probe found."""

    SILENT = "nobody listens"
    NOT_OURS = "somebody else listens, or answers for ours"
    NOT_YET = "ours listens, HTTP is not 200 yet"
    YES = "ours listens and answers"


class Probed(NamedTuple):
    """An answer.

    `detail` says who answers where it is not ours, `note` what could not be asked of one that is. `again_s` is when it
    is worth while to ask again, in seconds: some servers work for each answer. `named`: what it serves is
    known, or is not told to us, and need not be asked for again.
    """

    answer: Answer
    detail: str = ""
    note: str = ""
    again_s: float = 1.0
    named: bool = False
