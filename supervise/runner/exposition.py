"""Metrics, where the user wants them: an endpoint, a file, or both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST

from supervise import __version__
from supervise.model.exits import Exit
from supervise.model.telling import Telling, TellingError
from supervise.report.metrics import Metrics
from supervise.runner.endpoint import Endpoint, listen
from supervise.runner.textfile import Textfile

if TYPE_CHECKING:
    from supervise.model.need import Port
    from supervise.model.news import News
    from supervise.report.console import Console


class Exposition:
    """Listens, counts, and shows it.

    Args:
        telling: the user's.
        run: name of the run.
        engine: name of its profile.
        own: ports that the server is going to bind.
        console: where people read.

    Raises:
        TellingError: what was asked for cannot be had.
    """

    def __init__(self, telling: Telling, run: str, engine: str, own: Iterable[Port], console: Console) -> None:
        self._metrics = Metrics(run, engine, __version__)
        self._endpoint: Endpoint | None = None
        self._textfile: Textfile | None = None
        try:
            if telling.metrics is not None:
                listener = listen(telling.metrics, own)
                self._endpoint = Endpoint(listener, self._metrics.text, CONTENT_TYPE_LATEST)
            if telling.textfile is not None:
                self._textfile = Textfile(telling.textfile, self._metrics.text, console)
        except RuntimeError:
            raise TellingError(Exit.INTERNAL, "metrics: there can be no thread for them; see `ulimit -u`") from None

    def hear(self, news: News) -> None:
        """Something has happened."""
        self._metrics.tally.hear(news)
        if self._textfile is not None:
            self._textfile.wake()

    def close(self) -> None:
        """Nothing more will: the endpoint goes, the file stays, and says so."""
        if self._endpoint is not None:
            self._endpoint.close()
        if self._textfile is not None:
            self._textfile.close()

    async def finished(self) -> None:
        """Wait until the file has been written for the last time."""
        if self._textfile is not None:
            await self._textfile.finished()
