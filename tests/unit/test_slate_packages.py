"""What is said about a package that was compared."""

from __future__ import annotations

import pytest

from supervise.host.git import GitState
from supervise.model.slate import Finding, Ownership
from supervise.slate import reinstalling
from supervise.slate.packages import Package, check, judge

PYTHON = "/venv/bin/python"
REINSTALL = "/venv/bin/python -m pip install --force-reinstall --no-deps vllm==0.32.0"
WHEEL = {"name": "vllm", "version": "0.32.0", "site": "/site", "installer": "pip"}


def said(**keys: object) -> Finding:
    (finding,) = judge(Package(**{**WHEEL, **keys}), PYTHON)  # type: ignore[arg-type]
    assert finding.action is None
    assert not finding.blocking
    assert finding.ownership is Ownership.UNKNOWN
    assert check(Package(**{**WHEEL, **keys})) == ""  # type: ignore[arg-type]
    return finding


def test_nothing_is_said_when_all_is_as_in_the_wheel() -> None:
    assert list(judge(Package(**WHEEL), PYTHON)) == []
    assert check(Package(**WHEEL)) == "vllm 0.32.0 as in its wheel"
    assert check(Package(**WHEEL, by_size=2)) == "vllm 0.32.0 as in its wheel (2 large files by size)"


def test_differences_are_counted_and_the_first_named() -> None:
    finding = said(modified=("vllm/a.py", "vllm/b.py"), added=("vllm/debug.py",))
    assert finding.subject == "vllm 0.32.0: 2 modified, 1 added, 0 missing"
    assert finding.evidence == ("modified vllm/a.py", "modified vllm/b.py", "added vllm/debug.py")
    assert finding.remedy == f"{REINSTALL}; a reinstallation leaves what was added: rm -- /site/vllm/debug.py"


def test_a_reinstallation_is_not_advised_against_added_files() -> None:
    assert said(added=("vllm/my notes.txt",)).remedy == "rm -- '/site/vllm/my notes.txt'"


def test_many_are_cut_and_counted() -> None:
    finding = said(missing=tuple(f"vllm/{n}.py" for n in range(8)))
    assert finding.evidence[:1] == ("missing vllm/0.py",)
    assert finding.evidence[5:] == ("and 3 more",)
    assert finding.remedy == REINSTALL


@pytest.mark.parametrize(
    ("keys", "remedy"),
    [
        (
            {"installer": "uv"},
            "uv pip install --python /venv/bin/python --no-deps --reinstall-package vllm vllm==0.32.0",
        ),
        (
            {"origin": "https://wheels.vllm.ai/vllm.whl"},
            "/venv/bin/python -m pip install --force-reinstall --no-deps https://wheels.vllm.ai/vllm.whl",
        ),
    ],
)
def test_the_remedy_is_of_whoever_installed_it(keys: dict[str, str], remedy: str) -> None:
    assert said(modified=("vllm/a.py",), **keys).remedy == remedy


@pytest.mark.parametrize(
    ("installer", "place", "remedy"),
    [
        (
            "pip",
            ("--prefix", "/my pfx"),
            f"{PYTHON} -m pip install --ignore-installed --no-deps --prefix '/my pfx' vllm==0.32.0",
        ),
        ("pip", ("--target", "/t"), f"{PYTHON} -m pip install --upgrade --no-deps --target /t vllm==0.32.0"),
        (
            "uv",
            ("--target", "/t"),
            f"uv pip install --python {PYTHON} --no-deps --reinstall-package vllm --target /t vllm==0.32.0",
        ),
        ("pip", None, "install vllm==0.32.0 into /site again, as it was installed there"),
    ],
)
def test_the_copy_that_was_looked_at_is_the_one_that_is_replaced(
    installer: str, place: tuple[str, ...] | None, remedy: str
) -> None:
    assert said(modified=("vllm/a.py",), installer=installer, place=place).remedy == remedy


@pytest.mark.parametrize(
    ("site", "executable", "base", "words"),
    [
        ("/v/lib/python3.11/site-packages", "/v/bin/python", "/v/bin/python", ()),
        ("/v/lib64/python3.13t/site-packages", "/v/bin/python", "/v/bin/python", ()),
        ("/opt/c/lib/python3.11/site-packages", "/usr/local/bin/python", "/opt/c/bin/python3.11", ()),
        ("/usr/local/lib/python3.11/dist-packages", "/usr/bin/python3", "/usr/bin/python3.11", ()),
        # Another prefix, the base of an environment above all.
        ("/p/lib/python3.11/site-packages", "/v/bin/python", "/v/bin/python", ("--prefix", "/p")),
        ("/usr/local/lib/python3.11/dist-packages", "/v/bin/python", "/v/bin/python", None),
        ("/p/lib/python3.11/site-packages", "/usr/bin/python3", "/usr/bin/python3.11", None),
        ("/t", "/v/bin/python", "/v/bin/python", ("--target", "/t")),
        ("/usr/lib/python3/dist-packages", "/usr/bin/python3", "/usr/bin/python3.11", None),
    ],
)
def test_where_an_installer_has_to_be_sent(
    site: str, executable: str, base: str, words: tuple[str, ...] | None
) -> None:
    assert reinstalling.place(site, executable, base, ["vllm"], {"vllm/__init__.py"}) == words


def test_a_namespace_is_not_replaced_as_a_whole() -> None:
    assert reinstalling.place("/t", "/v/bin/python", "/v/bin/python", ["ns"], {"ns/a/__init__.py"}) is None


def test_what_could_not_be_read_is_never_as_in_the_wheel() -> None:
    finding = said(unread=("vllm/a.py",))
    assert finding.subject == "vllm 0.32.0: 0 modified, 0 added, 0 missing, 1 could not be compared"
    assert finding.evidence == ("not compared vllm/a.py",)
    assert said(unknown="its metadata has no RECORD").evidence == ("its metadata has no RECORD",)


def test_an_editable_installation_is_told_by_its_working_tree() -> None:
    clean = Package(**{**WHEEL, "site": "/src"}, checkout=GitState("/src", "1a2b3c4"))  # type: ignore[arg-type]
    assert list(judge(clean, PYTHON)) == []
    assert check(clean) == "vllm 0.32.0 at 1a2b3c4 in /src, nothing changed"
    finding = said(checkout=GitState("/src", "1a2b3c4", ("vllm/a.py",), ("dump.py",)))
    assert finding.subject == "vllm 0.32.0 at 1a2b3c4 in /src: 1 changed, 1 untracked"
    assert finding.evidence == ("changed vllm/a.py", "untracked dump.py")
    assert finding.remedy == "git -C /src status"


def test_names_are_harmless_on_a_terminal() -> None:
    finding = said(added=("vllm/\x1b[2Jx\n.py",))
    assert finding.evidence == ("added vllm/\\x1b[2Jx\\x0a.py",)
    assert "\x1b" not in finding.remedy
