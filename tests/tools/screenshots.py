"""Screenshots for docs/images: `python -m tests.tools.screenshots` writes them, tests compare them.

Those of the live view are drawn from scenes, those of the tutorial from its own text: no clock, and no name that would
differ the next time.
"""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console, RenderableType
from rich.text import Text

from supervise.report.scene import Card, Phase, Scene
from supervise.report.view import render
from tests.support.readable import ROOT
from tests.support.transcript import steps

IMAGES = ROOT / "docs/images"
TUTORIAL = ROOT / "docs/tutorial.md"
_WIDTH, _HEIGHT = 96, 30
_EXCERPT_WIDTH = 120
_GIB = 2**30
_FONTS = re.compile(r"\s*@font-face \{[^}]*\}")

# As a real vLLM logs them (VLLM 0.11, a 32 B model on two GPUs), with the phases of its profile.
LOADING = Scene(
    "vllm-8000",
    3,
    "starting",
    elapsed_s=57,
    eta="ETA 75 s",
    phases=(
        Phase("start", 14.2, 14.0),
        Phase("config", 2.1, 2.0),
        Phase("engine", 9.8, 10.0),
        Phase("weights", 31.0, 48.0),
        Phase("profile", None, 3.0),
        Phase("compile", None, 31.0),
        Phase("kv cache", None, 2.0),
        Phase("graphs", None, 20.0),
        Phase("server", None, 1.0),
    ),
    percent=65,
    done=11,
    total=17,
    restarts=1,
    restarted_for="a change: vllm/model_executor/models/qwen3.py",
    log=(
        "(Worker_TP0) Using Flash Attention backend on V1 engine.",
        "(Worker_TP1) Using Flash Attention backend on V1 engine.",
        "(Worker_TP0) Starting to load model Qwen/Qwen3-32B...",
        "(Worker_TP0) Loading model from scratch...",
        "Loading safetensors checkpoint shards:  65% Completed | 11/17 [00:31<00:17,  2.83s/it]",
    ),
    cards=(Card("GPU 0", int(22.4 * _GIB), int(79.6 * _GIB)), Card("GPU 1", int(22.4 * _GIB), int(79.6 * _GIB))),
    keys="qrc?",
)
READY = Scene(
    "vllm-8000",
    3,
    "ready",
    restarts=1,
    restarted_for="a change: vllm/model_executor/models/qwen3.py",
    url="http://0.0.0.0:8000",
    since="2026-03-02 14:07:31",
    cards=(Card("GPU 0", int(71.9 * _GIB), int(79.6 * _GIB)), Card("GPU 1", int(71.9 * _GIB), int(79.6 * _GIB))),
    keys="qrc?",
)
SCENES = {"live-loading": LOADING, "live-ready": READY}


# What of the tutorial is shown: the window's title, the first line, and what the last one begins with.
_EXCERPTS = {
    "tutorial-cause": ("supervise --watch package:vllm vllm serve tiny", "cause    KeyError", "         cause moved"),
    "tutorial-diff": ("supervise diff 2 3 --patch", "diff     vllm-8123, attempt 2 -> attempt 3", "+"),
}
_STYLES = (
    (r"^(?:cause|fatal).*", "bold red"),
    (r"^\+(?!\+).*", "green"),
    (r"^-(?!-).*", "red"),
    (r"^(?:\+\+\+|---|@@).*", "cyan"),
    (r"^[a-z]+(?= )", "bold"),
)


def svg(scene: Scene, name: str, width: int = _WIDTH, height: int = _HEIGHT) -> str:
    """A picture of a scene.

    Args:
        scene: what is to be seen.
        name: of the picture; its parts are named after it.
        width: columns of the terminal.
        height: its lines.
    """
    return _drawn(render(scene, width - 1, height), "supervise vllm serve Qwen/Qwen3-32B -tp 2", name, width)


def excerpts() -> dict[str, str]:
    """Pictures of moments of the tutorial, by name."""
    told = "".join(step.output for step in steps(TUTORIAL.read_text()))
    return {name: _excerpt(name, *which, told) for name, which in _EXCERPTS.items()}


def _excerpt(name: str, title: str, first: str, last: str, told: str) -> str:
    lines = told[told.index(first) :].splitlines()
    end = next(at for at, line in enumerate(lines) if line.startswith(last) and not line.startswith("+++"))
    text = Text("\n".join(lines[: end + 1]), no_wrap=True, overflow="ellipsis")
    for pattern, style in _STYLES:
        text.highlight_regex(f"(?m){pattern}", style)
    return _drawn(text, title, name, _EXCERPT_WIDTH)


def _drawn(what: RenderableType, title: str, name: str, width: int) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True, color_system="truecolor")
    console.print(what)
    drawn = console.export_svg(title=title, unique_id=name)
    # Nobody who reads our documentation shall fetch a font from somewhere else.
    return _FONTS.sub("", drawn)


def main() -> int:
    """Write all of them."""
    IMAGES.mkdir(exist_ok=True)
    drawn = {name: svg(scene, name) for name, scene in SCENES.items()}
    for name, picture in (drawn | excerpts()).items():
        path = IMAGES / f"{name}.svg"
        path.write_text(picture)
        print(path.relative_to(ROOT), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
