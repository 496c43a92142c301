"""What a server is told of a user without a name, and of credentials: paths, never what is in them."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from supervise.model.process import Marker
from supervise.runner.launch import environment

MARKER = Marker("X", 1, "0" * 32)


def _environment(base: dict[str, str]) -> dict[str, str]:
    return environment(base, MARKER, {"CACHE": "{tmp}/{user}"}, None)


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    (tmp_path / "HF_TOKEN").write_text("hf_secret")
    (tmp_path / "VLLM_API_KEY").write_text("sk-secret")
    return tmp_path


class TestCredentials:
    def test_the_token_of_the_hub_is_named_by_its_path(self, credentials: Path) -> None:
        env = _environment({"CREDENTIALS_DIRECTORY": str(credentials)})
        assert env["HF_TOKEN_PATH"] == str(credentials / "HF_TOKEN")
        assert not [value for value in env.values() if "secret" in value]
        assert "VLLM_API_KEY" not in env

    @pytest.mark.parametrize("name", ["HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN"])
    def test_what_the_user_has_set_stays(self, name: str, credentials: Path) -> None:
        env = _environment({"CREDENTIALS_DIRECTORY": str(credentials), name: "mine"})
        assert env[name] == "mine"
        assert env.get("HF_TOKEN_PATH", "mine") == "mine"

    def test_in_small_letters(self, credentials: Path) -> None:
        (credentials / "HF_TOKEN").rename(credentials / "hf_token")
        assert _environment({"CREDENTIALS_DIRECTORY": str(credentials)})["HF_TOKEN_PATH"].endswith("/hf_token")

    def test_without_one(self, credentials: Path) -> None:
        (credentials / "HF_TOKEN").unlink()
        (credentials / "HF_TOKEN").mkdir()
        assert "HF_TOKEN_PATH" not in _environment({"CREDENTIALS_DIRECTORY": str(credentials)})
        assert "HF_TOKEN_PATH" not in _environment({})


class TestName:
    def test_of_a_uid_that_has_none_is_its_number(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown() -> str:
            raise KeyError("getpwuid(): uid not found: 1000650000")

        monkeypatch.setattr(getpass, "getuser", unknown)
        env = _environment({"TMPDIR": "/t"})
        assert env["USER"] == str(os.geteuid())
        assert env["CACHE"] == f"/t/{os.geteuid()}"

    def test_of_one_that_has_is_nobodys_business(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(getpass, "getuser", lambda: "jane")
        env = _environment({"TMPDIR": "/t"})
        assert "USER" not in env
        assert env["CACHE"] == "/t/jane"
