"""Finding files by globs on a real file system: what matches, what is never followed, and when it says it saw all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from supervise.host import globbing, mounts
from supervise.model.litter import FileId, FileType

FILES = ("a.pt", "b.txt", ".hidden.pt", "x/a.pt", "x/y/a.pt", "x/y/z/b.pt", "x/.h/a.pt", "[odd]/a.pt", "x/lock", "lock")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "tree"
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return root


def names(tree: Path, *patterns: str, **more: object) -> list[str]:
    keep = [f"{tree}/{kept}" for kept in more.pop("keep", ())]
    found = globbing.find([f"{tree}/{pattern}" for pattern in patterns], keep=keep, **more)
    assert found.complete
    return [os.path.relpath(file.path, tree) for file in found.files]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("*.pt", ["a.pt"]),
        (".*.pt", [".hidden.pt"]),
        ("a.pt", ["a.pt"]),
        ("none", []),
        ("none/*", []),
        ("a.pt/*", None),
        ("?.[pt]*", ["a.pt", "b.txt"]),
        ("[!a].*", ["b.txt"]),
        ("*/a.pt", ["[odd]/a.pt", "x/a.pt"]),
        ("**/a.pt", ["[odd]/a.pt", "a.pt", "x/a.pt", "x/y/a.pt"]),
        ("**/lock", ["lock", "x/lock"]),
        ("x/**", ["x/a.pt", "x/lock", "x/y", "x/y/a.pt", "x/y/z", "x/y/z/b.pt"]),
        ("**/y/**/*.pt", ["x/y/a.pt", "x/y/z/b.pt"]),
        ("**/**/z/**/**", ["x/y/z/b.pt"]),
        ("[[]odd]/*", ["[odd]/a.pt"]),
        ("loc*/**", []),
        ("x/../a.pt", ["a.pt"]),
    ],
)
def test_what_matches(tree: Path, pattern: str, matched: list[str] | None) -> None:
    if matched is None:
        assert globbing.find([f"{tree}/{pattern}"]) == globbing.Found((), complete=False)
    else:
        assert names(tree, pattern) == matched


def test_each_match_is_told_once_and_sorted(tree: Path) -> None:
    assert names(tree, "lock", "**/lock", "a.pt") == ["a.pt", "lock", "x/lock"]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        (["x/y"], ["a.pt", "x/a.pt"]),
        (["x/y/**"], ["a.pt", "x/a.pt"]),
        (["*"], []),
        (["x/y/z/**"], ["a.pt", "x/a.pt", "x/y/a.pt"]),
        (["**/b.pt"], ["a.pt", "x/a.pt", "x/y/a.pt"]),
        (["xx", "x/yy"], ["a.pt", "x/a.pt", "x/y/a.pt", "x/y/z/b.pt"]),
    ],
)
def test_what_is_kept_is_left_out_with_all_below(tree: Path, keep: list[str], left: list[str]) -> None:
    found = names(tree, "*.pt", "x/**/*.pt", keep=keep)
    assert found == left


def test_hidden_names_are_kept_too_and_through_any_link(tree: Path) -> None:
    (tree.parent / "alias").symlink_to(tree)
    kept = globbing.keeper([f"{tree.parent}/alias/*"])
    assert kept(f"{tree}/.hidden.pt")
    assert kept(f"{tree}/x/y/a.pt")
    assert not kept(str(tree))


def test_what_is_not_wanted_by_its_name_is_not_even_looked_at(tree: Path) -> None:
    assert names(tree, "*", wanted=lambda name: name.startswith("b")) == ["b.txt"]


def test_what_is_told_of_a_file(tree: Path) -> None:
    path = tree / "a.pt"
    os.utime(path, (0, time.time() - 100))
    os.link(path, tree / "second")
    state = path.stat()
    (found,) = globbing.find([str(path)]).files
    assert (found.file, found.type, found.uid) == (FileId(state.st_dev, state.st_ino), FileType.REGULAR, os.geteuid())
    assert found.size == state.st_blocks * 512
    assert 99 < found.age_s < 160
    assert found.links == 2


def test_types(tree: Path) -> None:
    os.mkfifo(tree / "t1")
    (tree / "t2").symlink_to("a.pt")
    (tree / "t3").symlink_to("nowhere")
    (tree / "t4").mkdir()
    found = {os.path.basename(file.path): file.type for file in globbing.find([f"{tree}/t?"]).files}
    assert found == {"t1": FileType.OTHER, "t2": FileType.OTHER, "t3": FileType.OTHER, "t4": FileType.DIRECTORY}


def test_links_below_a_wildcard_are_not_followed_and_loops_do_no_harm(tree: Path) -> None:
    (tree / "w").symlink_to("x")
    (tree / "x/up").symlink_to("..")
    assert names(tree, "*/a.pt") == ["[odd]/a.pt", "x/a.pt"]
    assert "x/up" in names(tree, "**")
    assert not [name for name in names(tree, "**") if name.startswith(("x/up/", "w/"))]


def test_our_own_link_before_a_wildcard_is_followed(tree: Path) -> None:
    (tree.parent / "home").symlink_to(tree)
    (file,) = globbing.find([f"{tree.parent}/home/*.pt"]).files
    assert file.path == f"{tree}/a.pt"


@pytest.mark.root
@pytest.mark.parametrize("how", ["their link", "a link in a directory where anybody exchanges it", "a second name"])
def test_somebody_s_link_before_a_wildcard_is_not_followed(tree: Path, how: str) -> None:
    holder = tree.parent / "shared"
    holder.mkdir()
    holder.chmod(0o777 if "exchanges" in how else 0o1777)
    link = holder / "link"
    link.symlink_to(tree)
    assert (globbing.real_directory(f"{link}/sub") is None) is ("exchanges" in how)
    if how == "their link":
        os.lchown(link, 65534, 65534)
    elif how == "a second name":
        os.link(link, holder / "another", follow_symlinks=False)
    assert globbing.find([f"{link}/*.pt"]) == globbing.Found((), complete=False)
    assert globbing.real_directory(str(link)) is None


def test_a_loop_of_links_leads_nowhere(tree: Path) -> None:
    (tree / "l1").symlink_to("l2")
    (tree / "l2").symlink_to("l1")
    assert globbing.real_directory(f"{tree}/l1/x") is None


@pytest.mark.parametrize("path", ["/", "/nowhere/at/all", "/proc/self/../1"])
def test_real_directories(path: str) -> None:
    assert globbing.real_directory(path) == os.path.realpath(path)


@pytest.mark.parametrize("name", [b"a\nb", b"\xff\xfe", b"\x1b[31m", b" ", "ü".encode()])
def test_names_are_any_bytes(tree: Path, name: bytes) -> None:
    directory = os.fsencode(tree) + b"/n"
    os.mkdir(directory)
    with open(directory + b"/" + name, "w"):
        pass
    (found,) = globbing.find([f"{tree}/n/*"]).files
    assert os.fsencode(found.path) == directory + b"/" + name


class TestIncomplete:
    def test_too_many(self, tree: Path) -> None:
        found = globbing.find([f"{tree}/**"], most=3)
        assert not found.complete
        assert len(found.files) <= 3

    def test_too_late(self, tree: Path) -> None:
        assert globbing.find([f"{tree}/**"], within_s=-1) == globbing.Found((), complete=False)

    def test_too_deep(self, tree: Path) -> None:
        (tree / Path(*["d"] * 100)).mkdir(parents=True)
        assert not globbing.find([f"{tree}/**"]).complete
        assert names(tree, "*.pt") == ["a.pt"]

    @pytest.mark.parametrize("pattern", ["relative/*", "", "*"])
    def test_not_absolute(self, pattern: str) -> None:
        assert globbing.find([pattern]) == globbing.Found((), complete=False)

    def test_a_directory_that_may_not_be_read(self, short_dir: Path) -> None:
        short_dir.chmod(0o755)
        for name, mode in (("open", 0o755), ("closed", 0o700 if os.geteuid() == 0 else 0)):
            (short_dir / name).mkdir()
            (short_dir / name / "a.pt").write_text("")
            (short_dir / name).chmod(mode)
        uid = os.geteuid()
        if uid == 0:
            os.seteuid(65534)
        try:
            found = globbing.find([f"{short_dir}/**/a.pt"])
        finally:
            os.seteuid(uid)
            (short_dir / "closed").chmod(0o755)
        assert not found.complete
        assert [file.path for file in found.files] == [f"{short_dir}/open/a.pt"]

    def test_a_remote_file_system_is_not_entered(self, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(mounts, "remote", lambda: mounts.Remote(frozenset({f"{tree}/x"}), frozenset()))
        found = globbing.find([f"{tree}/**/a.pt"])
        assert not found.complete
        assert [os.path.relpath(file.path, tree) for file in found.files] == ["[odd]/a.pt", "a.pt"]
        assert [file.path for file in globbing.find([f"{tree}/x/*.pt"]).files] == [f"{tree}/x/a.pt"]


def test_remote_mounts_are_read_from_the_kernel_s_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(
        b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        b"90 22 0:55 / /mnt/a\\040b\\012c rw shared:7 master:2 - nfs4 server:/x rw,vers=4.2\n"
        b"91 22 0:56 / /ssh rw - fuse.sshfs a:/ rw\n"
        b"92 22 0:57 / /tmp rw - tmpfs tmpfs rw\n"
    )
    real = open
    monkeypatch.setattr("builtins.open", lambda path, *rest: real(table if "mountinfo" in str(path) else path, *rest))
    assert mounts.remote() == mounts.Remote(
        frozenset({"/mnt/a b\nc", "/ssh"}), frozenset({os.makedev(0, 55), os.makedev(0, 56)})
    )


def test_no_descriptor_is_left_open(tree: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    globbing.find([f"{tree}/**", f"{tree}/a.pt/*", f"{tree}/none/**"], most=5)
    assert set(os.listdir("/proc/self/fd")) == before
