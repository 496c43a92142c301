"""Names of hosts for whoever presses Tab after -H, from what ssh itself reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervise.host import ssh_hosts


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own directory; nothing is known to the machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ssh_hosts, "_CONFIGURED", ssh_hosts._CONFIGURED[:1])
    monkeypatch.setattr(ssh_hosts, "_KNOWN", ssh_hosts._KNOWN[:1])
    monkeypatch.setattr(ssh_hosts, "_LOCAL", str(tmp_path / "hosts"))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh"


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Host gpu1 gpu2", ["gpu1", "gpu2"]),
        ("  host=gpu1 # mine", ["gpu1"]),
        ('HOST "gpu1"\tgpu1', ["gpu1"]),
        ("Host *.lan gpu? !gpu3 gpu4", ["gpu4"]),
        ("HostName gpu1\n#Host gpu2\nMatch host gpu3", []),
        ("Host $(id) -v a;b `x` 'a b' \x1b[m", []),
        ('Host "gpu1', []),
        ("Host", []),
        ("Include nowhere\nHost gpu1", ["gpu1"]),
        ("Host gpu1\r\n", ["gpu1"]),
    ],
)
def test_a_configuration(told: Path, line: str, names: list[str]) -> None:
    (told / "config").write_text(line)
    assert ssh_hosts.names() == names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("gpu1,10.0.0.7 ssh-ed25519 AAAA", ["gpu1", "10.0.0.7"]),
        ("|1|c2FsdA==|aGFzaA== ssh-ed25519 AAAA", []),
        ("[gpu1]:2222 ssh-ed25519 AAAA", ["gpu1"]),
        ("@cert-authority gpu1,*.lan ssh-ed25519 AAAA", ["gpu1"]),
        ("@revoked gpu1 ssh-ed25519 AAAA", []),
        ("@revoked", []),
        ("fe80::1%eth0 ssh-ed25519 AAAA", ["fe80::1%eth0"]),
    ],
)
def test_hosts_that_were_visited(told: Path, line: str, names: list[str]) -> None:
    (told / "known_hosts").write_text(f"# hosts\n\n{line}\n")
    assert ssh_hosts.names() == names


def test_what_is_included(told: Path) -> None:
    (told / "config.d").mkdir()
    (told / "config").write_text(f"Include config.d/* {told}/absolute\nInclude ~/.ssh/home\nHost last")
    for name in ("config.d/b", "config.d/a", "absolute", "home"):
        (told / name).write_text(f"Host of-{name.replace('/', '-')}\nInclude config")
    assert ssh_hosts.names() == ["of-config.d-a", "of-config.d-b", "of-absolute", "of-home", "last"]


def test_it_ends_somewhere(told: Path) -> None:
    """However deep, however many, and whatever it is that is included."""
    for number in range(30):
        (told / f"deep{number}").write_text(f"Host deep{number}\nInclude deep{number + 1}")
    (told / "many").mkdir()
    for number in range(300):
        (told / f"many/{number:03}").write_text(f"Host many{number:03}")
    (told / "large").write_text("Host large\n" + "#" * 1024 * 1024)
    (told / "config").write_text("Include /dev/zero . large deep0 many/*\nHost last")
    found = ssh_hosts.names()
    assert ("deep15" in found, "deep16" in found) == (True, False)
    assert ("many000" in found, "many299" in found) == (True, False)
    assert "large" not in found
    assert found[-1] == "last"


def test_what_is_local_comes_last(told: Path) -> None:
    (told.parent / "hosts").write_text("127.0.0.1 localhost # me\n10.0.0.7 gpu7 gpu1\n")
    (told / "known_hosts").write_text("gpu1 ssh-ed25519 AAAA\n")
    assert ssh_hosts.names() == ["gpu1", "localhost", "gpu7"]
