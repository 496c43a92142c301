"""Debug code in an engine's package: shown, put back, launched again as it was; with real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.launcher import Launched, Supervise, free_port
from tests.support.waiting import wait_until
from tests.support.wheels import MODEL, Wheel

BROKEN = "def answer():\n    breakpoint()\n    return 42\n"
RM = "rm -- "


@pytest.fixture
def wheel(supervise: Supervise) -> Wheel:
    made = Wheel(supervise.base / "venv")
    supervise.extra_env["PATH"] = f"{made.program.parent}{os.pathsep}{os.environ['PATH']}"
    return made


def attempt(supervise: Supervise, number: int) -> Path:
    return supervise.state / f"supervise/X/attempts/{number:04d}"


def recorded(supervise: Supervise, number: int) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((attempt(supervise, number) / "attempt.json").read_text())
    return said


def ready(supervise: Supervise, *words: object, env: dict[str, str] | None = None) -> Launched:
    """A server that is ready, and whose code has been written down."""
    launched = supervise.start(*words, env=env)
    launched.wait_said("ready    in")
    number = max(int(path.name) for path in (supervise.state / "supervise/X/attempts").iterdir())
    wait_until((attempt(supervise, number) / "sources.json").exists, failure=lambda: launched.stderr)
    wait_until(lambda: list((supervise.state / "supervise/.originals").glob("*.zip")), failure=lambda: launched.stderr)
    return launched


def serve(port: int, *options: object) -> list[object]:
    return ["--name", "X", "--no-preflight", "model", "vllm", "serve", "M", "--port", port, *options]


def stop(launched: Launched) -> None:
    launched.send(signal.SIGTERM)
    launched.wait()


def test_it_is_shown_put_back_and_verified(supervise: Supervise, wheel: Wheel, port: int) -> None:
    stop(ready(supervise, *serve(port)))
    wheel.model.write_text(BROKEN)
    (wheel.site / "vllm/extra.py").unlink()
    ours, theirs = wheel.site / "vllm/debug_hook.py", wheel.site / "vllm/theirs.py"
    ours.write_text("print('here')\n")
    launched = ready(supervise, *serve(port))
    theirs.write_text("print('mine')\n")

    live = supervise.run("clean", "--restore")
    assert live.popen.returncode == 94, live.stderr
    assert "run X is live and may import these files; first: supervise stop X" in live.stderr
    assert wheel.model.read_text() == BROKEN
    stop(launched)

    shown = supervise.run("clean", "--packages")
    assert shown.popen.returncode == 0, shown.stderr
    for line in ("+    breakpoint()", "modified vllm/model.py  +1 −0", "missing  vllm/extra.py"):
        assert line in shown.stderr
    assert "added    vllm/debug_hook.py  +1  (recorded by attempt 2 of X)" in shown.stderr
    assert "added    vllm/theirs.py  +1  (no attempt has recorded it)" in shown.stderr
    dry = supervise.run("clean", "--restore", "--dry-run", "vllm", "serve", "M", "--port", port)
    assert dry.popen.returncode == 94
    assert "would be put back vllm/model.py" in dry.stderr
    assert wheel.model.read_text() == BROKEN

    # One that lives elsewhere stands in nobody's way.
    other = supervise.start("--name", "Y", *supervise.standin(port=free_port()))
    other.wait_said("ready    in")
    partly = supervise.run("clean", "--restore", "--json")
    assert partly.popen.returncode == 94
    assert wheel.model.read_text() == MODEL
    assert (wheel.site / "vllm/extra.py").exists()
    assert not ours.exists()
    assert theirs.exists()
    (package,) = json.loads(partly.stdout)["packages"]
    saved = Path(package["restored"]["saved"])
    assert (saved / str(wheel.model).lstrip("/")).read_text() == BROKEN
    assert (saved / str(ours).lstrip("/")).read_text() == "print('here')\n"
    assert package["restored"]["remedy"] == f"{RM}{theirs}"

    stop(other)
    theirs.unlink()
    whole = supervise.run("clean", "--restore")
    assert whole.popen.returncode == 0, whole.stderr
    assert "vllm 9.9 as in its wheel, by hash" in whole.stderr
    assert wheel.is_as_published()


def test_a_server_that_has_become_another_python_is_seen(supervise: Supervise, wheel: Wheel, port: int) -> None:
    wheel.model.write_text(BROKEN)
    # Once through exec, once through a .pth file; neither is in the command line.
    become = [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])", wheel.python]
    led = Wheel(supervise.base / "led")
    (led.site / "led.pth").write_text(f"{wheel.site}\n")
    for command in (become, [led.python]):
        server = supervise.start("--name", "Y", *command, *supervise.standin(port=free_port())[1:])
        server.wait_said("ready    in")
        told = supervise.run("clean", "--restore", "vllm", "serve", "M", "--port", port)
        assert told.popen.returncode == 94
        assert "run Y is live and may import these files; first: supervise stop Y" in told.stderr
        stop(server)
    told = supervise.run("clean", "--restore", "vllm", "serve", "M", "--port", port)
    assert "is live" not in told.stderr


def test_what_is_not_known_is_left_and_the_command_told(supervise: Supervise, wheel: Wheel, port: int) -> None:
    wheel.model.write_text(BROKEN)
    told = supervise.run("clean", "--restore", "vllm", "serve", "M", "--port", port)
    assert told.popen.returncode == 94
    assert "vllm/model.py  (what it was is not known here)" in told.stderr
    assert f"by hand: {wheel.python} -m pip install --force-reinstall --no-deps vllm==9.9" in told.stderr
    assert wheel.model.read_text() == BROKEN
    assert not (supervise.state / "supervise/.saved").exists()


def test_an_attempt_is_launched_again_with_its_code(supervise: Supervise, wheel: Wheel, port: int) -> None:
    first = ready(supervise, *serve(port, "--served-model-name", "one"), env={"VLLM_THEN": "1"})
    stop(first)
    wheel.model.write_text(BROKEN)
    stop(ready(supervise, *serve(port, "--served-model-name", "two")))

    refused = supervise.run("replay", "X", "--attempt", 1, env={"VLLM_NOW": "2"})
    assert refused.popen.returncode == 94
    assert "vllm/model.py  +1 −0 since then, changed " in refused.stderr
    assert "after that attempt began" in refused.stderr
    assert "--put-back puts 1 file back" in refused.stderr
    assert wheel.model.read_text() == BROKEN

    stop(ready(supervise, "replay", "X", "--attempt", 1, "--put-back", env={"VLLM_NOW": "2"}))
    assert wheel.is_as_published()
    then, again = recorded(supervise, 1), recorded(supervise, 3)
    assert again["attempt"] == 3
    for name in ("argv", "environment", "cwd"):
        assert again[name] == then[name], name
    assert "--no-preflight" in again["options"]
    (saved,) = (supervise.state / "supervise/.saved").iterdir()
    assert (saved / str(wheel.model).lstrip("/")).read_text() == BROKEN

    # What was debugged comes back the same way.
    stop(ready(supervise, "replay", "X", "--attempt", 2, "--put-back"))
    assert wheel.model.read_text() == BROKEN
    assert recorded(supervise, 4)["argv"] == recorded(supervise, 2)["argv"]

    (attempt(supervise, 2) / "sources.json").write_text("{")
    unknown = supervise.run("replay", "X", "--attempt", 2)
    assert unknown.popen.returncode == 94
    assert "not known: its code: sources.json is damaged" in unknown.stderr
    stop(ready(supervise, "replay", "X", "--attempt", 2, "--anyway"))
    assert recorded(supervise, 5)["argv"] == recorded(supervise, 2)["argv"]


def test_a_secret_has_to_be_set_again(supervise: Supervise, wheel: Wheel, port: int) -> None:
    stop(ready(supervise, *serve(port, "--api-key", "s3cret")))
    assert "s3cret" not in (attempt(supervise, 1) / "attempt.json").read_text()
    told = supervise.run("replay", "X", "--attempt", 1)
    assert told.popen.returncode == 2
    assert "--api-key was a secret and is not recorded: set VLLM_API_KEY to it, then again" in told.stderr
    stop(ready(supervise, "replay", "X", "--attempt", 1, env={"VLLM_API_KEY": "s3cret"}))
    assert "--api-key" not in recorded(supervise, 2)["argv"]
    assert supervise.run("replay", "X", "--attempt", 9).popen.returncode == 2
