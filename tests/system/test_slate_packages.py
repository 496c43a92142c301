"""Installed wheels compared with their RECORD, in an environment of their own."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from supervise.host import interpreter, wheel
from supervise.slate import packages
from supervise.slate.packages import Package
from tests.support.launcher import NOBODY

FILES = {
    "eng/__init__.py": "VALUE = 1\n",
    "eng/core/run.py": "def run():\n    return 1\n",
    "eng/config.json": "{}\n",
    "eng/_C.so": "\x7fELF" + "x" * 200_000,
    "eng.libs/libgomp.so": "y" * 200_000,
    "alone.py": "X = 1\n",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("packages") / "venv"
    base = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", path], check=True, timeout=60)
    return path


class Venv:
    """An environment with a wheel named `eng`, and a console script."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root, self.cache = root, cache
        (self.site,) = (root / "lib").glob("python3.*/site-packages")
        self.program = (str(root / "bin/eng"), "serve")
        script = root / "bin/eng"
        script.write_text(f"#!{root}/bin/python\nimport eng\n")
        script.chmod(0o755)
        self.install("eng", FILES, script)

    def install(self, name: str, content: dict[str, str], *others: Path) -> None:
        info = f"{name}-1.0.dist-info"
        content = {**content, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
        content[f"{info}/INSTALLER"] = "pip\n"
        rows = []
        for path, text in content.items():
            target = self.site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            rows.append(row(path, target))
        rows += [row(os.path.relpath(each, self.site), each) for each in others]
        rows += [("eng/__pycache__/__init__.cpython-399.pyc", "", "")] if name == "eng" else []
        rows += [(f"{info}/RECORD", "", "")]
        with (self.site / info / "RECORD").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    def compare(self, name: str = "eng", *, thorough: bool = False) -> Package:
        python, why = interpreter.find(self.program, {})
        assert python is not None, why
        return packages.compare(name, python, str(self.cache), thorough=thorough)

    def said(self, name: str = "eng", *, thorough: bool = False) -> list[str]:
        found = packages.examine(self.program, {}, (name,), str(self.cache), thorough=thorough)
        return [*(finding.subject for finding in found[0]), *found[1]]


def row(path: str, target: Path) -> tuple[str, str, str]:
    digest = urlsafe_b64encode(hashlib.sha256(target.read_bytes()).digest()).decode().rstrip("=")
    return path, f"sha256={digest}", str(target.stat().st_size)


@pytest.fixture
def venv(bare: Path, short_dir: Path) -> Venv:
    root = short_dir / "venv"
    shutil.copytree(bare, root, symlinks=True)
    made = Venv(root, short_dir / "state/packages.json")
    assert made.said() == ["eng 1.0 as in its wheel (2 large files by size)"]
    return made


def settle(path: Path) -> None:
    """Wait until the clock of the file system has moved on: a digest is only remembered of what lies still."""
    deadline = time.monotonic() + 20
    while time.time_ns() - path.stat().st_ctime_ns <= wheel._SETTLED_NS:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def change_in_place(path: Path, text: str) -> None:
    """An edit that keeps size and time."""
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_the_directories_are_those_that_this_python_searches(venv: Venv, short_dir: Path) -> None:
    extra = short_dir / "extra"
    extra.mkdir()
    env = {"PYTHONPATH": str(extra), "HOME": str(short_dir)}
    said = subprocess.run(
        [venv.root / "bin/python", "-c", "import json, sys; print(json.dumps(sys.path))"],
        env=env,
        cwd=short_dir,
        capture_output=True,
        check=True,
        timeout=30,
    )
    searched = [path for path in json.loads(said.stdout)[1:] if path == str(extra) or path.endswith("-packages")]
    python, _ = interpreter.find(venv.program, env)
    assert python is not None
    assert list(python.site) == searched


def modify(venv: Venv) -> None:
    (venv.site / "eng/core/run.py").write_text("def run():\n    return 2\n")


def modify_longer(venv: Venv) -> None:
    (venv.site / "eng/config.json").write_text('{"debug": 1}\n')


def modify_in_place(venv: Venv) -> None:
    change_in_place(venv.site / "eng/core/run.py", "def run():\n    return 7\n")


def modify_script(venv: Venv) -> None:
    (venv.root / "bin/eng").write_text("#!/bin/sh\n")


def modify_module(venv: Venv) -> None:
    (venv.site / "alone.py").write_text("X = 2\n")


def grow_binary(venv: Venv) -> None:
    with (venv.site / "eng/_C.so").open("a") as file:
        file.write("z")


def replace_by_fifo(venv: Venv) -> None:
    (venv.site / "eng/core/run.py").unlink()
    os.mkfifo(venv.site / "eng/core/run.py")


def add(venv: Venv) -> None:
    (venv.site / "eng/core/debug_hook.py").write_text("print('here')\n")


def add_directory(venv: Venv) -> None:
    (venv.site / "eng/dbg/deep").mkdir(parents=True)
    (venv.site / "eng/dbg/deep/x.txt").touch()


def add_link(venv: Venv) -> None:
    (venv.site / "eng/hook.py").symlink_to("/nowhere")


def remove(venv: Venv) -> None:
    (venv.site / "eng/core/run.py").unlink()


def remove_directory(venv: Venv) -> None:
    shutil.rmtree(venv.site / "eng/core")


@pytest.mark.parametrize(
    ("change", "counts", "evidence"),
    [
        (modify, "1 modified, 0 added, 0 missing", "modified eng/core/run.py"),
        (modify_longer, "1 modified, 0 added, 0 missing", "modified eng/config.json"),
        (modify_in_place, "1 modified, 0 added, 0 missing", "modified eng/core/run.py"),
        (modify_module, "1 modified, 0 added, 0 missing", "modified alone.py"),
        (grow_binary, "1 modified, 0 added, 0 missing", "modified eng/_C.so"),
        (replace_by_fifo, "1 modified, 0 added, 0 missing", "modified eng/core/run.py"),
        (add, "0 modified, 1 added, 0 missing", "added eng/core/debug_hook.py"),
        (add_directory, "0 modified, 1 added, 0 missing", "added eng/dbg/deep/x.txt"),
        (add_link, "0 modified, 1 added, 0 missing", "added eng/hook.py"),
        (remove, "0 modified, 0 added, 1 missing", "missing eng/core/run.py"),
        (remove_directory, "0 modified, 0 added, 1 missing", "missing eng/core/run.py"),
    ],
)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_every_change_is_found(
    venv: Venv, change: Callable[[Venv], None], counts: str, evidence: str, *, warm: bool
) -> None:
    if warm:
        settle(venv.site / "eng-1.0.dist-info/RECORD")
        venv.compare()
        assert "eng/core/run.py" in venv.cache.read_text()
    change(venv)
    (finding,), checks = packages.examine(venv.program, {}, ("eng",), str(venv.cache), thorough=False)
    assert finding.subject == f"eng 1.0: {counts}"
    assert finding.evidence == (evidence,)
    assert checks == ()


def test_a_changed_script_is_found(venv: Venv) -> None:
    python, _ = interpreter.find(venv.program, {})
    assert python is not None
    modify_script(venv)
    assert packages.compare("eng", python, str(venv.cache), thorough=False).modified == ("../../../bin/eng",)


def test_what_looks_like_a_change_and_is_none(venv: Venv) -> None:
    for path in venv.site.rglob("*.py"):
        os.utime(path)  # touched
    cached = venv.site / "eng/__pycache__"
    cached.mkdir()
    (cached / "run.cpython-311.pyc").touch()
    (venv.site / "other").mkdir()
    (venv.site / "other/x.py").touch()  # not in a directory of this wheel
    venv.install("eng-plugin", {"eng/plugins/one.py": "P = 1\n"})  # shares the directory
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]
    moved = venv.site / "eng/core"
    moved.rename(venv.root / "core")  # linked into place, as an installer may do it
    moved.symlink_to(venv.root / "core")
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]


def test_a_binary_of_the_same_size_is_seen_when_thorough(venv: Venv) -> None:
    assert venv.said(thorough=True) == ["eng 1.0 as in its wheel"]
    binary = venv.site / "eng/_C.so"
    change_in_place(binary, binary.read_text().replace("x", "z"))
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]
    assert venv.said(thorough=True) == ["eng 1.0: 1 modified, 0 added, 0 missing"]


def test_a_file_is_read_once(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(venv.site / "eng-1.0.dist-info/RECORD")
    read: list[str] = []
    reader = wheel._read

    def counted(path: str, algorithm: str, deadline: float) -> str:
        read.append(path)
        return reader(path, algorithm, deadline)

    monkeypatch.setattr(wheel, "_read", counted)
    assert venv.compare().modified == ()
    assert sorted(Path(path).name for path in read) == [
        "INSTALLER",
        "METADATA",
        "__init__.py",
        "alone.py",
        "config.json",
        "eng",
        "run.py",
    ]
    assert venv.compare().modified == ()
    assert len(read) == 7
    (venv.site / "eng/config.json").touch()
    assert venv.compare().modified == ()
    assert len(read) == 8


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version": 1, "roots": 3}', '{"version": 1, "roots": {"%s": {"eng/__init__.py": [1]}}}', "\xff"],
)
def test_a_damaged_memory_is_none(venv: Venv, text: str) -> None:
    root = str(venv.site / "eng-1.0.dist-info")
    venv.cache.parent.mkdir(exist_ok=True)
    venv.cache.write_bytes(text.replace("%s", root).encode("latin-1"))
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]
    modify(venv)
    assert venv.said() == ["eng 1.0: 1 modified, 0 added, 0 missing"]


def test_a_memory_that_cannot_be_written_costs_time_only(venv: Venv) -> None:
    venv.cache = Path("/proc/nowhere/packages.json")
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]


def test_what_is_not_read_in_time_is_unknown(venv: Venv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_LAUNCH_S", 0.0)
    (subject,) = venv.said()
    assert subject.startswith("eng 1.0: 0 modified, 0 added, 0 missing, ")
    assert subject.endswith("could not be compared")


@pytest.mark.root
def test_what_may_not_be_read_is_unknown(venv: Venv) -> None:
    (venv.site / "eng/config.json").chmod(0)
    (venv.site / "eng/core").chmod(0)
    venv.cache.unlink(missing_ok=True)
    for path in [venv.root, *venv.root.parents][:3]:
        path.chmod(0o755)
    python, _ = interpreter.find(venv.program, {})
    assert python is not None
    os.seteuid(NOBODY)
    try:
        found = packages.compare("eng", python, str(venv.cache), thorough=False)
    finally:
        os.seteuid(0)
    assert sorted(found.unread) == ["eng/config.json", "eng/core/", "eng/core/run.py"]


def test_what_cannot_be_compared_is_said(venv: Venv) -> None:
    record = venv.site / "eng-1.0.dist-info/RECORD"
    text = record.read_text()
    for damaged in (b"eng/x.py,sha256=x,notanumber\n", b"eng/\xff.py,,\n"):
        record.write_bytes(damaged)
        assert venv.compare().unknown == "its RECORD cannot be read (damaged)"
    record.write_text("")
    assert venv.compare().unknown == "its RECORD lists no package"
    record.unlink()
    assert venv.compare().unknown == "its metadata has no RECORD (installed by pip)"
    record.write_text(text)
    assert venv.compare("nope").unknown == f"not installed for {venv.root}/bin/python"
    shutil.copytree(record.parent, venv.site / "eng-0.9.dist-info")
    assert venv.compare().unknown == f"{venv.site} has metadata of more than one: eng 0.9, eng 1.0"
    assert venv.said() == ["eng: not compared with its wheel"]


def rewrite_record(venv: Venv, old: str, new: str) -> None:
    """Replace the one row that begins with a path."""
    path = venv.site / "eng-1.0.dist-info/RECORD"
    lines = path.read_text().splitlines()
    assert sum(line.startswith(f"{old},") for line in lines) == 1
    path.write_text("\n".join(new if line.startswith(f"{old},") else line for line in lines) + "\n")


@pytest.mark.parametrize("path", ["eng/core/run.py", "eng/_C.so"])
@pytest.mark.parametrize("thorough", [False, True])
def test_what_has_no_digest_is_unknown(venv: Venv, path: str, thorough: bool) -> None:
    rewrite_record(venv, path, f"{path},,")
    (venv.site / path).write_text("edited\n")
    found = venv.compare(thorough=thorough)
    assert (found.unread, found.modified) == ((path,), ())
    (subject,) = venv.said(thorough=thorough)
    assert subject == "eng 1.0: 0 modified, 0 added, 0 missing, 1 could not be compared"


def test_an_absolute_path_is_looked_at_where_it_leads(venv: Venv, short_dir: Path) -> None:
    conf = short_dir / "eng.conf"
    conf.write_text("x = 1\n")
    record = venv.site / "eng-1.0.dist-info/RECORD"
    record.write_text(record.read_text() + ",".join(row(str(conf), conf)) + "\n")
    assert venv.said() == ["eng 1.0 as in its wheel (2 large files by size)"]
    conf.write_text("x = 2\n")
    assert venv.compare().modified == (str(conf),)
    conf.unlink()
    assert venv.compare().missing == (str(conf),)


def test_a_neighbour_without_a_record_is_not_taken_for_what_was_added(venv: Venv) -> None:
    venv.install("part", {"ns/bb/__init__.py": "B = 1\n"})
    venv.install("aapkg", {"ns/aa/__init__.py": "A = 1\n"})
    assert venv.compare("part").added == ()
    (venv.site / "aapkg-1.0.dist-info/RECORD").unlink()
    found = venv.compare("part")
    assert (found.added, found.unread) == ((), ("ns/aa/__init__.py",))
    (venv.site / "ns/bb/new.py").write_text("")
    assert venv.compare("part").added == ("ns/bb/new.py",)


def test_what_was_added_to_another_is_its_own(venv: Venv) -> None:
    venv.install("part", {"ns/bb/__init__.py": "B = 1\n"})
    venv.install("aapkg", {"ns/aa/__init__.py": "A = 1\n"})
    (venv.site / "ns/aa/new.py").write_text("")
    assert (venv.compare("part").added, venv.compare("aapkg").added) == ((), ("ns/aa/new.py",))


def test_a_namespace_is_found_in_those_that_share_it(venv: Venv) -> None:
    venv.install("part", {"ns/bb/__init__.py": "B = 1\n"})
    assert (venv.compare("ns").name, venv.compare("ns").installed is not None) == ("part", True)
    venv.install("aapkg", {"ns/aa/__init__.py": "A = 1\n"})
    found = venv.compare("ns")
    assert found.unknown == "it is a namespace of more than one, name the one that is meant: aapkg 1.0, part 1.0"
    assert not found.absent


def test_a_package_that_was_put_elsewhere_is_reinstalled_there(venv: Venv, short_dir: Path) -> None:
    target = short_dir / "target"
    site, venv.site = venv.site, target
    target.mkdir()
    venv.install("apart", {"apart/__init__.py": "A = 1\n"})
    venv.site = site
    (target / "apart/__init__.py").write_text("A = 2\n")
    ((finding,), _) = packages.examine(
        venv.program, {"PYTHONPATH": str(target)}, ("apart",), str(venv.cache), thorough=False
    )
    assert finding.remedy == (f"{venv.root}/bin/python -m pip install --upgrade --no-deps --target {target} apart==1.0")


def test_a_package_is_found_in_the_wheel_that_brings_it(venv: Venv) -> None:
    shim = venv.site / "engine-2.0.dist-info"
    shim.mkdir()
    (shim / "RECORD").write_text("")
    venv.install("engine-cpu", {"engine/__init__.py": ""})
    assert venv.said("engine") == ["engine-cpu 1.0 as in its wheel"]


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *identity, "-C", directory, *words], check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.strip()


@pytest.fixture
def sources(short_dir: Path) -> Path:
    path = short_dir / "src"
    (path / "edt").mkdir(parents=True)
    (path / "edt/__init__.py").write_text("A = 1\n")
    git(path, "init", "-q")
    git(path, "add", ".")
    git(path, "commit", "-qm", "one")
    return path


def edit_install(venv: Venv, sources: Path) -> None:
    info = venv.site / "edt-1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("__editable__.edt-1.0.pth,,\nedt-1.0.dist-info/RECORD,,\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{sources}", "dir_info": {"editable": True}}))


def test_an_editable_installation_shows_its_working_tree(venv: Venv, sources: Path, short_dir: Path) -> None:
    edit_install(venv, sources)
    head = git(sources, "rev-parse", "--short", "HEAD")
    assert venv.said("edt") == [f"edt 1.0 at {head} in {sources}, nothing changed"]
    trap = short_dir / "ran"
    hook = short_dir / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    git(sources, "config", "core.fsmonitor", str(hook))
    (sources / "edt/__init__.py").write_text("A = 22\n")
    (sources / "dump.py").touch()
    (finding,), _ = packages.examine(venv.program, {}, ("edt",), str(venv.cache), thorough=False)
    assert finding.subject == f"edt 1.0 at {head} in {sources}: 1 changed, 1 untracked"
    assert finding.evidence == ("changed edt/__init__.py", "untracked dump.py")
    assert not trap.exists()
    git(sources, "status")  # the twin: it would have been run
    assert trap.exists()


def test_without_a_repository_an_editable_installation_is_unknown(venv: Venv, sources: Path) -> None:
    edit_install(venv, sources)
    shutil.rmtree(sources / ".git")
    assert venv.compare("edt").unknown == f"imported from {sources}, no git repository"
    assert venv.said("edt") == ["edt 1.0: not compared with its wheel"]


def test_a_repository_that_ignores_the_package_says_nothing_about_it(venv: Venv, sources: Path) -> None:
    (sources / "eng").mkdir()
    (sources / "eng/__init__.py").touch()
    (sources / ".gitignore").write_text("eng/\n")
    git(sources, "add", ".")
    git(sources, "commit", "-qm", "two")
    python, _ = interpreter.find(venv.program, {"PYTHONPATH": str(sources)})
    assert python is not None
    found = packages.compare("eng", python, str(venv.cache), thorough=False)
    assert found.unknown == f"imported from {sources}, which no git repository tracks"


def test_a_directory_that_is_searched_earlier_is_what_is_imported(venv: Venv, sources: Path) -> None:
    (sources / "eng").mkdir()
    (sources / "eng/__init__.py").write_text("VALUE = 2\n")
    env = {"PYTHONPATH": str(sources)}
    asked = [venv.root / "bin/python", "-c", "import eng; print(eng.VALUE)"]
    assert subprocess.run(asked, env=env, capture_output=True, check=True, timeout=30).stdout == b"2\n"
    (finding,), checks = packages.examine(venv.program, env, ("eng",), str(venv.cache), thorough=False)
    assert finding.evidence == ("untracked eng/",)
    assert checks == ()


def test_a_git_that_hangs_is_not_waited_for(
    venv: Venv, sources: Path, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit_install(venv, sources)
    program = short_dir / "bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("supervise.host.git._DEADLINE_S", 0.3)
    began = time.monotonic()
    assert venv.compare("edt").unknown == f"imported from {sources}, git did not answer in 0 s"
    assert time.monotonic() - began < 5
