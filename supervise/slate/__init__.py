"""The clean slate: survey -> judge -> act -> verify, until all is gone or the deadline has passed."""

from supervise.slate.request import Host, SlateRequest
from supervise.slate.serialise import to_json
from supervise.slate.sweep import sweep

__all__ = ["Host", "SlateRequest", "sweep", "to_json"]
