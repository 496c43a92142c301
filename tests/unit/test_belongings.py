"""Whose a file is that no RECORD lists, and which are ours to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervise.host import distribution
from supervise.host.belongings import Belongings, Whose

OURS = ("ns/bb/__init__.py", "ns/bb/run.py", "eng/__init__.py", "eng/deep/er/x.py", "../../../bin/eng", "/etc/eng.conf")


def install(site: Path, name: str, *paths: str, record: bool = True, tops: str = "") -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    if record:
        (info / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in paths))
    if tops:
        (info / "top_level.txt").write_text(tops)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    site = tmp_path / "v/lib/python3.12/site-packages"
    install(site, "demo", *OURS)
    return site


def belongings(site: Path) -> Belongings:
    (installed,) = (each for each in distribution.installed(str(site)) if each.name == "demo")
    return Belongings(installed, installed.record())


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("eng/__init__.py", ""),
        ("../../../bin/eng", ""),
        ("eng/new.py", ""),
        ("eng/deep/new.py", ""),
        ("ns/bb/new.py", ""),
        ("ns/aa/__init__.py", ""),
        # Outside.
        ("/etc/eng.conf", "it is outside of the package"),
        ("../../../bin/other", "it is outside of the package"),
        ("../victim.py", "it is outside of the package"),
        ("other/x.py", "it is outside of the package"),
        ("demo-1.0.dist-info/x.py", "it is outside of the package"),
        ("eng/../other/x.py", "it is outside of the package"),
    ],
)
def test_alone_in_a_site(site: Path, path: str, why: str) -> None:
    assert belongings(site).keeps_from(path) == why


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("ns/bb/new.py", ""),
        ("ns/aa/__init__.py", "it is a file of aapkg"),
        ("ns/aa/new.py", "it may be a file of aapkg"),
        ("ns/cc/new.py", "it may be a file of aapkg"),
        ("eng/plugin/x.py", "it is a file of aapkg"),
        ("eng/plugin/deep/new.py", "it may be a file of aapkg"),
        ("eng/new.py", ""),
    ],
)
def test_beside_another_distribution(site: Path, path: str, why: str) -> None:
    install(site, "aapkg", "ns/aa/__init__.py", "eng/plugin/x.py")
    assert belongings(site).keeps_from(path) == why


@pytest.mark.parametrize(
    ("tops", "ours", "unknown"),
    [
        ("ns\n", ["eng/new.py"], ["ns/aa/__init__.py", "ns/bb/new.py"]),
        ("", ["eng/new.py", "ns/bb/new.py"], ["ns/aa/__init__.py", "ns/new.py"]),
        ("other\n", ["eng/new.py", "ns/bb/new.py", "ns/aa/__init__.py"], []),
    ],
)
def test_a_neighbour_without_a_record_may_own_what_it_names(
    site: Path, tops: str, ours: list[str], unknown: list[str]
) -> None:
    install(site, "aapkg", record=False, tops=tops)
    known = belongings(site)
    assert [known.whose(path) for path in ours] == [(Whose.OURS, "")] * len(ours)
    assert [known.whose(path) for path in unknown] == [(Whose.UNKNOWN, "aapkg")] * len(unknown)


def test_a_wheel_that_was_put_elsewhere_has_nothing_above_it(tmp_path: Path) -> None:
    install(tmp_path / "t", "demo", *OURS)
    assert belongings(tmp_path / "t").keeps_from("../../../bin/eng") == "it is outside of the package"
