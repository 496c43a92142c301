"""`supervise unit`: how words are written for systemd, and what a unit says and never says."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from supervise.report.unitfile import UnitFile, render
from supervise.report.unitwords import WIDTH, UnwritableError, is_reference, line, path, word
from supervise.verbs.unit import ourselves
from tests.support.launcher import Supervise

UNIT = UnitFile(
    run="vllm-8000",
    user=False,
    account="llm",
    supervise=("/opt/100%/supervise",),
    options=("--name", "vllm-8000"),
    command=("/opt/vllm", "serve", "a $MODEL", "--api-key", "${KEY}"),
    secret=frozenset({4}),
    directory="/srv/100% mine",
    env={"HF_HOME": "/models/${x}", "PATH": "/bin"},
    withheld=("HF_TOKEN",),
    slate_s=100.0,
    stop_s=53.2,
    relaunches=False,
)


class TestWords:
    @pytest.mark.parametrize(
        ("text", "written"),
        [
            ("--port=8000", "--port=8000"),
            ("", '""'),
            ("100%", "100%%"),
            ("$HOME", "$$HOME"),
            ("${HOME}", '"$${HOME}"'),
            ("a b", '"a b"'),
            ('{"a": 1}', r'"{\"a\": 1}"'),
            ("it's", '"it\'s"'),
            ("C:\\x", r'"C:\\x"'),
            ("a\nb\tc\x01", r'"a\nb\tc\x01"'),
            (";", '";"'),
            ("#no comment", '"#no comment"'),
            ("größe", '"größe"'),
        ],
    )
    def test_of_a_command(self, text: str, written: str) -> None:
        assert word(text) == written

    def test_of_the_environment_have_no_variables(self) -> None:
        assert word("A=$HOME 5%", expanded=False) == '"A=$HOME 5%%"'

    @pytest.mark.parametrize("text", ["a\0b", "\udcff"])
    def test_that_cannot_be_written(self, text: str) -> None:
        with pytest.raises(UnwritableError):
            word(text)

    @pytest.mark.parametrize("text", ["/a\\", "/a ", "/a\nb"])
    def test_paths_that_cannot_be_written(self, text: str) -> None:
        with pytest.raises(UnwritableError):
            path(text)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("${A}", True), ("--api-key=${A_1}", True), ("$A", False), ("x${A}", False), ("${A} b", False), ("", False)],
    )
    def test_references(self, text: str, expected: bool) -> None:
        assert is_reference(text) is expected

    def test_long_commands_are_continued_and_no_word_is_broken(self) -> None:
        words = [word(f"--option-{number}={'x ' * 20}") for number in range(20)]
        lines = line(words).split(" \\\n")
        assert len(lines) > 5
        assert [each for text in lines for each in text.split('" ')] != []
        assert " ".join(text.strip() for text in lines) == " ".join(words)
        assert all(len(text) <= WIDTH + 4 for text in lines)


class TestText:
    def test_what_is_decisive(self) -> None:
        text = render(UNIT).splitlines()
        for setting in (
            "Type=notify",
            "NotifyAccess=main",
            "KillMode=mixed",
            "Delegate=yes",
            "OOMPolicy=continue",
            "Restart=on-failure",
            "RestartPreventExitStatus=2 93 94 95 96 126 127",
            "User=llm",
            "WorkingDirectory=/srv/100%% mine",
            "TimeoutStartSec=114",
            "TimeoutStopSec=160",
            'Environment="HF_HOME=/models/${x}"',
            "EnvironmentFile=/etc/supervise/vllm-8000.env",
            r"""ExecStart=/opt/100%%/supervise run --name vllm-8000 -- /opt/vllm serve "a $$MODEL" --api-key ${KEY}""",
            "ExecStopPost=-/opt/100%%/supervise clean --evict own --name vllm-8000",
            "WantedBy=multi-user.target",
        ):
            assert setting in text, setting

    def test_every_setting_of_the_service_has_a_reason(self) -> None:
        text = render(UNIT)
        blocks = text[text.index("[Service]") : text.index("[Install]")].split("\n\n")[1:]
        told = [block for block in blocks if block.strip() and not block.startswith("ExecStart=")]
        assert all(block.startswith("# ") for block in told), told

    def test_a_user_has_no_account_and_no_state_of_the_system(self) -> None:
        text = render(UNIT._replace(user=True, secret=frozenset(), command=("/opt/vllm",)))
        assert "\nUser=" not in text
        assert "StateDirectory=" not in text
        assert "network-online" not in text
        assert "EnvironmentFile=-%h/.config/supervise/vllm-8000.env" in text
        assert "WantedBy=default.target" in text

    def test_withheld_names_are_told(self) -> None:
        assert "Not copied from here: HF_TOKEN." in render(UNIT).replace("\n# ", " ")


class TestOurselves:
    def test_the_script(self, tmp_path: Path) -> None:
        script = tmp_path / "supervise"
        script.touch(0o755)
        assert ourselves([str(script), "unit"], ["python", str(script), "unit"], "/py") == (str(script),)

    def test_the_module(self) -> None:
        argv = ["/site/supervise/__main__.py", "unit", "x"]
        assert ourselves(argv, ["py", "-P", "-m", "supervise", "unit", "x"], "/py") == ("/py", "-P", "-m", "supervise")


class TestCommandLine:
    def test_options_are_written_as_they_were_given(self, supervise: Supervise) -> None:
        told = supervise.run("unit", "--grace", "7.50", "--user", "--keep=3", "--", "sh", "--user", "-c", "exit 0")
        assert told.popen.returncode == 0, told.stderr
        assert "run --name run-sh --grace 7.50 --keep=3 -- " in told.stdout.replace("\\\n    ", "").replace(
            f"--name {_name(told.stdout)}", "--name run-sh"
        )
        assert '/sh --user -c "exit 0"' in told.stdout.replace("\\\n    ", "")
        assert "WantedBy=default.target" in told.stdout

    def test_nothing_is_launched(self, supervise: Supervise) -> None:
        supervise.run("unit", "touch", str(supervise.base / "launched"))
        assert not (supervise.base / "launched").exists()
        assert supervise.runs() == []

    def test_secrets_are_refused_or_referred_to(self, supervise: Supervise) -> None:
        told = supervise.run("unit", "--name", "x", "sh", "--api-key", "sk-abc")
        assert told.popen.returncode == 2
        assert "--api-key has a secret" in told.stderr
        assert "/etc/supervise/x.env" in told.stderr
        assert "sk-abc" not in told.stderr + told.stdout

        told = supervise.run("unit", "--name", "x", "sh", "--api-key", "${KEY}", "-c", "$KEY")
        assert "--api-key ${KEY} -c $$KEY" in told.stdout.replace("\\\n    ", "")

    def test_secrets_of_the_environment_are_withheld(self, supervise: Supervise) -> None:
        env = {"HF_TOKEN": "hf_abc", "HTTPS_PROXY": "http://me:hush@proxy", "HF_HOME": "/hf", "VLLM_X": "a\nb"}
        told = supervise.run("unit", "sh", env=env)
        assert told.popen.returncode == 0, told.stderr
        assert "hf_abc" not in told.stdout
        assert "hush" not in told.stdout
        assert "Not copied from here: HF_TOKEN, HTTPS_PROXY." in told.stdout.replace("\n# ", " ")
        assert "\nEnvironment=HF_HOME=/hf\n" in told.stdout
        assert "VLLM_X" not in told.stdout

    @pytest.mark.parametrize(
        ("words", "status", "said"),
        [
            (("no-such-program",), 127, "command not found"),
            (("--restart", "perhaps", "sh"), 2, "--restart"),
            (("--scope", "sh"), 2, "Delegate=yes"),
            ((), 2, "COMMAND"),
        ],
    )
    def test_refusals(self, supervise: Supervise, words: tuple[str, ...], status: int, said: str) -> None:
        told = supervise.run("unit", *words)
        assert told.popen.returncode == status
        assert said in told.stderr
        assert told.stdout == ""


def _name(text: str) -> str:
    (described,) = [each for each in text.splitlines() if each.startswith("Description=")]
    return described.removeprefix("Description=").partition(":")[0]


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["--model", "https://u:pw@h/x"], "--model has a secret"),
        (["--speculative-config", '{"token": "hf_abcdefghijkl"}'], "--speculative-config has a secret"),
        (["--max-num-batched-tokens", "8192", "--tokenizer", "T"], None),
        (["--model", "/root/models/x"], None),
    ],
)
def test_secrets_in_any_word_are_refused(supervise: Supervise, words: list[str], refused: str | None) -> None:
    told = supervise.run("unit", "--name", "x", "sh", *words)
    assert told.popen.returncode == (2 if refused else 0), told.stderr
    assert refused is None or refused in told.stderr


def test_each_account_has_a_state_directory_of_its_own(supervise: Supervise) -> None:
    told = supervise.run("unit", "--name", "x", "sh").stdout
    account = pwd.getpwuid(os.geteuid()).pw_name
    assert f"\nUser={account}\n" in told
    assert f"\nStateDirectory=supervise-{account}\n" in told
