"""A virtual environment with an engine that was installed from a wheel: a `vllm` that is the stand-in."""

from __future__ import annotations

import base64
import hashlib
import stat
import sys
from pathlib import Path

from tests.support.readable import ROOT

MODEL = "def answer():\n    return 42\n"
_FILES = {
    "vllm/__init__.py": "__version__ = '9.9'\n",
    "vllm/model.py": MODEL,
    "vllm/extra.py": "extra = True\n",
    "vllm/data.json": "{}\n",
    "vllm/cli.py": f"import runpy\n\nrunpy.run_path({str(ROOT / 'supervise/demo/server.py')!r}, run_name='__main__')\n",
}


class Wheel:
    """The environment, made anew.

    Args:
        home: of the environment; it must not exist.

    Attributes:
        site: its site-packages.
        program: its `vllm`.
    """

    def __init__(self, home: Path) -> None:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = home / "lib" / version / "site-packages"
        self.site.mkdir(parents=True)
        (home / "bin").mkdir()
        self.python = home / "bin/python"
        self.python.symlink_to(sys.executable)
        (home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\nversion = {sys.version.split()[0]}\n")
        self.program = home / "bin/vllm"
        self.program.write_text(f"#!{self.python}\nimport vllm.cli\n")
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)
        self._install()

    @property
    def model(self) -> Path:
        """The file that somebody debugs."""
        return self.site / "vllm/model.py"

    def is_as_published(self) -> bool:
        """Whether every file is what the wheel had, told without our own code."""
        names = {str(path.relative_to(self.site)) for path in (self.site / "vllm").rglob("*") if path.is_file()}
        names = {name for name in names if "__pycache__" not in name}
        return names == set(_FILES) and all((self.site / name).read_text() == text for name, text in _FILES.items())

    def _install(self) -> None:
        """As pip does it: files, and what the wheel says of them (PyPA's "recording installed projects")."""
        info = "vllm-9.9.dist-info"
        content = {
            **_FILES,
            f"{info}/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n",
            f"{info}/INSTALLER": "pip\n",
        }
        rows = []
        for name, text in content.items():
            path = self.site / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(text.encode())}")
        (self.site / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,", ""]))
