"""The engine's own YAML configuration, laid beneath its command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supervise.model.profile import Profile
from supervise.profiles.arguments import Arguments, from_yaml, read


def resolve(
    words: Sequence[str], profile: Profile, read_text: Callable[[str], str]
) -> tuple[Arguments, tuple[str, ...]]:
    """Read an engine's words, and the file that they name; the command line wins.

    Args:
        words: the engine's arguments, after its form.
        profile: knows its flags.
        read_text: gives a file's text; OSError and ValueError are turned into notes.

    Returns:
        The arguments, and sentences about what could not be read.
    """
    given = read(words, profile)
    flag = next((flag for flag in profile.config_flags if flag in given.flags), None)
    if flag is None:
        return given, ()
    if flag not in words:
        # Both engines look for the bare flag among their words and pass over the joined form.
        return given, (f"{flag}=… is not read: write its file as a word of its own",)
    path = next(iter(given.flags[flag]), None)
    if path is None:
        return given, (f"{flag} names no file",)
    return _with_file(given, profile, path, read_text)


def _with_file(
    given: Arguments, profile: Profile, path: str, read_text: Callable[[str], str]
) -> tuple[Arguments, tuple[str, ...]]:
    try:
        lower = read(from_yaml(_mapping(read_text(path))), profile)
    except (OSError, ValueError) as error:
        return given, (f"{path} is not understood, ports and devices may differ: {_why(error)}",)
    return given.over(lower, path), ()


def _mapping(text: str) -> Mapping[str, Any]:
    # Only who uses a configuration file pays for the import.
    import yaml

    try:
        data = yaml.safe_load(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise ValueError("no mapping of flags to values")
    return data


def _why(error: Exception) -> str:
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    return " ".join(str(reason).split())
