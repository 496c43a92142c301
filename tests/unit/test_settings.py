"""The user's settings: what they may say, and the one line that says what is wrong with them."""

import os

import pytest

from supervise.model.evict import Evict
from supervise.profiles.errors import ProfileError
from supervise.profiles.settings import Settings, load_settings, parse_settings, settings_path

ENV = {"HOME": "/home/ada", "TMPDIR": "/scratch", "USER": "ada"}


def test_all_keys():
    text = b"""
artefacts = ["{tmp}/*_debug_*.pt", "~/dumps/*.pt", "${DUMPS}/*.pt", "${OTHER:-/srv/{user}}/*.pt"]
protected = ['^my-server\\b', 'router']
evict = "own"
"""
    settings = parse_settings(text, "config.toml", ENV)
    assert settings.artefacts == ("/scratch/*_debug_*.pt", "/home/ada/dumps/*.pt", "/srv/ada/*.pt")
    assert [bool(p.search("a router")) for p in settings.protected] == [False, True]
    assert settings.evict is Evict.OWN


def test_an_empty_file_says_nothing():
    assert parse_settings(b"", "config.toml", ENV) == Settings()


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ('evict = "engines"', "evict", "own, stale here, --evict engines at a launch"),
        ('evict = "all"', "evict", "no standing order may end living servers"),
        ('evict = "everything"', "evict", "own, stale, engines, all"),
        ("evict = true", "evict", "a string"),
        ('artefacts = "/tmp/x_*.pt"', "artefacts", "a list of strings"),
        ("artefacts = [1]", "artefacts[0]", "a string"),
        ('artefacts = ["/tmp/a*.pt", "b/*.pt"]', "artefacts[1]", "an absolute path"),
        ('artefacts = ["/tmp/{pt}/*.x"]', "artefacts[0]", "{tmp}, {user}, {uid}"),
        ("protected = ['(']", "protected[0]", "a Python regular expression"),
        ('artifacts = ["/tmp/a_*.pt"]', "artifacts", "artefacts, protected, evict"),
        ("artefacts = [", "", "a TOML document in UTF-8"),
        ('evict = "own"\nevict = "own"', "", "a TOML document in UTF-8"),
    ],
)
def test_a_damaged_file_is_one_clear_line(text, key, words):
    with pytest.raises(ProfileError) as caught:
        parse_settings(text.encode(), "/c/config.toml", ENV)
    line = str(caught.value)
    assert line.startswith(f"/c/config.toml: {key}")
    assert words in line
    assert "\n" not in line


def test_bytes_that_are_no_text_are_one_clear_line():
    with pytest.raises(ProfileError, match="is not TOML"):
        parse_settings(b"\xff\xfe", "config.toml", ENV)


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"HOME": "/h"}, "/h/.config/supervise/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "/h/.config/supervise/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}, "/h/.config/supervise/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/supervise/config.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x", "SUPERVISE_CONFIG": "/f.toml"}, "/f.toml"),
    ],
)
def test_where_they_are(env, path):
    assert settings_path(env) == path


def test_missing_settings_are_fine_where_nobody_named_them(tmp_path):
    assert load_settings({"HOME": str(tmp_path)}) == Settings()
    (tmp_path / "file").touch()
    assert load_settings({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "file")}) == Settings()


def test_a_file_that_is_named_and_missing_is_told(tmp_path):
    with pytest.raises(ProfileError, match=r"gone\.toml: does not exist"):
        load_settings({"SUPERVISE_CONFIG": str(tmp_path / "gone.toml")})


def test_what_cannot_be_read_is_told(tmp_path):
    with pytest.raises(ProfileError, match="cannot be read: Is a directory"):
        load_settings({"SUPERVISE_CONFIG": str(tmp_path)})


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/dev/zero"):
        with pytest.raises(ProfileError, match="cannot be read: is no regular file"):
            load_settings({"SUPERVISE_CONFIG": path})


def test_what_is_too_large_is_told(tmp_path):
    path = tmp_path / "config.toml"
    path.write_bytes(b"#" * 2**20)
    assert load_settings({"SUPERVISE_CONFIG": str(path)}) == Settings()
    path.write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(ProfileError, match="cannot be read: has more than 1 MiB"):
        load_settings({"SUPERVISE_CONFIG": str(path)})


def test_what_is_nested_too_deeply_is_one_clear_line():
    text = b"artefacts = " + b"[" * 100_000 + b"]" * 100_000
    with pytest.raises(ProfileError, match=r"config\.toml: is not TOML: nested too deeply"):
        parse_settings(text, "config.toml", ENV)


def test_they_are_read_from_their_file(tmp_path):
    path = tmp_path / "supervise" / "config.toml"
    path.parent.mkdir()
    path.write_text('evict = "stale"\nartefacts = ["/tmp/a_*.pt"]\n')
    found = load_settings({"XDG_CONFIG_HOME": str(tmp_path)})
    assert found == Settings(artefacts=("/tmp/a_*.pt",), evict=Evict.STALE)
    assert load_settings({"SUPERVISE_CONFIG": "/dev/null"}) == Settings()
