"""The debug loop on a real vLLM: a model file patched to raise, then mended, and the debug code taken out again."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.real.server import START_S, RealVllm, Server
from tests.support.launcher import Launched, Supervise

# The fixture that installs vLLM is not timed, it has deadlines of its own.
pytestmark = [pytest.mark.real, pytest.mark.timeout(600, func_only=True)]

STOP_S = 60.0
LLAMA = "vllm/model_executor/models/llama.py"
LOADER = "vllm/model_executor/model_loader/default_loader.py"
DUMPER, THEIRS = "vllm/debug_dump.py", "vllm/theirs.py"
LOADS = "        loader = AutoWeightsLoader(self)\n        return loader.load_weights(weights)\n"
RAISES = '        raise RuntimeError("debug: no weights today")\n'
CAUSE = "RuntimeError: debug: no weights today"
MOVED = "cause moved: RuntimeError at weights -> ready"
PRINT = "import vllm.debug_dump  # XXX\n"


class Work:
    """A vLLM that somebody works on, and the `supervise` that watches it.

    Attributes:
        site: where its files are.
        published: where those are that it is a copy of.
        dump: what its debug code writes.
    """

    def __init__(self, root: Path, venv: Path, vllm: RealVllm, supervise: Supervise, port: int) -> None:
        self.supervise = supervise
        (self.site,) = (root / "lib").glob("python3.*/site-packages")
        self.published = venv / self.site.relative_to(root)
        self.dump = supervise.base / "dumps/vllm_debug_0.pt"
        self.dump.parent.mkdir()
        # What vLLM remembers of a model's class is good for one content of its file: the others' memory is not spoilt.
        cache = supervise.base / "cache"
        remembered = Path(vllm.environment["VLLM_CACHE_ROOT"]) / "modelinfos"
        if remembered.exists():
            shutil.copytree(remembered, cache / remembered.name)
        own = replace(vllm, program=root / "bin/vllm", environment={**vllm.environment, "VLLM_CACHE_ROOT": str(cache)})
        self.server = Server(own, supervise, port)

    def start(self) -> Launched:
        self.server.start(options=("--watch", "package:vllm", *self._artefacts))
        return self.server.launched

    def clean(self, *options: str) -> Launched:
        """`supervise clean` of its packages, of what it has dumped, and of everything else."""
        vllm = self.server.vllm
        words = ("clean", *options, *self._artefacts, *vllm.command(self.server.port))
        return self.supervise.run(*words, deadline_s=STOP_S, env=vllm.environment)

    def told(self, *words: object) -> Any:
        """The JSON that a verb prints."""
        return json.loads(self.supervise.run(*words, "--json").stdout)

    def patch(self, before_it_loads: str = "") -> None:
        """The model file as it was published, but for a line of one's own where weights are loaded."""
        original = (self.published / LLAMA).read_text()
        assert original.count(LOADS) == 1
        (self.site / LLAMA).write_text(original.replace(LOADS, before_it_loads + LOADS))

    def attempts(self) -> int:
        return len(list((self.supervise.run_directory() / "attempts").glob("[0-9]*")))

    def cause_id(self, attempt: int) -> object:
        return json.loads((self.supervise.attempt(attempt) / "outcome.json").read_text())["cause"]["fingerprint"]

    def differing(self) -> set[str]:
        """Python files of the package that are not those that were published, by their content."""
        here, there = _digests(self.site), _digests(self.published)
        return {path for path in here | there if here.get(path) != there.get(path)}

    @property
    def _artefacts(self) -> tuple[str, str]:
        return "--artefacts", str(self.dump.with_name("vllm_debug_*.pt"))


@pytest.fixture
def work(copied: Path, venv: Path, real_vllm: RealVllm, supervise: Supervise, port: int) -> Work:
    return Work(copied, venv, real_vllm, supervise, port)


def test_patched_to_raise_then_mended_then_cleaned_up(work: Work) -> None:
    _fails_and_waits(work)
    _mended_it_serves_and_stops(work)
    _what_differed_is_told(work)
    _debug_code_is_taken_out(work)


def _fails_and_waits(work: Work) -> None:
    """Attempt 1: the cause is the user's own line; then supervise waits, and nothing of the server is left."""
    work.patch(RAISES)
    launched = work.start()
    work.server.wait_logged("Starting to load model")
    launched.wait_said("waits for a change of a watched file", START_S)
    assert work.server.survivors() == []
    outcome = work.supervise.outcome()
    assert (outcome["outcome"], outcome["survivors"], outcome["left"]) == ("died", [], [])
    cause = outcome["cause"]
    assert (cause["text"], cause["phase"]) == (CAUSE, "weights")
    assert cause["process"].startswith("Worker")
    number = 1 + (work.site / LLAMA).read_text().splitlines(keepends=True).index(RAISES)
    assert f"in load_weights ({LLAMA}:{number})" in cause["meaning"]
    files = outcome["effect"]["files"]
    assert (files["took_effect"], files["changed"]) == (True, [str(work.site / LLAMA)])
    status = work.supervise.run("status").stdout
    assert f"waits for a change of a watched file, it failed: {CAUSE}" in status

    work.patch("        print((\n")
    launched.wait_said("SyntaxError: '(' was never closed; no relaunch until it is mended")


def _mended_it_serves_and_stops(work: Work) -> None:
    """Attempt 2: the model file as it was, but debug code elsewhere; all of it in one relaunch."""
    launched, server = work.server.launched, work.server
    (work.site / DUMPER).write_text(f"open({str(work.dump)!r}, 'w').close()\n")
    with (work.site / LOADER).open("a") as file:
        file.write(PRINT)
    assert work.attempts() == 1  # the model file still does not compile
    work.patch()
    launched.wait_said("attempt  2", START_S)
    server.wait_ready()
    (model,) = server.get("/v1/models")["data"]
    answer = server.get("/v1/completions", {"model": model["id"], "prompt": "the quick brown", "max_tokens": 4})
    assert answer["usage"]["completion_tokens"] >= 1
    assert work.dump.exists()
    assert work.told("diff")["end"] == {"same": False, "told": f"{MOVED}, and runs"}

    launched.send(signal.SIGTERM)
    assert launched.wait(STOP_S) == -signal.SIGTERM
    server.assert_nothing_left()
    outcome = work.supervise.outcome()
    assert (outcome["outcome"], outcome["cause"]) == ("asked", None)
    assert (outcome["survivors"], outcome["left"], outcome["clean"]) == ([], [], True)
    effect = outcome["effect"]
    assert effect["listener"] == "ours"
    assert effect["argv"] == {"as_given": True, "altered": []}
    assert (effect["files"]["took_effect"], effect["files"]["unread"]) == (True, [])
    assert set(effect["files"]["changed"]) == {str(work.site / path) for path in (LOADER, DUMPER)}
    for alarm in ("NO EFFECT", "ALTERED"):
        assert alarm not in launched.stderr


def _what_differed_is_told(work: Work) -> None:
    assert work.attempts() == 2
    said = work.server.launched.stderr
    line = next(line for line in said.splitlines() if line.startswith("compared differs from #1 by: "))
    for patch in ("debug_dump.py (+1 −0)", "default_loader.py (+1 −0)", "llama.py (+0 −1)"):
        assert f"patch {patch}" in line
    assert MOVED in said

    first, second = work.told("history")["attempts"]
    assert (first["reached"], second["reached"]) == ("weights", "ready")
    assert (first["cause_id"], second["cause_id"]) == (work.cause_id(1), None)
    compared = work.told("diff", "--patch")
    assert compared["end"] == {"same": False, "told": MOVED}
    patches = {patch["path"]: patch["text"] for patch in compared["patches"]}
    assert set(patches) == {LLAMA, LOADER, DUMPER}
    assert f"\n-{RAISES}" in patches[LLAMA]
    assert f"\n+{PRINT}" in patches[LOADER]
    assert {each["subject"] for each in compared["differences"] if each["kind"] != "patch"} == set()


def _debug_code_is_taken_out(work: Work) -> None:
    """What is proven is put back; a file that no attempt knows is only told."""
    (work.site / THEIRS).write_text("print('mine')\n")
    assert work.differing() == {LOADER, DUMPER, THEIRS}
    shown = work.clean("--packages", "--dry-run").stderr
    for line in (f"modified {LOADER}  +1 −0", f"+{PRINT}", f"added    {DUMPER}  +1  (recorded by attempt 2 of "):
        assert line in shown
    assert f"added    {THEIRS}  +1  (no attempt has recorded it)" in shown
    assert str(work.dump) in shown
    assert work.dump.exists()

    restored = work.clean("--restore")
    assert restored.popen.returncode == 94, restored.stderr
    assert f"rm -- {work.site / THEIRS}" in restored.stderr
    assert work.differing() == {THEIRS}
    assert not work.dump.exists()

    (work.site / THEIRS).unlink()
    again = work.clean("--restore")
    assert again.popen.returncode == 0, again.stderr
    assert "as in its wheel, by hash" in again.stderr
    assert work.differing() == set()


def _digests(site: Path) -> dict[str, str]:
    found = (site / "vllm").rglob("*.py")
    return {str(path.relative_to(site)): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
