"""The fixtures: vLLM in its cached environment, a server of its own for each test, and a systemd for all of them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import install_vllm, models, vllm_copy
from tests.real.server import RealVllm, Server
from tests.support import launcher
from tests.support.launcher import Supervise
from tests.support.readable import readable_copy, readable_site
from tests.support.sdbox import Box, refusal


@pytest.fixture(scope="module")
def venv() -> Path:
    """The cached environment of vLLM, made if this machine has none yet; nobody changes anything in it."""
    return install_vllm.install()


@pytest.fixture
def copied(venv: Path, tmp_path: Path) -> Iterator[Path]:
    """An environment with a vLLM that a test may change."""
    root = tmp_path / "venv"
    yield vllm_copy.make(venv, root)
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def real_vllm(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> RealVllm:
    """vLLM in its cached environment, and models for it."""
    made = tmp_path_factory.mktemp("models")
    models.make(venv / "bin/python", made)
    caches = install_vllm.cache() / "engine"
    return RealVllm(
        program=venv / "bin/vllm",
        models=made,
        environment={
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CACHE_ROOT": str(caches / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        },
    )


@pytest.fixture
def server(real_vllm: RealVllm, supervise: Supervise) -> Server:
    """A server of its own for one test, not started yet."""
    return Server(real_vllm, supervise, launcher.free_port())


@pytest.fixture(scope="session")
def box(_shared_copies: None) -> Iterator[Box]:
    """A systemd that sees our temporary directory and our dependencies, and in which USER has a service manager."""
    if why := refusal():
        pytest.skip(f"no systemd in a box: {why}")
    readable_copy()
    with Box({tempfile.gettempdir(), *readable_site().split(os.pathsep)}) as running:
        running.add_user()
        yield running
