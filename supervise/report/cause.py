"""A diagnosis as outcome.json has it, and back. Pure."""

from __future__ import annotations

from typing import Any

from supervise.model.diagnosis import Diagnosis, FailureClass, Line

_CLASSES = {each.value: each for each in FailureClass}


def to_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """A first cause as JSON.

    Args:
        diagnosis: of an attempt that failed.

    Returns:
        The object; keys are stable, additions may follow.
    """
    end = {"end": diagnosis.end} if diagnosis.end is not None else {}
    return {
        "text": diagnosis.text,
        "line": diagnosis.line,
        "process": diagnosis.process,
        "rank": diagnosis.rank,
        "signature": diagnosis.signature,
        "class": diagnosis.failure.value,
        "phase": diagnosis.phase,
        "fingerprint": diagnosis.fingerprint,
        **end,
        "meaning": diagnosis.meaning,
        "advice": list(diagnosis.advice),
        "evidence": [{"line": line.number, "text": line.raw} for line in diagnosis.evidence],
    }


def from_data(said: object) -> Diagnosis | None:
    """Read a first cause back.

    Args:
        said: what the file has; anybody may have edited it, and earlier versions wrote less.

    Returns:
        The diagnosis, without any value that is not of its kind; None if it is no object.
    """
    if not isinstance(said, dict):
        return None
    return Diagnosis(
        text=_text(said.get("text")),
        line=_number(said.get("line")),
        process=_text(said.get("process")),
        signature=_text(said.get("signature")),
        failure=_CLASSES.get(str(said.get("class")), FailureClass.UNKNOWN),
        phase=_text(said.get("phase")),
        meaning=_text(said.get("meaning")) or "",
        advice=tuple(advice for advice in _list(said.get("advice")) if isinstance(advice, str)),
        evidence=tuple(line for each in _list(said.get("evidence")) if (line := _line(each))),
        rank=_number(said.get("rank")),
        fingerprint=_text(said.get("fingerprint")),
        end=_text(said.get("end")),
    )


def _line(said: object) -> Line | None:
    if not isinstance(said, dict):
        return None
    number, text = _number(said.get("line")), _text(said.get("text"))
    return None if number is None or text is None else Line(number, text, text)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
