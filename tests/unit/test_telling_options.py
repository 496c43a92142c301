"""The options that say whom a run tells of itself: what cannot be is refused before anything is launched."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from supervise.cli.telling import TellingOptions


def test_a_file_for_metrics_in_no_directory_is_refused(tmp_path: Path) -> None:
    told = TellingOptions(metrics_file=str(tmp_path / "run.prom")).telling()
    assert told is not None
    assert told.textfile == str(tmp_path / "run.prom")
    with pytest.raises(typer.BadParameter, match="name a file in a directory that exists"):
        TellingOptions(metrics_file=str(tmp_path / "gone" / "run.prom")).telling()
