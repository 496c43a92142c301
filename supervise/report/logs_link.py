"""systemd's $LOGS_DIRECTORY: a link there leads to the newest attempt's log, which itself lives with its attempt.

The link says `latest`, which each attempt sets before it begins: it stays right by itself once it is there.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from supervise.model.news import Launched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervise.model.news import News
    from supervise.report.console import Console


def directory(env: Mapping[str, str]) -> str | None:
    """The first of $LOGS_DIRECTORY (systemd.exec(5)), None if there is none."""
    return env.get("LOGS_DIRECTORY", "").split(":", maxsplit=1)[0] or None


class LogsLink:
    """Sees to `<directory>/<run>.log` at each launch.

    Args:
        directory: where links are made.
        run: name of the run.
        home: directory of the run.
        console: where it is said, once, that it cannot be made.
    """

    def __init__(self, directory: str, run: str, home: str, console: Console) -> None:
        self._link = os.path.join(directory, f"{run}.log")
        self._target = os.path.join(os.path.abspath(home), "latest", "server.log")
        # A store that has moved is ours as well.
        self._ending = f"/{run}/latest/server.log"
        self._console = console
        self._failed = False

    def hear(self, news: News) -> None:
        """Make it if something was launched."""
        if not isinstance(news, Launched):
            return
        try:
            self._make()
        except OSError as error:
            if not self._failed:
                self._console.error(f"{self._link}: {error.strerror}; the log is {news.log}")
            self._failed = True

    def close(self) -> None:
        """It stays: whoever looks for the log does so afterwards."""

    def _make(self) -> None:
        """Put it there, in one step.

        Raises:
            OSError: it cannot be made, or what is there is not ours.
        """
        there = _points_to(self._link)
        if there == self._target:
            return
        if os.path.lexists(self._link) and not (there or "").endswith(self._ending):
            raise FileExistsError(errno.EEXIST, "something that is not ours is there, and stays")
        temporary = f"{self._link}.{os.getpid()}.tmp"
        os.symlink(self._target, temporary)
        try:
            os.replace(temporary, self._link)
        except OSError:
            os.unlink(temporary)
            raise


def _points_to(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None
