"""A virtual environment with an engine that was installed from a wheel: a `vllm` that is the stand-in."""

from __future__ import annotations

from pathlib import Path

from supervise.demo.installation import install
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
        python: its Python.
        program: its `vllm`.
    """

    def __init__(self, home: Path) -> None:
        self.site = install(home, "9.9", _FILES, "import vllm.cli\n")
        self.python = home / "bin/python"
        self.program = home / "bin/vllm"

    @property
    def model(self) -> Path:
        """The file that somebody debugs."""
        return self.site / "vllm/model.py"

    def is_as_published(self) -> bool:
        """Whether every file is what the wheel had, told without our own code."""
        names = {str(path.relative_to(self.site)) for path in (self.site / "vllm").rglob("*") if path.is_file()}
        names = {name for name in names if "__pycache__" not in name}
        return names == set(_FILES) and all((self.site / name).read_text() == text for name, text in _FILES.items())
