"""The command line: all verbs, in the order in which `--help` has them."""

from __future__ import annotations

from supervise.cli import launching, living, looking
from supervise.cli.app import app

__all__ = ["app", "launching", "living", "looking"]
