"""The command line: all verbs, in the order in which `--help` has them."""

from __future__ import annotations

from supervise.cli import launching, living, looking, replaying
from supervise.cli.app import PASS_ON, app
from supervise.cli.completion import completion

__all__ = ["app", "launching", "living", "looking", "replaying"]

app.command("completion", context_settings=PASS_ON, short_help="A completion script for your shell.")(completion)
