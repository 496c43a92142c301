"""What the live view looks at: the end of the log, the GPUs, what a key asks of the next slate."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from supervise.attempts.store import Run
from supervise.model.snapshot import NO_GPUS, GpuReading, Gpus, GpuStatus
from supervise.report.live import Terminal
from supervise.report.scene import Card
from supervise.runner import plan, showing
from supervise.runner.once import Once
from supervise.runner.plan import Clearing, Options
from supervise.runner.showing import Showing, cards, last_lines

GPU = GpuReading(0, "GPU-1", "H100", 80, 30)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"", ()),
        (b"one\ntwo\n", ("one", "two")),
        (b"".join(b"%d\n" % number for number in range(9)), ("4", "5", "6", "7", "8")),
        (b"\n\n one\n\n", (" one",)),
        (b"unfinished", ("unfinished",)),
        (b"0 %\r50 %\r\n", ("50 %",)),
        (b"\x1b[31mred\x1b[0m\n", ("red",)),
        (
            (
                b"(Worker_TP0 pid=7) INFO 11-30 22:14:05 [model_runner.py:1] Loading\n"
                b"(EngineCore_DP0 pid=8) WARNING 11-30 22:14:05 [core.py:1] slow\n"
            ),
            ("(Worker_TP0) Loading", "(EngineCore_DP0) WARNING slow"),
        ),
        (b"\xff\xfe\n", ("\ufffd\ufffd",)),
        (b"x" * 100_000 + b"\nlast\n", ("x" * 8186, "last")),
    ],
)
def test_the_last_lines_of_a_log(tmp_path: Path, log: bytes, expected: tuple[str, ...]) -> None:
    (tmp_path / "log").write_bytes(log)
    assert last_lines(str(tmp_path / "log")) == expected


def test_a_log_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert last_lines(str(tmp_path / "log")) == ()


def test_the_gpus_whose_memory_is_known() -> None:
    divided = (replace(GPU, index=1, mig=True, total=0), replace(GPU, index=0, parent=1, total=20, free=5))
    unknown = (replace(GPU, index=2, error="lost"), replace(GPU, index=3, total=0, free=0))
    told = cards(Gpus(GpuStatus.READ, (GPU, *divided, *unknown)))
    assert told == (Card("GPU 0", 50, 80), Card("GPU 1 MIG 0", 15, 20))
    assert cards(NO_GPUS) == ()


def test_what_is_asked_for_once_is_done_once() -> None:
    planned = plan.make(["/bin/true"], {}, Options(clearing=Clearing(purge=("other",))))
    once = Once()
    assert once.settle(planned) is planned
    once.purge()
    once.purge()
    assert once.settle(planned).options.clearing.purge == ("other", "compile")
    assert once.settle(planned) is planned


def test_the_gpus_are_read_before_anybody_has_seen_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "_GPUS_S", 3600.0)
    read = threading.Event()

    def gpus() -> Gpus:
        read.set()
        return NO_GPUS

    async def begins() -> bool:
        screen = cast(Terminal, SimpleNamespace(show=lambda _: False, live=False))
        target = cast(Run, SimpleNamespace(name="X"))
        planned = plan.make(["/bin/true"], {}, Options())
        shown = Showing(planned, target, screen, lambda _: None, Once(), _no_refusal, read_gpus=gpus)
        try:
            return await asyncio.to_thread(read.wait, 20.0)
        finally:
            shown.close()

    assert asyncio.run(begins())


async def _no_refusal() -> None:
    return None
