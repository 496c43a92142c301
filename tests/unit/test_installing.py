"""What is told to whoever misses supervise on the other side installs this very one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from supervise import __version__
from supervise.verbs.installing import Source, lines, source

REPOSITORY = Path(__file__).resolve().parents[2]


def installed(site: Path, direct_url: object = None) -> Source:
    info = site / "supervise_llm-0.0.7.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("supervise/__init__.py,,\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return source([str(site)], str(site))


def test_sources_beside_the_package_are_those() -> None:
    origin = source([], str(REPOSITORY))
    assert origin.path == str(REPOSITORY)


def test_a_directory_is_brought_there(tmp_path: Path) -> None:
    """The twin of what an index has: the same version, but nobody knows whose that name is there."""
    origin = installed(tmp_path, {"url": REPOSITORY.as_uri(), "dir_info": {}})
    assert origin.path == str(REPOSITORY)
    assert origin.wanted is not None
    assert "supervise-llm" not in origin.wanted


@pytest.mark.parametrize(
    ("direct_url", "wanted"),
    [
        (None, "supervise-llm==0.0.7"),
        ({"url": "https://h/s.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}, "git+https://h/s.git@c0ffee"),
        (
            {"url": "https://h/s.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}, "subdirectory": "a b"},
            "git+https://h/s.git@c0ffee#subdirectory=a b",
        ),
        ({"url": "https://h/s-1-py3-none-any.whl", "archive_info": {}}, "https://h/s-1-py3-none-any.whl"),
        ({"url": "file:///nowhere/s", "dir_info": {}}, None),
        ({"url": "file:///r", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}}, None),
        ("nonsense", "supervise-llm==0.0.7"),
    ],
)
def test_what_pip_has_recorded(tmp_path: Path, direct_url: object, wanted: str | None) -> None:
    assert installed(tmp_path, direct_url) == Source(wanted)


SOURCES = "there/home/.local/share/supervise-sources"


def carried_out(tmp_path: Path, origin: Source, arrives: str = "cat") -> str:
    """By a shell here, with an `ssh` that has a home of its own; what its `uv` was given, and what it found there."""
    there = tmp_path / "there"
    for name in ("bin", "home"):
        (there / name).mkdir(parents=True, exist_ok=True)
    for name, body in (
        ("ssh", f'HOME={there}/home; export HOME; shift; {arrives} | sh -c "$*"'),
        ("uv", 'echo "$*"; for f; do :; done; cat "$f" "$f/pyproject.toml" 2>/dev/null; exit 0'),
    ):
        (there / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (there / "bin" / name).chmod(0o755)
    told = lines([str(there / "bin/ssh")], "box", origin)["uv"].removeprefix("this installs it there: ")
    env = {**os.environ, "PATH": f"{there}/bin:{os.environ['PATH']}"}
    ended = subprocess.run(["sh", "-c", told], env=env, capture_output=True, text=True, timeout=60, check=True)
    return ended.stdout


def test_the_line_brings_the_sources(tmp_path: Path) -> None:
    said = carried_out(tmp_path, source([], str(REPOSITORY)))
    assert said.startswith(f"tool install --force {tmp_path}/there/home/.local/share/supervise-sources/")
    assert 'name = "supervise-llm"' in said
    (brought,) = (tmp_path / SOURCES).iterdir()
    assert (brought / "supervise/verbs/installing.py").read_bytes() == (
        REPOSITORY / "supervise/verbs/installing.py"
    ).read_bytes()
    assert (brought / "profiles").is_dir()
    assert not list(brought.rglob("__pycache__"))


def test_nothing_is_left_of_other_sources(tmp_path: Path) -> None:
    stale = [tmp_path / SOURCES / f"{__version__}{end}/supervise/gone.py" for end in ("", ".new")]
    for path in stale:
        path.parent.mkdir(parents=True)
        path.touch()
    carried_out(tmp_path, source([], str(REPOSITORY)))
    assert (stale[0].parent / "text.py").exists()
    assert not any(path.exists() for path in stale)


def test_what_does_not_arrive_takes_nobodys_place(tmp_path: Path) -> None:
    there = tmp_path / SOURCES / f"{__version__}/as-it-was"
    there.parent.mkdir(parents=True)
    there.touch()
    with pytest.raises(subprocess.CalledProcessError):
        carried_out(tmp_path, source([], str(REPOSITORY)), "head -c 9999")
    assert there.exists()


def test_the_line_brings_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "s-1-py3-none-any.whl"
    wheel.write_text("a wheel")
    origin = installed(tmp_path / "site", {"url": wheel.as_uri(), "archive_info": {}})
    said = carried_out(tmp_path, origin)
    assert said.splitlines()[0].endswith("/s-1-py3-none-any.whl")
    assert said.splitlines()[1] == "a wheel"


def test_nothing_is_told_that_could_install_something_else() -> None:
    for told in lines(["ssh"], "box", Source(None)).values():
        assert "install it there" in told
        assert "supervise-llm" not in told
