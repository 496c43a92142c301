"""The code that an attempt ran, kept beside its log: which files were not as published, and a copy of each.

<attempt>/sources.json          interpreter, versions, roots and their files, each with its sha256
<attempt>/sources/<sha256>      copies, each by the digest of its content: the same content is kept once
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

from supervise.attempts.store import Attempt
from supervise.host import files
from supervise.host.copying import LARGEST_COPY
from supervise.model.sources import Base, Change, Root, Source, Sources

_NAME = "sources"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LONGEST = 4096
_MOST = 1 << 63


def write(attempt: Attempt, sources: Sources, contents: Mapping[tuple[str, str], bytes]) -> None:
    """Write down what the code of an attempt was; copies first, so that whatever the record names is there.

    Args:
        attempt: the attempt.
        sources: what was found. Only files that have a content here are kept.
        contents: by `Root.directory` and `Source.path`; the bytes that `Source.digest` is of.

    Raises:
        OSError: it could not be written; then there is no record, and no copy is left.
    """
    directory = os.path.join(attempt.path, _NAME)
    try:
        if contents:
            os.makedirs(directory, mode=0o700, exist_ok=True)
        for root in sources.roots:
            for source in root.files:
                content = contents.get((root.directory, source.path))
                if source.kept and content is not None and source.digest is not None:
                    _write_once(os.path.join(directory, source.digest), content)
        attempt.write(_NAME, _to_json(sources))
    except OSError:
        if os.path.isdir(directory):
            files.remove_tree(directory)
        raise


def read(attempt: Attempt) -> Sources | None:
    """Read it back.

    Returns:
        None if there is none, or one with a value that none of us writes: that is damaged, and proves nothing.
    """
    said = attempt.read(_NAME)
    if said is None:
        return None
    try:
        return _sources(said)
    except (KeyError, TypeError, ValueError):
        return None


def content(attempt: Attempt, root: Root, path: str) -> bytes | None:
    """The copy of a file.

    Args:
        attempt: the attempt that kept it.
        root: as it was read from there.
        path: relative to the root.

    Returns:
        Its bytes, None if no copy was kept, or it is not what it was any more.
    """
    source = next((each for each in root.files if each.path == path), None)
    return None if source is None else copy_of(attempt, source)


def copy_of(attempt: Attempt, source: Source) -> bytes | None:
    """The copy of a file of an attempt, see `content`."""
    if not source.kept or source.digest is None:
        return None
    try:
        data = files.read_regular(os.path.join(attempt.path, _NAME, source.digest), LARGEST_COPY)
    except (OSError, ValueError):
        return None
    return data if hashlib.sha256(data).hexdigest() == source.digest else None


def _write_once(path: str, data: bytes) -> None:
    """The name is that of the content: what is there is the same, unless it is a half of it."""
    if os.path.exists(path) and os.path.getsize(path) == len(data):
        return
    temporary = f"{path}.{os.getpid()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _to_json(sources: Sources) -> dict[str, Any]:
    return {
        "python": sources.python,
        "python_version": sources.version,
        "read_s": round(sources.read_s, 3),
        "versions": dict(sorted(sources.versions.items())),
        "roots": [
            {
                "name": root.name,
                "directory": root.directory,
                "base": root.base.value,
                "version": root.version,
                "unknown": root.unknown,
                "files": [source._asdict() for source in root.files],
            }
            for root in sources.roots
        ],
    }


def _sources(said: dict[str, Any]) -> Sources:
    versions = said["versions"]
    if not isinstance(versions, dict):
        raise TypeError("versions")
    return Sources(
        python=None if said["python"] is None else _text(said["python"]),
        version=None if said["python_version"] is None else _text(said["python_version"]),
        versions={_text(name): _text(version) for name, version in versions.items()},
        roots=tuple(_root(each) for each in _list(said["roots"])),
        read_s=_seconds(said["read_s"]),
    )


def _root(said: dict[str, Any]) -> Root:
    directory, unknown = _text(said["directory"]), _text(said["unknown"])
    base = Base(said["base"])
    # Where nobody could tell, there may be no directory either.
    if not os.path.isabs(directory) and (directory or not unknown):
        raise ValueError("directory")
    found = tuple(_source(each, base) for each in _list(said["files"]))
    if len({source.path for source in found}) != len(found):
        raise ValueError("files")
    return Root(_text(said["name"]), directory, base, _text(said["version"]), found, unknown)


def _source(said: dict[str, Any], base: Base) -> Source:
    digest, size, kept = said["digest"], said["size"], said["kept"]
    if digest is not None and not _DIGEST.fullmatch(digest):
        raise ValueError("digest")
    if type(size) is not int or not 0 <= size < _MOST or type(kept) is not bool or (kept and digest is None):
        raise ValueError("size")
    path = _path(said["path"], base)
    if os.path.isabs(path) and digest is not None:
        raise ValueError("path")
    return Source(path, Change(said["change"]), digest, size, kept)


def _path(value: object, base: Base) -> str:
    """In its shortest form; only wheels list files outside of their directory (`../../../bin/vllm`, `/etc/x`)."""
    path = _text(value)
    if not path or os.path.normpath(path) != path:
        raise ValueError("path")
    if (os.path.isabs(path) or path.split("/")[0] == "..") and base is not Base.WHEEL:
        raise ValueError("path")
    return path


def _text(value: object) -> str:
    """What can be a name of a file, and be printed once it has been made printable."""
    if not isinstance(value, str) or len(value) > _LONGEST or "\0" in value:
        raise ValueError("text")
    value.encode("utf-8", "surrogateescape")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("list")
    return value


def _seconds(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value < _MOST:  # type: ignore[operator]
        raise ValueError("seconds")
    return float(value)  # type: ignore[arg-type]
