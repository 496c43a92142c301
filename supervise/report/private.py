"""Takes out of a text what must not be read by others: secrets, and the names of users in paths. Pure."""

from __future__ import annotations

import re

from supervise.text import HIDDEN

_LONGEST = 4096
_VALUE = r"(?:\[[^\]\n]*\]|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&)\]}'\"]+)"
# Words that follow a name of a secret and are none.
_HARMLESS = r"(?!(?:None|null|True|False|true|false|\*\*\*)\b|\d{1,6}\b)"
# Special tokens of a model, numbers of tokens and tokenizers are no secrets.
_NAME = (
    r"(?<![A-Za-z])(?:[A-Za-z0-9]+[-_])*?(?<!eos_)(?<!bos_)(?<!pad_)(?<!unk_)(?<!mask_)"
    r"(?:api[-_]?keys?|access[-_]?key(?:[-_]?id)?|(?:secret|private|encryption|signing)[-_]?(?:access[-_]?)?key|token|secret|"
    r"password|passwd|passphrase|credentials?)(?![A-Za-z]|[-_](?!id\b))"
)

_FORMS = (
    # Hugging Face, OpenAI and its like, GitHub, GitLab, Slack, AWS, Google, NVIDIA, JSON Web Tokens.
    (re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{8,}"), HIDDEN),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), HIDDEN),
    (
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{12,}|xox[abeprs]-[\w-]{10,})"),
        HIDDEN,
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bnvapi-[\w-]{16,}"), HIDDEN),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]+(?:\.[\w-]*)?"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"), HIDDEN),
    (re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@'\"]+@"), rf"\g<scheme>{HIDDEN}@"),
)
_SECRETS = (
    *_FORMS,
    # By what stands in front of them; a flag may have several.
    (re.compile(r"(?i)\b(bearer|basic)\s+(?!auth\b|realm\b)[A-Za-z0-9+/=._~-]{6,}"), rf"\1 {HIDDEN}"),
    (re.compile(rf"(?i)(--?{_NAME})(=|\s+){_HARMLESS}(?!-){_VALUE}(?:\s+(?!-){_VALUE})*"), rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)([\"']?{_NAME}[\"']?\s*(?:=|:)\s*){_HARMLESS}{_VALUE}"), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"(?i)([?&](?:[\w.-]*(?:sig|signature|token|key|auth|secret|credential|password)[\w.-]*)=)[^&\s'\"]+"
        ),
        rf"\1{HIDDEN}",
    ),
)
_HOMES = re.compile(r"(?<![\w.~-])(?:/(?:home|Users)/[^/\s'\":,)\]]+|/root)(?=[/\s'\":,)\]]|$)")


def private(text: str) -> str:
    """A text that may be shown to others.

    Args:
        text: a line of a log, a command line.

    Returns:
        The same with `***` for every secret that bears the form or the name of one, and `~` for home directories; at
        most its first 4096 characters.
    """
    text = text[:_LONGEST]
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return _HOMES.sub("~", text)


def is_secret(text: str) -> bool:
    """Whether something in a text is a secret by its form alone: a token of a known kind, a password in a URL.

    Args:
        text: a word of a command line.
    """
    return any(pattern.search(text[:_LONGEST]) for pattern, _ in _FORMS)
