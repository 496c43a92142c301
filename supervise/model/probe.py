"""The words of a readiness probe."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Answer(Enum):
    """What a readiness probe found."""

    SILENT = "nobody listens"
    NOT_OURS = "somebody else listens"
    NOT_YET = "ours listens, HTTP is not 200 yet"
    YES = "ours listens and answers"


class Probed(NamedTuple):
    """An answer, and who listens where it is not ours."""

    answer: Answer
    detail: str = ""
