"""What an attempt was launched with, read from its record: secrets are asked for, nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest

from supervise.runner.circumstances import own_words
from supervise.text import redact, settings
from supervise.verbs.recorded_command import option, recorded


def record(argv: list[str], env: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """As an attempt writes it."""
    return {
        "argv": redact(argv),
        "options": [],
        "environment": settings(env or {}),
        "cwd": "/w",
        "profile": "vllm",
        "began": 5.0,
        **more,
    }


def test_what_was_no_secret_comes_back_as_it_was() -> None:
    argv = ["vllm", "serve", "M", "--max-num-seqs", "8", "--tokenizer", "t"]
    said = recorded(record(argv, {"VLLM_X": "1", "PATH": "/bin"}), {"VLLM_Y": "2", "VLLM_X": "3", "PATH": "/bin"})
    assert list(said.argv) == argv
    assert said.environment == {"VLLM_X": "1", "VLLM_Y": None}
    assert (said.own, said.cwd, said.began, said.lacking, said.unknown) == ((), "/w", 5.0, (), ())


@pytest.mark.parametrize("flag", [["--api-key", "s3"], ["--api-key=s3"], ["--api_key", "s3"], ["--api-key", "a", "b"]])
def test_a_secret_flag_is_left_to_its_variable(flag: list[str]) -> None:
    argv = ["vllm", "serve", "M", *flag, "--port", "1"]
    (lack,) = recorded(record(argv), {}).lacking
    assert lack.endswith("was a secret and is not recorded: set VLLM_API_KEY to it, then again")
    said = recorded(record(argv), {"VLLM_API_KEY": "s3"})
    assert said.lacking == ()
    assert list(said.argv) == ["vllm", "serve", "M", "--port", "1"]
    assert "VLLM_API_KEY" not in said.environment


def test_a_secret_flag_without_a_variable_is_named() -> None:
    argv = ["x", "--ssl-keyfile-password", "p", "--port", "1"]
    assert recorded(record(argv, profile="sglang"), {"VLLM_API_KEY": "s"}).lacking == (
        "--ssl-keyfile-password was a secret and is not recorded: launch it by hand with that flag",
    )


def test_a_password_in_a_url_is_asked_for() -> None:
    said = record(["vllm", "serve", "--url", "redis://ann:s3cret@host"], {"HF_ENDPOINT": "https://ann:s3cret@host"})
    assert "s3cret" not in str(said)
    assert recorded(said, {}).lacking == (
        "word 4 of its command line had a password and is not recorded: launch it by hand",
        "1 secret of its environment not recorded: set HF_ENDPOINT",
    )
    assert "HF_ENDPOINT" not in recorded(said, {"HF_ENDPOINT": "https://ann:s3cret@host"}).environment


def test_a_secret_assignment_is_taken_from_the_environment() -> None:
    said = record(["env", "HF_TOKEN=t", "vllm", "serve"])
    assert recorded(said, {}).lacking == (
        "HF_TOKEN was a secret of its command line and is not recorded: set it, then again",
    )
    assert list(recorded(said, {"HF_TOKEN": "t2"}).argv) == ["env", "HF_TOKEN=t2", "vllm", "serve"]


def test_a_secret_variable_is_the_one_of_now() -> None:
    said = record(["vllm"], {"HF_TOKEN": "then", "VLLM_API_KEY": "then"})
    (lack,) = recorded(said, {"HF_TOKEN": "now"}).lacking
    assert lack == "1 secret of its environment not recorded: set VLLM_API_KEY"
    both = recorded(said, {"HF_TOKEN": "now", "VLLM_API_KEY": "now"})
    assert both.lacking == ()
    assert both.environment == {}
    # It was not set then: it is not set now either.
    assert recorded(record(["vllm"]), {"VLLM_API_KEY": "now"}).environment == {"VLLM_API_KEY": None}


@pytest.mark.parametrize(
    "broken",
    [None, {}, {"argv": "vllm"}, {"argv": []}, {"argv": ["vllm", 3]}],
)
def test_without_a_command_line_there_is_nothing_to_launch(broken: dict[str, Any] | None) -> None:
    assert recorded(broken, {}).lacking == ("its command line is not known: attempt.json is missing or damaged",)


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        ({"environment": {"VLLM_X": 3}}, "its environment"),
        ({"environment": None}, "its environment"),
        ({"cwd": None}, "the directory it was started in"),
        ({"options": None}, "its options of supervise; those of now are the defaults"),
        ({"options": ["try", "--probe", "x"]}, "its options of supervise: it was an attempt of supervise try"),
    ],
)
def test_what_is_damaged_is_unknown(more: dict[str, Any], phrase: str) -> None:
    assert recorded(record(["vllm"], **more), {}).unknown == (phrase,)


def test_our_own_options_are_what_stood_before_the_command() -> None:
    command = ["vllm", "serve", "M", "--port", "1"]
    assert own_words(["supervise", *command], command) == []
    assert own_words(["supervise", "run", "--tty", *command], command) == ["run", "--tty"]
    assert own_words(["supervise", "--tty"], command) is None
    assert own_words(["/usr/bin/pytest"], command) is None
    assert own_words(command, command) is None
    assert recorded(record(command, options=["run", "--tty"]), {}).own == ("--tty",)
    assert recorded(record(command, options=["--replace", "-d"]), {}).own == ("-d",)
    own = ["--watch", "/a", "--watch=/b", "--name", "--watch"]
    assert option(own, "--watch") == ("/a", "/b")
