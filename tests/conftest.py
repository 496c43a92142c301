from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import launcher, leaks, readable
from tests.support.family import Family
from tests.support.launcher import NOBODY, Supervise
from tests.support.session import Session

leaks.become_reaper()


def pytest_collection_finish() -> None:
    """Thousands of collected tests live to the end: the garbage collector need not look at them time and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() != 0:
        for item in items:
            if item.get_closest_marker("root"):
                item.add_marker(pytest.mark.skip(reason="needs uid 0"))


@pytest.fixture(scope="session", autouse=True)
def _private_tmp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A temporary directory that nobody else writes to, so that whatever is left there was left by a test."""
    tmp_path_factory.getbasetemp()  # stays where people look for it after a failure
    with tempfile.TemporaryDirectory(prefix="sv") as private, pytest.MonkeyPatch.context() as patch:
        os.chmod(private, 0o755)  # other users run some tests
        patch.setenv("TMPDIR", private)
        patch.setattr(tempfile, "tempdir", private)
        yield


@pytest.fixture(scope="session", autouse=True)
def _shared_copies(_private_tmp: None) -> Iterator[None]:
    yield
    readable.release_shared()


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing that a test starts may outlive it."""
    with leaks.no_leaks():
        yield


@pytest.fixture
def short_dir(_no_leaks: None) -> Iterator[Path]:
    """A directory with a path short enough for sockets in it (108 bytes, unix(7))."""
    path = Path(tempfile.mkdtemp(prefix="sv-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def supervise(short_dir: Path) -> Iterator[Supervise]:
    """The command line, with directories of its own."""
    launched = Supervise(short_dir)
    yield launched
    launched.close()


@pytest.fixture
def screen(supervise: Supervise) -> Iterator[Session]:
    """A terminal for it."""
    made = Session(supervise)
    yield made
    made.close()


@pytest.fixture
def supervise_as_nobody(short_dir: Path) -> Iterator[Supervise]:
    """The same as an ordinary user; only root can become one, so the test needs the mark `root`."""
    launched = Supervise(short_dir, uid=NOBODY)
    yield launched
    launched.close()


@pytest.fixture(params=["ourselves", pytest.param("nobody", marks=pytest.mark.root)])
def user(request: pytest.FixtureRequest) -> Supervise:
    """The command line, once as who we are and once as an ordinary user."""
    name = "supervise" if request.param == "ourselves" else "supervise_as_nobody"
    found = request.getfixturevalue(name)
    assert isinstance(found, Supervise)
    return found


@pytest.fixture
def family(short_dir: Path) -> Iterator[Family]:
    """Where a program under test tells its pids; whatever is left of it is ended at tear-down."""
    told = Family(short_dir / "pids")
    yield told
    told.kill()


@pytest.fixture
def port() -> int:
    return launcher.free_port()
