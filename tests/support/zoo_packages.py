"""Exhibits that are installed: an engine whose files are not those of its wheel any more, and one that is as it was."""

from __future__ import annotations

import base64
import hashlib
import stat
import sys
from pathlib import Path

from tests.support.zoo import Zoo

_FILES = ("__init__.py", "scheduler.py", "sampler.py", "worker.py", "engine.py", "cli.py")


def engines(zoo: Zoo) -> None:
    """A virtual environment with both engines; somebody has been debugging in one of them."""
    home = zoo.base / "venv"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = home / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(sys.executable)
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\nversion = {sys.version.split()[0]}\n")
    (zoo.base / "bin").mkdir()
    for name in ("vllm", "sglang"):
        _install(site, name)
        program = zoo.base / "bin" / name
        program.write_text(f"#!{home / 'bin/python'}\nraise SystemExit('never started')\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    patched = site / "vllm"
    (patched / "scheduler.py").write_text("import pdb; pdb.set_trace()\n")
    (patched / "debug_hook.py").write_text("print('here')\n")
    (patched / "sampler.py").unlink()
    for what, name in (("modified", "scheduler.py"), ("added", "debug_hook.py"), ("missing", "sampler.py")):
        zoo.tell("packages", f"{what} vllm/{name}", patched / name, leftover=True)
    for engine, name in (("vllm", "worker.py"), ("vllm", "engine.py"), ("sglang", "scheduler.py")):
        zoo.tell("packages", f"modified {engine}/{name}", site / engine / name, leftover=False)


def _install(site: Path, name: str) -> None:
    """As pip does it: files, and what the wheel says of them (PyPA's "recording installed projects")."""
    package, metadata = site / name, site / f"{name}-9.9.dist-info"
    package.mkdir()
    metadata.mkdir()
    for file in _FILES:
        (package / file).write_text(f"# {name} {file}\nanswer = 42\n")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
    (metadata / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: zoo\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (metadata / "INSTALLER").write_text("pip\n")
    listed = [*(package / file for file in _FILES), *(metadata / file for file in ("METADATA", "WHEEL", "INSTALLER"))]
    lines = [_line(path, site) for path in listed]
    (metadata / "RECORD").write_text("\n".join([*lines, f"{metadata.name}/RECORD,,", ""]))


def _line(path: Path, site: Path) -> str:
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path.relative_to(site)},sha256={digest},{len(data)}"
