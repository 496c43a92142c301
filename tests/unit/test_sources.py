"""The record of an attempt's code on disk, and how files are copied."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from supervise.attempts import sources
from supervise.attempts.store import Attempt, _weigh
from supervise.host import copying
from supervise.host.copying import Copies
from supervise.model.sources import Base, Change, Root, Source, Sources

EDITED = b"X = 2\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    (tmp_path / "0001").mkdir()
    return Attempt("r", 1, str(tmp_path / "0001"))


def code() -> Sources:
    files = (
        Source("vllm/a.py", Change.MODIFIED, sha(EDITED), len(EDITED), kept=True),
        Source("vllm/big.so", Change.MODIFIED, sha(b"big"), 10_000_000),
        Source("vllm/gone.py", Change.MISSING, None),
        Source("../../../bin/vllm", Change.MODIFIED, sha(EDITED), len(EDITED), kept=True),
    )
    root = Root("vllm", "/site", Base.WHEEL, "0.32.0", files)
    unknown = Root("flashinfer", "", Base.NONE, unknown="not installed")
    return Sources("/venv/bin/python", "3.12", {"torch": "2.9"}, (root, unknown), 0.25)


def wrote(attempt: Attempt) -> Sources:
    known = code()
    sources.write(attempt, known, {("/site", "vllm/a.py"): EDITED, ("/site", "../../../bin/vllm"): EDITED})
    return known


def test_it_is_read_back_as_it_was_written(attempt: Attempt) -> None:
    known = wrote(attempt)
    assert sources.read(attempt) == known
    root = known.roots[0]
    assert sources.content(attempt, root, "vllm/a.py") == EDITED
    assert [sources.content(attempt, root, path) for path in ("vllm/big.so", "vllm/gone.py", "vllm/b.py")] == [None] * 3
    assert os.listdir(f"{attempt.path}/sources") == [sha(EDITED)]  # the same content is kept once
    assert os.stat(f"{attempt.path}/sources/{sha(EDITED)}").st_mode & 0o077 == 0


def test_a_copy_that_is_not_what_it_was_is_none(attempt: Attempt) -> None:
    root = wrote(attempt).roots[0]
    Path(attempt.path, "sources", sha(EDITED)).write_bytes(b"X = 3\n")
    assert sources.content(attempt, root, "vllm/a.py") is None
    Path(attempt.path, "sources", sha(EDITED)).unlink()
    assert sources.content(attempt, root, "vllm/a.py") is None


def damage(said: dict[str, Any], where: str, value: object) -> None:
    *way, last = where.split("/")
    for step in way:
        said = said[int(step)] if step.isdigit() else said[step]  # type: ignore[index]
    said[last] = value


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("python", 3),
        ("python", "/x\0y"),
        ("python", "\udfff\ud800"),
        ("versions", []),
        ("versions", {"torch": None}),
        ("read_s", float("inf")),
        ("read_s", True),
        ("roots", {}),
        ("roots/0/directory", "site"),
        ("roots/0/directory", ""),
        ("roots/0/base", "svn"),
        ("roots/0/base", "git"),  # whose paths never leave the tree
        ("roots/0/files/0/path", "/etc/passwd"),
        ("roots/0/files/0/path", "vllm/../../x"),
        ("roots/0/files/0/path", "vllm/big.so"),  # twice
        ("roots/0/files/0/path", ""),
        ("roots/0/files/0/digest", "../../x"),
        ("roots/0/files/0/digest", None),  # of what was kept
        ("roots/0/files/0/digest", 7),
        ("roots/0/files/0/size", -1),
        ("roots/0/files/0/size", 1.5),
        ("roots/0/files/0/kept", 1),
        ("roots/0/files/0/change", "edited"),
    ],
)
def test_a_record_with_a_value_that_none_of_us_writes_is_not_believed(
    attempt: Attempt, where: str, value: object
) -> None:
    wrote(attempt)
    path = Path(attempt.path, "sources.json")
    said = json.loads(path.read_text())
    damage(said, where, value)
    path.write_text(json.dumps(said))
    assert sources.read(attempt) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1, "roots": []}'])
def test_nor_is_half_of_one(attempt: Attempt, text: str) -> None:
    Path(attempt.path, "sources.json").write_text(text)
    assert sources.read(attempt) is None


def test_names_are_of_any_bytes(attempt: Attempt) -> None:
    name = os.fsdecode(b"vllm/\xff\n.py")
    known = Sources(roots=(Root("v", "/site", Base.WHEEL, "1", (Source(name, Change.ADDED, sha(b""), 0, kept=True),)),))
    sources.write(attempt, known, {("/site", name): b""})
    assert sources.read(attempt) == known
    assert sources.content(attempt, known.roots[0], name) == b""


@pytest.mark.parametrize("call", ["open", "replace"])
def test_of_what_could_not_be_written_nothing_is_left(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)

    def full(*arguments: Any, **more: Any) -> Any:
        if "sources" in str(arguments[0]) and "removed" not in str(arguments[0]):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left"):
            wrote(attempt)
    assert os.listdir(attempt.path) == []
    assert sources.read(attempt) is None


def test_copies_weigh(attempt: Attempt) -> None:
    before = _weigh(attempt).size
    wrote(attempt)
    copy = os.stat(f"{attempt.path}/sources/{sha(EDITED)}").st_blocks * 512
    assert copy > 0
    assert _weigh(attempt).size - before >= copy + os.stat(f"{attempt.path}/sources.json").st_blocks * 512


# --- copying ---------------------------------------------------------------------------------------------------------


def copies() -> Copies:
    return Copies(time.monotonic() + 60)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    (path / "pkg").mkdir(parents=True)
    (path / "pkg/a.py").write_bytes(EDITED)
    return path


def test_a_copy_is_of_the_bytes_that_were_hashed(tree: Path) -> None:
    taking = copies()
    assert taking.take(str(tree), "pkg/a.py", Change.ADDED) == Source(
        "pkg/a.py", Change.ADDED, sha(EDITED), 6, kept=True
    )
    assert taking.contents == {(str(tree), "pkg/a.py"): EDITED}


def test_of_ten_megabytes_there_is_a_digest_only(tree: Path) -> None:
    (tree / "pkg/big.bin").write_bytes(b"x" * 10_000_000)
    (tree / "pkg/limit.bin").write_bytes(b"y" * copying.LARGEST_COPY)
    with (tree / "pkg/huge.bin").open("wb") as file:
        file.truncate(copying.LARGEST_HASHED + 1)
    taking = copies()
    big, limit, huge = (taking.take(str(tree), f"pkg/{name}.bin", Change.ADDED) for name in ("big", "limit", "huge"))
    assert big == Source("pkg/big.bin", Change.ADDED, sha(b"x" * 10_000_000), 10_000_000)
    assert limit.kept
    assert huge == Source("pkg/huge.bin", Change.ADDED, None, copying.LARGEST_HASHED + 1)
    assert list(taking.contents) == [(str(tree), "pkg/limit.bin")]


def test_a_link_out_of_the_tree_is_not_followed(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/x.py").write_text("s3cret")
    (tree / "pkg/link.py").symlink_to(tmp_path / "secret")
    (tree / "pkg/dir").symlink_to(tmp_path / "other")
    (tree / "pkg/within.py").symlink_to("a.py")  # the twin
    (tree / "pkg/nowhere.py").symlink_to("/nowhere")
    taking = copies()
    names = ("link.py", "dir/x.py", "nowhere.py", "within.py")
    taken = taking.all(str(tree), [(f"pkg/{name}", Change.ADDED) for name in names])
    assert [source.digest for source in taken] == [None, None, None, sha(EDITED)]
    assert list(taking.contents) == [(str(tree), "pkg/within.py")]


def test_what_a_wheel_lists_may_be_a_link_into_the_cache_of_its_installer(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    for name in ("llama.py", "id.key"):
        (tmp_path / "cache" / name).write_text("edited")
    for name, target in (("listed.py", "llama.py"), ("added.py", "llama.py"), ("private.py", "id.key")):
        (tree / name).symlink_to(tmp_path / "cache" / target)
    taking = copies()
    listed = taking.take(str(tree), "listed.py", Change.MODIFIED)
    assert (listed.digest, listed.size, listed.kept) == (sha(b"edited"), 6, True)
    assert taking.take(str(tree), "added.py", Change.ADDED).digest is None
    assert not taking.take(str(tree), "private.py", Change.MODIFIED).kept
    (of_a_tree,) = taking.all(str(tree), [("listed.py", Change.MODIFIED)])
    assert of_a_tree.digest is None


def test_what_holds_secrets_by_its_name_is_not_copied(tree: Path) -> None:
    for name in (".env", "server.key", "prod.env", "key_cache.py"):
        (tree / name).write_text("s3cret")
    taking = copies()
    taken = [taking.take(str(tree), name, Change.ADDED) for name in (".env", "server.key", "prod.env", "key_cache.py")]
    assert [source.kept for source in taken] == [False, False, False, True]
    assert all(source.digest == sha(b"s3cret") for source in taken)


def test_there_is_room_for_some(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "MOST_FILES", 2)
    for number in range(3):
        (tree / f"{number}.py").write_text(f"{number}")
    taking = copies()
    assert [taking.take(str(tree), f"{n}.py", Change.PLAIN).kept for n in range(3)] == [True, True, False]
    assert taking.take(str(tree), "0.py", Change.PLAIN).kept  # in another root: once is enough
    assert taking.refused == 1
    monkeypatch.setattr(copying, "MOST_BYTES", 1)
    taking = copies()
    assert [taking.take(str(tree), f"{n}.py", Change.PLAIN).kept for n in range(2)] == [True, False]


def test_a_file_that_changes_while_it_is_read_is_read_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real, writes = tree / "pkg/a.py", copying._read, [b"new content\n"]

    def meanwhile(*arguments: Any) -> copying.Seen:
        seen = real(*arguments)
        if writes:
            path.write_bytes(writes.pop())
        return seen

    monkeypatch.setattr(copying, "_read", meanwhile)
    taking = copies()
    assert taking.take(str(tree), "pkg/a.py", Change.ADDED).digest == sha(b"new content\n")
    assert taking.contents == {(str(tree), "pkg/a.py"): b"new content\n"}
    writes[:] = [b"longer and longer\n", b"other\n", b"more and more\n"]
    restless = copies()
    taken = restless.take(str(tree), "pkg/a.py", Change.ADDED)
    assert (taken.digest, taken.kept) == (None, False)
    assert restless.contents == {}


def test_what_is_no_file_is_not_waited_for(tree: Path) -> None:
    os.mkfifo(tree / "pipe.py")
    taking = copies()
    assert taking.take(str(tree), "pipe.py", Change.MODIFIED).digest is None
    assert taking.take(str(tree), "nothing.py", Change.MODIFIED).digest is None
    assert Copies(time.monotonic()).take(str(tree), "pkg/a.py", Change.MODIFIED).digest is None  # too late
