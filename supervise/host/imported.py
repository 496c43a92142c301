"""The door to whether a Python file has been imported: seen from its bytecode, for others read the source as well.

An import opens the bytecode of a file if there is any, believed or not, and writes it anew if it was not believed or
not there (importlib._bootstrap_external, SourceLoader.get_code). So bytecode that nobody opened, and nobody wrote,
belongs to a file that nobody imported. Of a file without bytecode, that nobody would write any for, only a source that
nobody has opened proves that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervise.host import compiled, files
from supervise.host.inotify import Opens
from supervise.host.interpreter import Interpreter

_LIBRARY = re.compile(r"/python(3)\.(\d+t?)(?:/|$)")
_LARGEST = 8 * 1024 * 1024
_ROOM = 16 * 1024 * 1024
# Options of python(1) that change where its bytecode is, or whether there is any.
_OPTIONS = "BOX"

Identity = tuple[int, ...]


@dataclass(slots=True)
class _File:
    """One file; `before` is its bytecode at the launch, `plain`: it may be read by others than importers."""

    path: str
    cache: str
    plain: bool
    before: dict[str, Identity] = field(default_factory=dict)
    opened: bool = False
    imported: bool = False


class Imported:
    """Watches some files from before a launch on.

    Args:
        paths: absolute.
        python: the Python that may import them.
        env: the environment that it sees.
        program: its command line.

    Raises:
        OSError: the kernel cannot tell (limits of inotify), or a directory is gone.
    """

    def __init__(
        self, paths: Iterable[str], python: Interpreter, env: Mapping[str, str], program: Sequence[str]
    ) -> None:
        prefix = env.get("PYTHONPYCACHEPREFIX", "")
        self._tag = _tag(python)
        usual = not prefix and not env.get("PYTHONOPTIMIZE") and not python.options & set(_OPTIONS)
        self._usual = usual and self._tag is not None
        self._writes = not env.get("PYTHONDONTWRITEBYTECODE")
        self._files = [
            _File(path, compiled.cache_of(os.path.dirname(path), prefix), _is_plain(path, program)) for path in paths
        ]
        self._opens = Opens()
        try:
            self._watch()
        except BaseException:
            self._opens.close()
            raise

    def _watch(self) -> None:
        for directory in {os.path.dirname(file.path) for file in self._files}:
            self._opens.watch(directory)
        for cache in {file.cache for file in self._files if os.path.isdir(file.cache)}:
            self._opens.watch(cache)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files."""
        return tuple(file.path for file in self._files)

    def begin(self) -> None:
        """The launch is next: what was opened until now does not count."""
        for _ in self._opens.told():
            pass
        for file in self._files:
            file.opened = file.imported = False
            file.before = self._bytecode(file)

    def look(self) -> None:
        """Take in what has been opened since the last time; never blocks."""
        for path in self._opens.told():
            directory, name = os.path.split(path)
            for file in self._files:
                if path == file.path:
                    file.opened = True
                elif directory == file.cache and self._is_bytecode(file, name):
                    file.imported = True

    def unread(self) -> tuple[tuple[str, ...], str]:
        """Files that nobody has imported since the launch, and nobody can have read in any other way that counts.

        Returns:
            Them, and an empty phrase; or none, and why that cannot be told.
        """
        self.look()
        if self._opens.lost:
            return (), "the kernel has lost count"
        return tuple(file.path for file in self._files if not self._read(file)), ""

    def close(self) -> None:
        """Let go of them."""
        self._opens.close()

    def _read(self, file: _File) -> bool:
        if not file.imported:
            file.imported = self._bytecode(file) != file.before
        return file.imported or (file.opened and not self._shows(file))

    def _shows(self, file: _File) -> bool:
        """Whether an import must have shown on its bytecode, so that whoever has opened the source alone has not."""
        if file.plain or not self._usual:
            return False
        if f"{_stem(file.path)}.{self._tag}.pyc" in file.before:
            return True
        return self._writes and self._has_written(file) and _writable(file)

    def _has_written(self, file: _File) -> bool:
        """Whether there is bytecode of the package that the file is in: whoever imports it writes some."""
        cache = compiled.cache_of(os.path.dirname(file.path))
        return os.path.exists(os.path.join(cache, f"__init__.{self._tag}.pyc"))

    def _bytecode(self, file: _File) -> dict[str, Identity]:
        found: dict[str, Identity] = {}
        try:
            with os.scandir(file.cache) as entries:
                for entry in entries:
                    if self._is_bytecode(file, entry.name):
                        found[entry.name] = compiled.identity(entry.stat(follow_symlinks=False))
        except OSError:
            pass
        return found

    def _is_bytecode(self, file: _File, name: str) -> bool:
        return name.startswith(f"{_stem(file.path)}.{self._tag or ''}") and ".pyc" in name


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(".py")


def _tag(python: Interpreter) -> str | None:
    """What CPython puts into the names of bytecode, told from where its packages are."""
    if "pypy" in os.path.basename(os.path.realpath(python.executable)):
        return None
    found = {f"cpython-{match[1]}{match[2]}" for path in python.site if (match := _LIBRARY.search(path))}
    return found.pop() if len(found) == 1 else None


def _is_plain(path: str, program: Sequence[str]) -> bool:
    """Whether a file may be run without being imported: it is no module of a package, or looks like a script."""
    if path in program or not os.path.isfile(os.path.join(os.path.dirname(path), "__init__.py")):
        return True
    try:
        return b"__main__" in files.read_regular(path, _LARGEST) or os.path.basename(path) == "__main__.py"
    except (OSError, ValueError):
        return True


def _writable(file: _File) -> bool:
    place = file.cache if os.path.isdir(file.cache) else os.path.dirname(file.path)
    try:
        room = os.statvfs(place)
    except OSError:
        return False
    return os.access(place, os.W_OK) and room.f_bavail * room.f_frsize > _ROOM
