"""A member that /proc does not show (another user's, mounted with hidepid) is a survivor, never an empty group."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.readable import ROOT

# The stop path over one child. What /proc shows is taken away by hand: a mount with hidepid would change the host.
_CODE = """
import os, signal, sys, time
from supervise.group import reaping
from supervise.group.enclosure import Enclosure
from supervise.group.ending import Deadlines, Ending, run
from supervise.group.reaping import Reaper
from supervise.host import procfs
child = os.fork()
if child == 0:
    while True:
        signal.pause()
if sys.argv[1] == "hidden":
    procfs.scan = lambda **_: {}
    procfs.identify = lambda _pid: None
    reaping._kill = lambda _pid: None  # as another user's would refuse
quick = Deadlines(grace_s=0.0, term_s=0.0, kill_s=0.5)
path = Ending(Enclosure.of(Reaper(), os.getpid(), None), None, quick)
run(path, time.monotonic, time.sleep)
print([(survivor.state, survivor.pid == child) for survivor in path.survivors])
os.kill(child, signal.SIGKILL) if path.survivors else None
"""


@pytest.mark.parametrize(("sight", "survivors"), [("hidden", [("?", True)]), ("seen", [])])
def test_what_cannot_be_seen_is_not_gone(sight: str, survivors: list[tuple[str, bool]]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE, sight], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == str(survivors), done.stderr
