"""The door to the names of hosts that a user's ssh has been told of: ssh_config(5), sshd(8) (known_hosts), hosts(5)."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator

from supervise.host import files

# As every shell would leave it alone. Patterns and hashed names have other characters.
_NAME = re.compile(r"[A-Za-z0-9_][\w.:%-]*", re.ASCII)
_LARGEST = 1024 * 1024
# ssh itself goes that deep (readconf.c, READCONF_MAX_DEPTH).
_DEEPEST = 16
_MOST_FILES = 200
_CONFIGURED = (("~/.ssh/config", "~/.ssh"), ("/etc/ssh/ssh_config", "/etc/ssh"))
_KNOWN = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts")
_LOCAL = "/etc/hosts"


def names() -> list[str]:
    """Names that mean a host to ssh, each once: what is configured first, then what was visited, then what is local."""
    found: dict[str, None] = {}
    read: set[str] = set()
    for path, directory in _CONFIGURED:
        found.update(dict.fromkeys(_configured(os.path.expanduser(path), os.path.expanduser(directory), read)))
    for path in _KNOWN:
        found.update(dict.fromkeys(_visited(os.path.expanduser(path))))
    found.update(dict.fromkeys(_local(_LOCAL)))
    return [name for name in found if _NAME.fullmatch(name)]


def _configured(path: str, directory: str, read: set[str], depth: int = 0) -> Iterator[str]:
    """What the Host lines of a configuration name, and of those that it includes; each file is read once.

    Args:
        path: of the file.
        directory: where relative names of included files begin.
        read: files that have been read.
        depth: how many have included it.
    """
    if path in read or len(read) >= _MOST_FILES:
        return
    read.add(path)
    for line in _lines(path):
        keyword, *values = _words(line)
        if keyword.lower() == "host":
            yield from values
        elif keyword.lower() == "include" and depth < _DEEPEST:
            for value in values:
                pattern = os.path.join(directory, os.path.expanduser(value))
                for included in sorted(glob.glob(pattern))[:_MOST_FILES]:
                    yield from _configured(included, directory, read, depth + 1)


def _visited(path: str) -> Iterator[str]:
    for line in _lines(path):
        marker, *fields = line.split()
        if marker == "@revoked":
            continue
        named = fields[0] if marker.startswith("@") and fields else marker
        for each in named.split(","):
            # Of another port than that of ssh: [host]:port.
            yield each[1:].partition("]")[0] if each.startswith("[") else each


def _local(path: str) -> Iterator[str]:
    for line in _lines(path):
        yield from line.partition("#")[0].split()[1:]


def _words(line: str) -> list[str]:
    """The keyword and its values; between those two may be an equals sign."""
    keyword, values = re.split(r"[\s=]+", f"{line} ", maxsplit=1)
    try:
        return [keyword, *shlex.split(values, comments=True)]
    except ValueError:
        return [keyword]


def _lines(path: str) -> list[str]:
    """Those that say something; none of a file that cannot be read or is no list for people."""
    try:
        said = files.read_regular(path, _LARGEST).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for line in map(str.strip, said.split("\n")) if line and not line.startswith("#")]
