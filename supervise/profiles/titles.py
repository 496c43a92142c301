"""Titles of renamed processes, where the user has changed how they begin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from supervise.model.profile import Profile


def in_environment(profile: Profile, env: Mapping[str, str]) -> Profile:
    """The profile with the titles that its processes have under an environment, in addition to those by default.

    Args:
        profile: its `title_prefix` names the variable, VLLM_PROCESS_NAME_PREFIX for vLLM.
        env: the server's environment.

    Returns:
        The same profile if the environment changes nothing.
    """
    if profile.title_prefix is None:
        return profile
    variable, default = profile.title_prefix
    prefix = env.get(variable) or default
    if prefix == default:
        return profile
    beginning = f"{re.escape(default)}::"
    renamed = [
        re.compile(f"{re.escape(prefix)}::{title.pattern.removeprefix(beginning)}")
        for title in profile.titles
        if title.pattern.startswith(beginning)
    ]
    return replace(profile, titles=(*profile.titles, *renamed))
