"""Probes of a running server: does it answer, and is it ours that answers?"""

from __future__ import annotations

from supervise.model.probe import Answer, Probed
from supervise.probes.serving import Asker, ready

__all__ = ["Answer", "Asker", "Probed", "ready"]
