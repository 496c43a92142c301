"""Files of the store that are not what we wrote: kept aside for people, never trusted, and in nobody's way.

`run.json` becomes `run.json.damaged-1`, the next one `run.json.damaged-2`; only the newest is kept. Whoever calls this
holds the run's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable

from supervise.attempts import told
from supervise.host import files

# Not the file's fault: it may be sound.
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)
# What JSON or a number of ours may have at most; see files.read_json.
_LARGEST = 64 * 1024 * 1024
_NUMBER = re.compile(rb"[0-9]{1,9}\n?")

Sound = Callable[[str], bool]


def of_run(path: str, newest: str | None) -> list[str]:
    """Put aside what is damaged of a run; only its newest attempt counts, for nobody writes to the others.

    Args:
        path: the run's directory.
        newest: that of its newest attempt, None if there is none.

    Returns:
        A sentence about each file.
    """
    appended = ("events.jsonl", "slate.json", "supervise.log", "keeper.log")
    of_ours: dict[str, Sound] = {
        "run.json": is_json,
        "sequence": is_number,
        "latest": is_link,
        **dict.fromkeys(appended, is_file),
    }
    if newest is not None:
        of_ours |= {os.path.join(newest, name): is_json for name in ("attempt.json", "outcome.json")}
    sentences = (examined(os.path.join(path, name), sound) for name, sound in of_ours.items())
    return [sentence for sentence in sentences if sentence is not None]


def is_json(path: str) -> bool:
    """Whether it is JSON of ours, each value of its kind."""
    _expect_readable(path)
    said = files.read_json(path)
    return said is not None and told.sound(said)


def is_number(path: str) -> bool:
    """Whether it is a number as we write it."""
    return _NUMBER.fullmatch(_expect_readable(path)) is not None


def is_file(path: str) -> bool:
    """Whether it is a file that can be appended to: its readers pass over damaged lines."""
    return stat.S_ISREG(os.lstat(path).st_mode)


def is_link(path: str) -> bool:
    """Whether it is a link."""
    return stat.S_ISLNK(os.lstat(path).st_mode)


def examined(path: str, sound: Sound) -> str | None:
    """Put a damaged file aside.

    Args:
        path: the file; a missing one is not damaged.
        sound: whether it is as we write it; may raise OSError.

    Returns:
        A sentence about it, None if there is nothing to say.
    """
    try:
        if not os.path.lexists(path) or sound(path):
            return None
    except OSError as error:
        if error.errno in (errno.ENOENT, *_OURS):
            return None
    return set_aside(path)


def set_aside(path: str) -> str:
    """Give a file, or whatever stands in its place, another name; what was aside before is removed.

    Returns:
        A sentence about it.
    """
    directory, name = os.path.split(path)
    pattern = re.compile(rf"{re.escape(name)}\.damaged-([0-9]{{1,9}})")
    try:
        earlier = {match[0]: int(match[1]) for match in map(pattern.fullmatch, os.listdir(directory)) if match}
        aside = f"{path}.damaged-{max(earlier.values(), default=0) + 1}"
        os.rename(path, aside)
    except OSError as error:
        return f"{path} is damaged and cannot be put aside ({error.strerror}); it is not trusted"
    for old in earlier:
        _remove(os.path.join(directory, old))
    return f"{path} is damaged: not trusted, kept as {os.path.basename(aside)}"


def _expect_readable(path: str) -> bytes:
    return files.read_regular(path, _LARGEST)


def _remove(path: str) -> None:
    import shutil

    with contextlib.suppress(OSError):
        os.unlink(path)
        return
    shutil.rmtree(path, ignore_errors=True)
