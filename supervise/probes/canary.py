"""A completion of one token: what a user of the server would get now."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus

from supervise.lifecycle.hang import Asked
from supervise.model.liveness import LivenessRule
from supervise.probes.http import CLOSED, Asks, Response
from supervise.probes.names import names

_NAMES_TIMEOUT_S = 10.0
_FLAG_TIMEOUT_S = 10.0
# Words of a server that has too much to do: it answers, and that is not what we want to know.
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class Canary:
    """Asks for one token at a time.

    Args:
        client: of the server.
        rule: where completions are to be had.
        models: path that tells the names of the models.
        clock: monotonic seconds.

    Attributes:
        useless: why it is no use to ask this server, None while it is.
    """

    def __init__(self, client: Asks, rule: LivenessRule, models: str | None, clock: Callable[[], float]) -> None:
        self.useless: str | None = None
        self._client, self._rule, self._models, self._clock = client, rule, models, clock
        self._model: str | None = None
        if rule.completions is None:
            self.useless = "it is not known how to ask this server for a completion"

    def ask(self, within_s: float, *, last: bool = False) -> Asked | None:
        """Ask once; blocking, for the time given and 10 s more to learn the model's name.

        Args:
            within_s: how long the token may take, in seconds.
            last: whoever says in time that it is full, drains or has failed has answered as well: it does not hang.
                One that refuses such a question has not; its engine was never asked.

        Returns:
            None where nothing can be said: the server has refused, or has not told its model.
        """
        if self.useless is not None or self._rule.completions is None:
            return None
        began = self._clock()
        if self._model is None and (answer := self._learn_model()) is not None:
            return self._other(f"GET {self._models}", answer, began, within_s, last=last)
        if self._model is None:
            return None
        began = self._clock()
        wanted = {"model": self._model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        answer = self._client.post(self._rule.completions, wanted, within_s)
        if answer is None:
            # Refused or closed at once is another matter, which its health endpoint tells as well.
            waited = self._clock() - began >= within_s * 0.9
            return Asked(began, within_s, answered=False) if waited else None
        if answer.status == HTTPStatus.OK:
            return Asked(began, within_s, answered=True)
        return self._other(f"POST {self._rule.completions}", answer, began, within_s, last=last)

    def _other(self, asked: str, answer: Response, began: float, within_s: float, *, last: bool) -> Asked | None:
        """What an answer means that is not the one that was wanted."""
        if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR and answer.status not in _BUSY:
            self.useless = f"{asked} is answered {answer.status}"
            return None
        return Asked(began, within_s, answered=True) if last else None

    def _learn_model(self) -> Response | None:
        """The answer if it is another one than the names."""
        answer = None if self._models is None else self._client.get(self._models, _NAMES_TIMEOUT_S)
        if answer is None or answer.status != HTTPStatus.OK:
            return answer
        self._model = next(iter(names(answer.body)), None)
        return None


def flagged(client: Asks, flags: dict[str, str]) -> str | None:
    """Whether the server says that it holds still on purpose; blocking, 10 s at most for each path.

    Args:
        client: of the server.
        flags: paths, with the field of each answer that is true then; those that it does not have are taken out.

    Returns:
        The path that says so, None if none does; an engine that hangs does not answer here either.
    """
    for path, key in tuple(flags.items()):
        answer = client.get(path, _FLAG_TIMEOUT_S)
        if answer is not None and answer.status in CLOSED:
            del flags[path]
        if answer is None or answer.status != HTTPStatus.OK:
            continue
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.get(key) is True:
            return path
    return None
