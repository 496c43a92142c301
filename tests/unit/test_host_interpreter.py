"""Which Python a command line runs in, from files alone: nothing in these tables can be executed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervise.host import interpreter


def put(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def site(prefix: Path, version: str = "3.11", library: str = "lib", name: str = "site-packages") -> str:
    path = prefix / library / f"python{version}" / name
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """An installation with two versions of Python."""
    prefix = tmp_path / "base"
    for version in ("3.11", "3.12"):
        put(prefix / f"bin/python{version}", "\x7fELF")
        put(prefix / f"lib/python{version}/os.py")
        site(prefix, version)
    (prefix / "bin/python3").symlink_to("python3.11")
    return prefix


@pytest.fixture
def venv(tmp_path: Path, base: Path) -> Path:
    return make_venv(tmp_path / "venv", base)


def make_venv(prefix: Path, base: Path, version: str = "3.12", shared: str = "false") -> Path:
    put(
        prefix / "pyvenv.cfg",
        f"home = {base}/bin\ninclude-system-site-packages = {shared}\nversion = {version}.1\n",
    )
    (prefix / "bin").mkdir()
    (prefix / "bin/python").symlink_to(base / f"bin/python{version}")
    (prefix / "bin/python3").symlink_to("python")
    (prefix / "lib64").symlink_to("lib")
    site(prefix, version)
    return prefix


def found(*program: str, cwd: Path | None = None, **env: str) -> tuple[str, tuple[str, ...]]:
    python, why = interpreter.find(program, {"PATH": "/nowhere", **env}, cwd=str(cwd) if cwd else "/")
    assert python is not None, why
    return python.executable, python.site


def why_not(*program: str, before: tuple[str, ...] = (), **env: str) -> str:
    python, why = interpreter.find(program, env, before=before, cwd="/")
    assert python is None
    return why


LONG = """#!/bin/sh
'''exec' {python} "$0" "$@"
' '''
import sys
"""


@pytest.mark.parametrize(
    "text",
    [
        "#!{venv}/bin/python\n",
        "#! {venv}/bin/python -sE\n",
        "#!/usr/bin/env python3\n",
        "#!/usr/bin/env -S python3 -u\n",
        LONG.replace("{python}", '"{venv}/bin/python"'),
        LONG.replace("{python}", "{venv}/bin/python"),
        LONG.replace("{python}", "'{venv}/bin/python'").replace('"$@"', '"$@" #'),
        LONG.replace("{python}", """"$(dirname -- "$(realpath -- "$0")")"/'python'"""),
    ],
)
def test_a_console_script_names_its_interpreter(venv: Path, text: str) -> None:
    script = put(venv / "bin/vllm", text.replace("{venv}", str(venv)))
    executable, packages = found(str(script), "serve", PATH=f"/nowhere:{venv}/bin")
    assert Path(executable).parent == venv / "bin"
    assert packages == (str(venv / "lib/python3.12/site-packages"),)


def test_it_is_found_in_the_path_of_the_server(venv: Path, base: Path) -> None:
    put(base / "bin/vllm", f"#!{base}/bin/python3.11\n")
    put(venv / "bin/vllm", f"#!{venv}/bin/python\n")
    assert found("vllm", PATH=f"{venv}/bin:{base}/bin")[0] == str(venv / "bin/python")
    assert found("vllm", PATH=f"{base}/bin:{venv}/bin")[0] == str(base / "bin/python3.11")


def test_a_script_behind_a_link_runs_in_the_python_that_it_names(tmp_path: Path, venv: Path) -> None:
    script = put(venv / "bin/vllm", f"#!{venv}/bin/python\n")
    (tmp_path / "vllm").symlink_to(script)
    assert found(str(tmp_path / "vllm"))[0] == str(venv / "bin/python")


def test_python_itself(venv: Path, base: Path) -> None:
    assert found(f"{venv}/bin/python3", "serve.py") == (
        f"{venv}/bin/python3",
        (str(venv / "lib/python3.12/site-packages"),),
    )
    assert found(f"{base}/bin/python3", "serve.py")[1] == (str(base / "lib/python3.11/site-packages"),)
    assert found(f"{base}/bin/python3.12", "serve.py")[1] == (str(base / "lib/python3.12/site-packages"),)


def test_the_order_is_that_of_python(tmp_path: Path, base: Path) -> None:
    venv = make_venv(tmp_path / "shared", base, shared="true")
    own, system = site(venv, "3.12"), site(base, "3.12")
    user = site(tmp_path / "home/.local", "3.12")
    extra, here = tmp_path / "extra", tmp_path / "here"
    extra.mkdir()
    here.mkdir()
    env = {"HOME": str(tmp_path / "home"), "PYTHONPATH": f"{extra}:/nowhere"}
    python = str(venv / "bin/python")
    assert found(python, "-m", "vllm", cwd=here, **env)[1] == (str(here), str(extra), own, user, system)
    assert found(python, "serve.py", cwd=here, **env)[1] == (str(extra), own, user, system)
    assert found(python, "-sP", "-m", "vllm", cwd=here, **env)[1] == (str(extra), own, system)
    assert found(python, "-W", "error", "-E", "-m", "vllm", cwd=here, **env)[1] == (str(here), own, user, system)
    assert found(python, "-I", "-m", "vllm", cwd=here, **env)[1] == (own, system)
    assert found(python, "serve.py", cwd=here, PYTHONNOUSERSITE="1", HOME=env["HOME"])[1] == (own, system)


def test_an_environment_of_its_own_does_not_see_the_users_packages(tmp_path: Path, venv: Path) -> None:
    site(tmp_path / "home/.local", "3.12")
    packages = found(f"{venv}/bin/python", "x.py", HOME=str(tmp_path / "home"))[1]
    assert packages == (str(venv / "lib/python3.12/site-packages"),)


def test_debian_keeps_its_packages_elsewhere(tmp_path: Path) -> None:
    prefix = tmp_path / "usr"
    put(prefix / "bin/python3.11", "\x7fELF")
    put(prefix / "lib/python3.11/os.py")
    (prefix / "lib/python3/dist-packages").mkdir(parents=True)
    local = site(prefix / "local", name="dist-packages")
    site(prefix / "local")  # of another Python in /usr/local: not seen by this one
    packages = found(f"{prefix}/bin/python3.11", "x.py", HOME="/nowhere")[1]
    assert packages == (local, str(prefix / "lib/python3/dist-packages"))


def test_what_is_not_known_is_said(tmp_path: Path, venv: Path, base: Path) -> None:
    assert why_not() == "no command"
    assert why_not("vllm", PATH=str(tmp_path)) == "vllm is not found"
    shim = put(tmp_path / "shims/python3", '#!/usr/bin/env bash\nexec pyenv exec "$@"\n')
    assert why_not(str(shim), "-m", "vllm", PATH="/usr/bin:/bin") == f"{shim} is a shell script"
    program = put(tmp_path / "server", "\x7fELF")
    assert why_not(str(program)) == f"{program} is not a Python script"
    stale = put(tmp_path / "stale", "#!/nowhere/bin/python\n")
    assert why_not(str(stale)) == f"{stale}: its interpreter /nowhere/bin/python is not found"
    loop = tmp_path / "loop"
    put(loop, f"#!{loop}\n")
    assert why_not(str(loop)) == f"{loop}: scripts without end"
    bare = put(tmp_path / "bare/bin/python3", "\x7fELF")
    assert why_not(str(bare)) == f"the libraries of {bare} are not found"


def test_a_wrapper_that_chooses_the_environment_is_not_second_guessed(venv: Path) -> None:
    put(venv / "bin/vllm", f"#!{venv}/bin/python\n")
    assert why_not("vllm", before=("uv", "run"), PATH=f"{venv}/bin") == "uv chooses the Python"
    python, _ = interpreter.find((f"{venv}/bin/vllm",), {}, before=("uv", "run"))
    assert python is not None
    python, _ = interpreter.find(("vllm",), {"PATH": f"{venv}/bin"}, before=("numactl", "-N", "0"))
    assert python is not None


def test_of_several_versions_only_a_named_one_is_taken(tmp_path: Path, base: Path) -> None:
    (base / "bin/python3").unlink()
    unnamed = put(base / "bin/python3", "\x7fELF")
    assert why_not(str(unnamed)) == f"the libraries of {unnamed} are not found"


@pytest.mark.parametrize(
    ("options", "letters"), [(["-uB"], "uB"), (["-u", "-s", "-E", "-B"], "usEB"), (["-Xpycache_prefix=/x"], "X")]
)
def test_options_are_told_joined_or_not(options: list[str], letters: str) -> None:
    found, why = interpreter.find([sys.executable, *options, "-m", "x"], {})
    assert found is not None, why
    assert found.options == {*letters, "m"}


def test_options_are_told_of_the_head_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "vllm").write_text(f"#!{sys.executable} -sB\n")
    (tmp_path / "vllm").chmod(0o755)
    found, why = interpreter.find([str(tmp_path / "vllm"), "serve"], {})
    assert found is not None, why
    assert found.options == {"s", "B"}
