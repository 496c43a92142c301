"""The script of the user's own that starts an engine: what it is called, and whether it can want a flag for itself."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence

from supervise.host import files
from supervise.model.profile import Profile
from supervise.profiles import match

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_LARGEST = 64 * 1024
_HEAD = re.compile(r"#!\s*(?:/\S*/env\s+(?:-\S+\s+)*)?(\S+)")
# Another script, to which the words may be handed on: what that one wants nobody can see here.
_HANDS_ON = re.compile(r"\.(?:py|pl|rb)\b|(?:^|[;&|\s])\.\s|\b(?:source|eval|python[\d.]*|bash|sh)\b")


def called(program: Sequence[str]) -> str:
    """The name of what a command line starts: of `bash start.sh` it is `start.sh`.

    Args:
        program: without wrappers that are known.
    """
    if os.path.basename(program[0]) in _SHELLS and len(program) > 1 and not program[1].startswith("-"):
        return os.path.basename(program[1])
    return match.started(program) or os.path.basename(program[0])


def unwanted(program: Sequence[str], env: Mapping[str, str], profile: Profile, flags: Iterable[str]) -> frozenset[str]:
    """Flags that a script has no word for, so that it does not take them for itself.

    Args:
        program: what starts it.
        env: its environment.
        profile: the engine's.
        flags: those that were given to it.

    Returns:
        None of them if it is no shell script that starts an engine by itself; blocking.
    """
    text = _text(program, env)
    engines = [name for form in profile.forms if (name := form.program or form.module)]
    if text is None or not any(name in text for name in engines):
        return frozenset()
    for module in (form.module for form in profile.forms if form.module):
        text = re.sub(rf"\bpython[\d.]*\s+-m\s+{re.escape(module)}\b", module, text)
    if _HANDS_ON.search(text):
        return frozenset()
    return frozenset(flag for flag in flags if not any(stem in text for stem in _stems(flag)))


def _stems(flag: str) -> tuple[str, str]:
    """Without `no-`, which it may put there or leave out."""
    stem = flag.lstrip("-").removeprefix("no-")
    return stem, stem.replace("-", "_")


def _text(program: Sequence[str], env: Mapping[str, str]) -> str | None:
    """A shell script without its first line; None if it is none, or cannot be read."""
    by_shell = os.path.basename(program[0]) in _SHELLS
    if by_shell and (len(program) < 2 or program[1].startswith("-")):
        return None
    path = program[1] if by_shell else shutil.which(program[0], path=env.get("PATH"))
    try:
        head, _, text = files.read_regular(path or "", _LARGEST).decode().partition("\n")
    except (OSError, ValueError):
        return None
    found = _HEAD.match(head)
    return text if by_shell or (found is not None and os.path.basename(found[1]) in _SHELLS) else None
