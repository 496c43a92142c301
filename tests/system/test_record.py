"""What an attempt keeps of the code that it ran, and of its circumstances."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Attempt, Store
from supervise.host import procfs
from supervise.host import wheel as wheels
from supervise.host.originals import Originals
from supervise.model.sources import Base, Change, Root, Sources
from supervise.report.patches import between
from supervise.runner import plan, recording
from supervise.runner.plan import Options
from tests.support.launcher import Supervise
from tests.support.waiting import wait_gone, wait_until
from tests.support.wheels import MODEL, Wheel

EDIT = MODEL.replace("42", "43")


@pytest.fixture
def wheel(short_dir: Path) -> Wheel:
    return Wheel(short_dir / "venv")


def command(supervise: Supervise, wheel: Wheel, port: int, *options: object) -> list[object]:
    return [wheel.program, "serve", "m", *supervise.standin("--load-s", 0.05, *options, port=port)[2:]]


def kept(supervise: Supervise, number: int | None = None) -> tuple[Attempt, Sources]:
    path = supervise.attempt(number)
    attempt = Attempt("r", int(path.name), str(path))
    return attempt, wait_until(lambda: sources.read(attempt), failure=supervise.said)


def serve(supervise: Supervise, command: list[object], *options: object) -> Attempt:
    """One attempt, until it is ready and its code is recorded."""
    launched = supervise.start("--name", "r", *options, *command)
    supervise.wait_state("ready")
    attempt, _ = kept(supervise)
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    return attempt


def store(supervise: Supervise) -> Store:
    return Store(str(supervise.state / "supervise"))


def test_an_edited_file_is_recorded_with_its_copy_and_patch(supervise: Supervise, wheel: Wheel, port: int) -> None:
    words = command(supervise, wheel, port)
    clean = serve(supervise, words)
    known = sources.read(clean)
    assert known is not None
    assert (known.python, known.version) == (str(wheel.python), wheel.site.parent.name.removeprefix("python"))
    assert known.versions == {"vllm": "9.9"}
    assert known.roots == (Root("vllm", str(wheel.site), Base.WHEEL, "9.9"),)  # nothing was edited
    assert not os.path.exists(f"{clean.path}/sources")
    originals = Originals(str(supervise.state / "supervise" / recording.ORIGINALS))
    wait_until(lambda: originals.original(known.roots[0], "vllm/model.py"), failure=supervise.said)

    wheel.model.write_text(EDIT)
    (wheel.site / "vllm/big.bin").write_bytes(b"x" * 10_000_000)
    edited = serve(supervise, words)
    told = sources.read(edited)
    assert told is not None
    assert [(each.path, each.change, each.kept) for each in told.roots[0].files] == [
        ("vllm/model.py", Change.MODIFIED, True),
        ("vllm/big.bin", Change.ADDED, False),
    ]
    assert sources.content(edited, told.roots[0], "vllm/model.py") == EDIT.encode()
    for before in (None, clean):
        patches = between(before, edited, originals)
        assert patches is not None
        big, model = patches
        assert (model.path, model.added, model.removed, model.known) == ("vllm/model.py", 1, 1, True)
        assert "-    return 42\n+    return 43\n" in model.text
        assert not big.known


def test_it_is_there_after_a_server_that_dies_at_once(supervise: Supervise, wheel: Wheel, port: int) -> None:
    wheel.model.write_text(EDIT)
    (wheel.site / "vllm/cli.py").write_text("raise SystemExit(3)\n")
    launched = supervise.run("--name", "r", *command(supervise, wheel, port))
    assert launched.popen.returncode == 3
    path = supervise.attempt()
    told = sources.read(Attempt("r", 1, str(path)))
    assert told is not None
    assert [source.path for source in told.roots[0].files] == ["vllm/model.py", "vllm/cli.py"]


def slow_git(supervise: Supervise) -> None:
    """One that answers once $TEST_BLOCKED is there."""
    git = supervise.base / "bin/git"
    git.parent.mkdir()
    git.write_text(
        '#!/bin/sh\necho $$ >"$TEST_BLOCKED.pid"\nuntil [ -e "$TEST_BLOCKED" ]; do sleep 0.02; done\nexit 1\n'
    )
    git.chmod(0o755)
    supervise.extra_env["PATH"] = f"{git.parent}:{os.environ['PATH']}"


def test_the_end_does_not_wait_for_what_takes_long(supervise: Supervise, wheel: Wheel, port: int) -> None:
    blocked = supervise.tmp / "blocked"
    supervise.extra_env["TEST_BLOCKED"] = str(blocked)
    slow_git(supervise)
    try:
        watched = ("--package", supervise.base / "home")
        launched = supervise.run("--name", "r", *watched, *command(supervise, wheel, port, "--crash-at", "load"))
    finally:
        git = procfs.identify(int(Path(f"{blocked}.pid").read_text()))
        blocked.touch()
        wait_gone([git] if git else [])
    assert launched.popen.returncode not in (0, None)
    assert "its code had not been read to the end when it was over; it is not in its record" in launched.stderr
    assert sources.read(Attempt("r", 1, str(supervise.attempt()))) is None


def test_what_cannot_be_written_is_said_once_and_harmless(supervise: Supervise, wheel: Wheel, port: int) -> None:
    wheel.model.write_text(EDIT)
    # Nobody can make a directory where the server has made a file; the look at what is watched waits for that.
    supervise.extra_env["TEST_BLOCKED"] = str(supervise.state / "supervise/r/latest/sources")
    (wheel.site / "vllm/__init__.py").write_text("import os\nopen(os.environ['TEST_BLOCKED'], 'x').close()\n")
    slow_git(supervise)
    watched = ("--watch", supervise.base / "home")
    launched = supervise.start("--name", "r", *watched, *command(supervise, wheel, port))
    supervise.wait_state("ready")
    launched.wait_said("the code of this attempt is not recorded: File exists")
    launched.send(signal.SIGTERM)
    assert launched.wait() == -signal.SIGTERM
    assert launched.stderr.count("is not recorded") == 1
    assert supervise.outcome()["verified"]
    assert sources.read(Attempt("r", 1, str(supervise.attempt()))) is None


def test_circumstances_are_recorded_without_secrets(supervise: Supervise, wheel: Wheel, port: int) -> None:
    hook = "curl -H 'Authorization: s3cret' http://127.0.0.1:1"
    serve(supervise, [*command(supervise, wheel, port)], "--on", "ready", hook, "--grace", 2)
    told = supervise.record()
    assert told["interpreter"] == str(wheel.python)
    assert told["options"] == ["--name", "r", "--on", "ready", "***", "--grace", "2"]
    assert told["need"]["ports"][0]["number"] == port
    assert sorted(told["limits"]) == ["as", "memlock", "nofile", "nproc"]
    assert told["supervise"]
    assert "s3cret" not in json.dumps(told)


# --- what is looked at -----------------------------------------------------------------------------------------------


def looked(wheel: Wheel, base: Path, *watch: Path, packages: tuple[str, ...] = ()) -> tuple[dict[str, Root], Any]:
    options = Options(watch=tuple(map(str, watch)))
    planned = plan.make([str(wheel.program), "serve", "m"], {"PATH": "/usr/bin"}, options)
    known, contents = recording.look(planned, Store(str(base / "state")))
    return {root.name: root for root in known.roots}, contents


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, "-C", directory, *words], check=True, capture_output=True, timeout=30)
    return done.stdout.decode().strip()


def test_a_watched_file_of_a_package_is_the_packages(wheel: Wheel, short_dir: Path) -> None:
    wheel.model.write_text(EDIT)
    roots, _ = looked(wheel, short_dir, wheel.model, wheel.site / "vllm")
    assert list(roots) == ["vllm"]
    assert [source.path for source in roots["vllm"].files] == ["vllm/model.py"]


def test_a_watched_directory_is_kept_file_by_file(wheel: Wheel, short_dir: Path) -> None:
    (short_dir / "secret.toml").write_text("s3cret")
    work = short_dir / "work"
    work.mkdir()
    (work / "a.toml").write_text("x = 1\n")
    (work / "link.toml").symlink_to(short_dir / "secret.toml")
    (work / "__pycache__").mkdir()
    (work / "__pycache__/x.pyc").touch()
    roots, contents = looked(wheel, short_dir, work, short_dir / "secret.toml")
    assert roots[str(work)].base is Base.NONE
    assert [(each.path, each.change, each.kept) for each in roots[str(work)].files] == [
        ("a.toml", Change.PLAIN, True),
        ("link.toml", Change.PLAIN, False),
    ]
    assert contents == {(str(work), "a.toml"): b"x = 1\n", (str(short_dir), "secret.toml"): b"s3cret"}


def test_of_a_working_tree_what_is_not_committed(wheel: Wheel, short_dir: Path) -> None:
    tree = short_dir / "tree"
    (tree / "src/deep").mkdir(parents=True)
    for name in ("same.py", "changed.py", "gone.py"):
        (tree / "src" / name).write_text("1\n")
    (tree / ".gitignore").write_text("*.log\n")
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "one")
    roots, _ = looked(wheel, short_dir, tree)
    head = git(tree, "rev-parse", "--short", "HEAD")
    assert roots[str(tree)] == Root(str(tree), str(tree), Base.GIT, head)
    (tree / "src/changed.py").write_text("2\n")
    (tree / "src/gone.py").unlink()
    (tree / "src/staged.py").touch()
    git(tree, "add", "src/staged.py")
    (tree / "src/deep/new.py").write_text("n\n")
    (tree / "src/x.log").touch()
    (tree / "top.py").touch()
    roots, contents = looked(wheel, short_dir, tree / "src", tree / "src/deep")
    (root,) = (root for name, root in roots.items() if name != "vllm")
    assert (root.name, root.directory, root.base, root.version) == (str(tree), str(tree), Base.GIT, head)
    assert [(each.path, each.change) for each in root.files] == [
        ("src/changed.py", Change.MODIFIED),
        ("src/deep/new.py", Change.ADDED),
        ("src/gone.py", Change.MISSING),
        ("src/staged.py", Change.ADDED),
    ]
    assert contents[str(tree), "src/deep/new.py"] == b"n\n"


def test_without_a_record_of_its_wheel_a_package_is_kept_file_by_file(wheel: Wheel, short_dir: Path) -> None:
    (wheel.site / "vllm-9.9.dist-info/RECORD").unlink()
    roots, _ = looked(wheel, short_dir)
    assert (roots["vllm"].base, roots["vllm"].directory) == (Base.NONE, str(wheel.site))
    assert [each.change for each in roots["vllm"].files] == [Change.PLAIN] * 5


def test_what_could_not_be_read_is_said(wheel: Wheel, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervise.slate.packages._LAUNCH_S", 0.0)
    roots, _ = looked(wheel, short_dir)
    assert roots["vllm"].unknown.endswith("could not be read")


def test_no_file_is_hashed_twice(wheel: Wheel, short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = wheels.copying.read

    def counted(path: str, algorithm: str, deadline: float) -> Any:
        read.append(path)
        return real(path, algorithm, deadline)

    monkeypatch.setattr(wheels.copying, "read", counted)
    wheel.model.write_text(EDIT)
    (wheel.site / "vllm/more.py").touch()
    looked(wheel, short_dir)
    assert len(read) == len(set(read)) == 8
    deadline = time.monotonic() + 20
    while time.time_ns() - max(path.stat().st_ctime_ns for path in wheel.site.rglob("*")) <= wheels._SETTLED_NS:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    looked(wheel, short_dir)
    read.clear()
    looked(wheel, short_dir)
    assert sorted(os.path.basename(path) for path in read) == ["model.py", "more.py"]  # what is copied
