"""Did it take effect: an engine with edited files, behind wrappers, with packages that stand before its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import Launched, Supervise, free_port
from tests.support.readable import ROOT
from tests.support.waiting import wait_until
from tests.support.zoo import Zoo  # noqa: F401 - what zoo_packages is written for
from tests.support.zoo_packages import _install

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
# A wrapper that lives on, as most do, and changes one word.
WRAPPER = """#!/bin/bash
args=()
for word in "$@"; do [ "$word" = 256 ] && word=128; args+=("$word"); done
vllm "${args[@]}"
"""


class Rig:
    """An environment whose `vllm` is the stand-in: it imports `vllm.worker`, and no other module of its package."""

    def __init__(self, supervise: Supervise) -> None:
        self.supervise = supervise
        self.home = supervise.base / "venv"
        self.site = self.home / "lib" / VERSION / "site-packages"
        self.site.mkdir(parents=True)
        (self.home / "bin").mkdir()
        (self.home / "bin/python").symlink_to(sys.executable)
        (self.home / "pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix, 'bin')}\nversion = {VERSION[6:]}.0\n")
        _install(self.site, "vllm")
        program = self.home / "bin/vllm"
        lines = ["import sys", "import vllm.worker", f"sys.path.insert(0, {str(ROOT)!r})"]
        lines += ["from supervise.demo.server import main", "main()"]
        program.write_text("\n".join([f"#!{self.home}/bin/python", *lines, ""]))
        program.chmod(0o755)
        self.env = {"PATH": f"{self.home / 'bin'}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""}

    def edit(self, *names: str) -> None:
        for name in names:
            with (self.site / "vllm" / name).open("a") as file:
                file.write("edited = 1\n")

    def launch(self, *command: object, options: tuple[object, ...] = (), **env: str) -> Launched:
        words = command or ("vllm", "serve", "stand-in", "--max-num-seqs", "256")
        return self.supervise.start(*options, *words, "--port", free_port(), "--load-s", "0.1", env=self.env | env)

    def serve(self, *command: object, options: tuple[object, ...] = (), **env: str) -> tuple[str, dict[str, Any]]:
        """Launch, wait until it is ready, stop; what was told, and what outcome.json has of the effect."""
        launched = self.launch(*command, options=options, **env)
        launched.wait_said("ready ")
        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        # What was refused has left no attempt.
        (run,) = (path.parent for path in (self.supervise.state / "supervise").glob("vllm*/latest"))
        shown: dict[str, Any] = json.loads((run / "latest/outcome.json").read_text()).get("effect")
        shutil.rmtree(run)
        return launched.stderr, shown


@pytest.fixture
def rig(supervise: Supervise) -> Rig:
    return Rig(supervise)


def test_an_edited_file_that_is_imported_and_one_that_is_not(rig: Rig) -> None:
    rig.edit("worker.py", "sampler.py")
    for _ in range(2):  # without bytecode at first, then with it
        said, effect = rig.serve()
        assert effect["listener"] == "ours"
        assert effect["files"]["took_effect"] is False
        assert effect["files"]["unread"] == [str(rig.site / "vllm/sampler.py")]
        assert f"NO EFFECT {rig.site}/vllm/sampler.py: changed, and nobody has imported it" in said
        assert "worker.py: changed" not in said
    (rig.site / "vllm/sampler.py").write_text("# vllm sampler.py\nanswer = 42\n")
    said, effect = rig.serve()
    assert effect["files"] == {
        "took_effect": True,
        "changed": [str(rig.site / "vllm/worker.py")],
        "unread": [],
    }
    assert "NO EFFECT" not in said
    assert "effect:" not in said


def test_what_is_put_back_has_no_effect_to_be_missed(rig: Rig) -> None:
    sampler = rig.site / "vllm/sampler.py"
    published = sampler.read_text()
    rig.edit("sampler.py")
    launched = rig.launch(options=("--watch", rig.site / "vllm"))
    launched.wait_said("NO EFFECT")
    sampler.write_text(published)
    wait_until(lambda: launched.stderr.count("\nready ") == 2, failure=lambda: launched.stderr)
    launched.send(signal.SIGTERM)
    launched.wait()
    assert rig.supervise.outcome()["effect"]["files"]["changed"] == []
    assert launched.stderr.count("NO EFFECT") == 1


def test_what_is_written_while_it_loads_makes_its_code_unknown(rig: Rig) -> None:
    words = ("vllm", "serve", "stand-in", "--port", free_port(), "--load-s", 1.5)
    launched = rig.supervise.start(*words, env=rig.env)
    rig.supervise.wait_state("starting")
    wait_until(rig.supervise.log)
    rig.edit("worker.py")
    launched.wait_said("worker.py changed while it loaded: what it imported is not known")
    rig.edit("sampler.py")  # by now it serves
    launched.send(signal.SIGTERM)
    launched.wait()
    files = rig.supervise.outcome()["effect"]["files"]
    assert files["changed_while_loading"] == [str(rig.site / "vllm/worker.py")]


def test_so_does_what_is_written_while_one_loads_that_is_not_to_be_ready(rig: Rig) -> None:
    options = ("--name", "X", "--watch", rig.site / "vllm")
    words = ("vllm", "serve", "stand-in", "--port", free_port(), "--load-s", 1.5)
    launched = rig.supervise.start(*options, *words, env=rig.env)
    rig.supervise.wait_state("starting")
    wait_until(rig.supervise.log)
    rig.edit("worker.py")  # it is launched anew for that
    wait_until(lambda: "\nready " in launched.stderr, failure=lambda: launched.stderr)
    launched.send(signal.SIGTERM)
    launched.wait()
    attempts = rig.supervise.attempt().parent
    stopped, ready = (json.loads((attempts / n / "outcome.json").read_text())["effect"] for n in ("0001", "0002"))
    assert stopped["files"]["changed_while_loading"] == [str(rig.site / "vllm/worker.py")]
    assert "changed_while_loading" not in ready["files"]
    assert "worker.py changed while it loaded" in rig.supervise.run("diff", "X", "1", "2").stdout


def test_a_wrapper_that_changes_a_flag(rig: Rig) -> None:
    wrapper = rig.supervise.base / "start.sh"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    words = (wrapper, "serve", "stand-in", "--max-num-seqs")
    said, effect = rig.serve(*words, "256", options=("--profile", "vllm"))
    assert "ALTERED  --max-num-seqs: 256 given, 128 arrived (by start.sh)" in said
    assert effect["argv"] == {
        "as_given": False,
        "altered": ["--max-num-seqs: 256 given, 128 arrived (by start.sh)"],
    }
    said, effect = rig.serve(*words, "300", options=("--profile", "vllm"))
    assert effect["argv"] == {"as_given": True, "altered": []}
    assert "ALTERED" not in said


def _shadow(rig: Rig, directory: Path) -> dict[str, str]:
    shutil.copytree(rig.site / "vllm", directory / "vllm")
    return {"PYTHONPATH": str(directory)}


def _watched(rig: Rig, directory: Path) -> tuple[object, ...]:
    shutil.copytree(rig.site / "vllm", directory / "vllm")
    return "--watch", str(directory)


@pytest.mark.parametrize(
    ("edits", "prepare", "refused"),
    [
        (("worker.py",), lambda rig, path: ((), _shadow(rig, path)), "which is searched first"),
        ((), lambda rig, path: ((), _shadow(rig, path)), None),
        ((), lambda rig, path: (_watched(rig, path), {}), "the server runs in"),
        ((), lambda rig, path: (_watched(rig, path), {"PYTHONPATH": str(path)}), None),
        ((), lambda rig, path: (("--watch", str(rig.site / "vllm")), {}), None),
    ],
    ids=["edited, and shadowed", "shadowed", "another's watched", "it is imported", "its own watched"],
)
def test_an_edit_that_cannot_have_an_effect_is_refused(
    rig: Rig,
    edits: tuple[str, ...],
    prepare: Callable[[Rig, Path], tuple[tuple[object, ...], dict[str, str]]],
    refused: str | None,
) -> None:
    options, env = prepare(rig, rig.supervise.base / "other")
    rig.edit(*edits)
    if refused is None:
        said, _ = rig.serve(options=options, **env)
        assert "effect:" not in said
        return
    launched = rig.launch(options=options, **env)
    assert launched.wait() == 94
    assert "REFUSED effect: " in launched.stderr
    assert refused in launched.stderr
    if edits:
        said, effect = rig.serve(options=(*options, "--no-preflight", "effect"), **env)
        # What is not asked before the launch is seen after it.
        assert effect["files"]["took_effect"] is False
