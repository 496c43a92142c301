"""A log that a terminal broke at its edge reads as before; one that is whole stays as it is."""

from __future__ import annotations

import pytest

from supervise.diagnosis.prefixes import parse
from supervise.diagnosis.unwrap import unwrapped

WORKER = "(Worker_TP0 pid=77) ERROR 11-30 05:27:01 [multiproc_executor.py:953] "
LOG = (
    WORKER + 'Traceback (most recent call last):',
    WORKER + '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/executor/multiproc_executor.py", line 7, in f',
    WORKER + '  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/gpu_worker.py", line 9, in load_model',
    WORKER + '  File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/x.py", line 3, in g',
    WORKER + "ValueError: a message of a length that no window of this width has room for, so that it is broken",
    "(Worker_TP0 pid=77) short",
)  # fmt: skip


def broken(lines: tuple[str, ...], width: int) -> list[str]:
    return [line[at : at + width] for line in lines for at in range(0, len(line), width)]


def read(lines: list[str]) -> list[tuple[int, str]]:
    return [(line.number, line.raw) for line in unwrapped(parse(raw, number) for number, raw in enumerate(lines, 1))]


@pytest.mark.parametrize("width", [80, 103, 120, 132])
def test_a_broken_log_is_put_together(width: int) -> None:
    told = read(broken(LOG, width))
    assert [raw for _, raw in told] == list(LOG)
    assert [number for number, _ in told] == sorted({number for number, _ in told})
    assert told[0][0] == 1


def test_a_line_counts_from_its_first_piece() -> None:
    pieces = broken(LOG, 80)
    first = next(number for number, raw in read(pieces) if "ValueError" in raw)
    assert pieces[first - 1].startswith(WORKER)


@pytest.mark.parametrize(
    "lines",
    [
        list(LOG),
        # Cut at a column, not broken: what follows is never the rest.
        [line[:100] for line in LOG],
        # A window too narrow for a prefix, and lines of one length that nobody broke.
        broken(LOG, 40),
        ["x" * 80] * 9,
        [],
    ],
)
def test_what_is_not_broken_stays(lines: list[str]) -> None:
    assert [raw for _, raw in read(lines)] == lines


def test_a_line_does_not_grow_without_end() -> None:
    told = read([*broken(LOG, 80), WORKER.ljust(80, "."), *["y" * 80] * 1000])
    assert max(len(raw) for _, raw in told) <= 80 * 80
