"""Where a reinstallation has to put a package so that it replaces the one that was compared, and no other. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

_SITE = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python3\.\d+t?/(?P<kind>site-packages|dist-packages)")


def place(
    site: str, executable: str, base: str, tops: Collection[str], listed: Collection[str]
) -> tuple[str, ...] | None:
    """The words that tell an installer where.

    Args:
        site: the directory that the package is in.
        executable: the Python that the installer is run with.
        base: the same with its links resolved, unless it is that of a virtual environment.
        tops: the package's own directories.
        listed: the files of its RECORD.

    Returns:
        None of them where the installer would choose that directory itself; None where no words lead there safely: what
        is below `--target` is replaced as whole directories, which others may share (PEP 420).
    """
    match = _SITE.fullmatch(site)
    prefixes = {os.path.dirname(os.path.dirname(path)) for path in (executable, base)}
    if match is None:
        whole = "-packages" not in os.path.basename(site) and all(f"{top}/__init__.py" in listed for top in tops)
        return ("--target", site) if whole else None
    prefix = match["prefix"]
    if prefix in prefixes or (prefix == "/usr/local" and "/usr" in prefixes):
        return ()
    # Debian puts what is installed with a prefix elsewhere below it.
    return ("--prefix", prefix) if match["kind"] == "site-packages" and "/usr" not in prefixes else None
