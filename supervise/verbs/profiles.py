"""`supervise profiles`: what engines are known, and from which file."""

from __future__ import annotations

import sys

from supervise.model.profile import Form, Profile
from supervise.profiles.load import load, names


def profiles(name: str | None) -> int:
    """List all profiles, or show one.

    Args:
        name: the profile; None for all.

    Returns:
        0.

    Raises:
        ProfileError: there is none of that name, or one is damaged.
    """
    if name is None:
        known = [load(each) for each in names()]
        sys.stdout.write("".join(f"{profile.name:<10} {profile.summary}\n" for profile in known))
    else:
        sys.stdout.write(_show(load(name)))
    return 0


def _show(profile: Profile) -> str:
    lines = [
        f"{profile.name}: {profile.summary}",
        f"file      {profile.source}",
        *(f"starts as {_form(form)}" for form in profile.forms),
        f"ready     {' or '.join(line.pattern for line in profile.ready.lines) or 'no line'}; GET {profile.ready.http}",
        f"phases    {', '.join(dict.fromkeys(phase.name for phase in profile.phases))}",
        f"titles    {', '.join(title.pattern for title in profile.titles)}",
        f"protected {', '.join(title.pattern for title in profile.protected)}",
        f"grace     {profile.grace_s:.0f} s, then everybody is told; a fatal line may linger {profile.linger_s:.0f} s",
        f"causes    {', '.join(profile.signatures)}",
    ]
    return "\n".join(lines) + "\n"


def _form(form: Form) -> str:
    start = f"python -m {form.module}" if form.module else form.program or "any program"
    return " ".join((start, *form.words))
