"""The stand-in as an installed package: a Python environment with a `vllm` in it, whose model can be edited.

`python -m supervise.demo.installation DIRECTORY` makes one for the tutorial, without network and in no time.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

_MODEL = '''"""A model of three tensors."""

PLACES = [
    "embed_tokens.weight",
    "layers.0.mlp.weight",
    "lm_head.weight",
]


def load_weights(names):
    """Give each tensor of the checkpoint its place."""
    places = dict.fromkeys(PLACES, 0)
    for name in names:
        places[name] += 1
'''
_CLI = """import sys

sys.path.append({code!r})

from supervise.demo.server import main

__all__ = ["main"]
"""
_STARTER = """import sys

from vllm.cli import main

sys.argv.append("--model-code=vllm.models.tiny")
main()
"""


def install(home: Path, version: str, files: Mapping[str, str], starter: str) -> Path:
    """Make an environment of this Python with a package `vllm`, as pip would have installed its wheel.

    Args:
        home: of the environment; it must not exist.
        version: of the package.
        files: texts by path below site-packages.
        starter: what follows the first line of `bin/vllm`.

    Returns:
        Its site-packages.

    Raises:
        OSError: it cannot be written; FileExistsError where there is something already.
    """
    site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    python = home / "bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    # What makes it an environment of its own (PEP 405).
    (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\nversion = {sys.version.split()[0]}\n")
    program = home / "bin/vllm"
    program.write_text(f"#!{python}\n{starter}")
    program.chmod(0o755)
    _record(site, f"vllm-{version}.dist-info", version, files)
    return site


def _record(site: Path, info: str, version: str, files: Mapping[str, str]) -> None:
    """Write the files, and what the wheel says of them (PyPA's "recording installed projects")."""
    rows = []
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    for name, text in {**files, f"{info}/METADATA": metadata, f"{info}/INSTALLER": "pip\n"}.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text.encode())}")
    (site / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,", ""]))


def main(arguments: list[str]) -> int:
    """Entry point.

    Args:
        arguments: the directory to make.

    Returns:
        0; 2 with a line where there is something already, or nothing can be written.
    """
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m supervise.demo.installation DIRECTORY", file=sys.stderr)
        return 2
    home = Path(arguments[0])
    files = {
        "vllm/__init__.py": "",
        "vllm/models/__init__.py": "",
        "vllm/models/tiny.py": _MODEL,
        "vllm/cli.py": _CLI.format(code=str(Path(__file__).resolve().parents[2])),
    }
    try:
        site = install(home.absolute(), "0.32.0", files, _STARTER)
    except OSError as error:
        print(f"{home}: {error.strerror}; name a directory that is not there yet", file=sys.stderr)
        return 2
    for made in (home / "bin/vllm", home / site.relative_to(home.absolute()) / "vllm/models/tiny.py"):
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
