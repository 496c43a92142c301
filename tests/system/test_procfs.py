"""/proc as it is: which processes are the kernel's own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from supervise.host import procfs
from tests.support.readable import ROOT

_SAY = "import sys; from supervise.host import procfs; print([procfs.read(int(pid)).argv[:1] for pid in sys.argv[1:]])"


def test_a_kernel_thread_has_no_command_line_and_nothing_unread() -> None:
    threads = [process for process in procfs.scan().values() if process.ppid == 2 and process.argv == ()]
    assert all(thread.environ_read and thread.marker is None for thread in threads)


@pytest.mark.root
def test_the_second_process_of_a_container_is_like_any_other() -> None:
    """Its number is that of the kernel's own parent of threads elsewhere."""
    inside = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", _SAY, "2"]
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *inside],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == str([(sys.executable,)])
