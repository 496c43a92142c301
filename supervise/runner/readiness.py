"""When a server counts as ready: its log, HTTP, and the owner of the listening socket agree. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from supervise.model.probe import Answer, Probed

# A server that is told to log less never prints its ready line; one that answers this long on its own socket serves.
_UNANNOUNCED_S = 10.0
# A server that says it is up while somebody else's socket answers will never get a request.
_IMPOSTOR_S = 15.0


@dataclass(slots=True)
class Readiness:
    """Collects the proofs.

    Attributes:
        announced_at: monotonic seconds of the ready line; None before it.
        expects_line: whether the profile knows such a line.
    """

    expects_line: bool
    announced_at: float | None = None
    _answered_since: float | None = None

    def agree(self, probed: Probed, now: float) -> bool:
        """Whether all proofs agree, given the newest probe."""
        if probed.answer is not Answer.YES:
            self._answered_since = None
            return False
        if self._answered_since is None:
            self._answered_since = now
        return not self.expects_line or self.announced_at is not None or now - self._answered_since >= _UNANNOUNCED_S

    def impostor(self, probed: Probed, now: float) -> bool:
        """Whether the port is lost to another server although ours believes it is up."""
        return (
            probed.answer is Answer.NOT_OURS
            and self.announced_at is not None
            and now - self.announced_at >= _IMPOSTOR_S
        )
