"""Pieces of text that every report shares."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence

from supervise.model.need import Need

LABEL_WIDTH = 9
_SECRET_WORDS = ("KEY", "SECRET", "PASSWORD", "CREDENTIAL")
_SECRET_FLAGS = ("api-key", "password", "secret")
# A token is a secret only where it is the thing that is named: engines count tokens, and have tokenizers.
_TOKEN = re.compile(r"TOKEN(?:[-_]?\d+)?\Z", re.IGNORECASE)
HIDDEN = "***"
# The user-info of a URL (RFC 3986, 3.2.1): a password goes to the last `@` before the path.
_PASSWORD = re.compile(r'(?P<before>[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#"@:]*:)[^\s/?#"]+@')
# A user alone is a token where HTTP is spoken; elsewhere, with ssh above all, it is a name.
_TOKEN_ALONE = re.compile(r'(?P<before>(?<![A-Za-z0-9])https?://)[^\s/?#"@:]+@', re.IGNORECASE)
_SETTINGS = (
    "VLLM_", "SGLANG_", "SGL_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "TORCH",
    "PYTORCH_", "TRITON_", "FLASHINFER_", "RAY_", "OMP_", "HIP_", "ROCR_", "HSA_", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "PYTHONPATH", "VIRTUAL_ENV",
)  # fmt: skip


def printable(text: str) -> str:
    """Text from outside (a process title, a log line), harmless on a terminal: control characters become visible."""
    return "".join(c if c == "\t" or not _is_control(c) else f"\\x{ord(c):02x}" for c in text)


def _is_control(letter: str) -> bool:
    """Whether it may move a cursor: categories Cc, Cf and the like, and those that separate lines (Zl, Zp)."""
    category = unicodedata.category(letter)
    return category[0] == "C" or category in ("Zl", "Zp")


def shorten(text: str, width: int) -> str:
    """At most `width` characters, with an ellipsis where something was cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def home(path: str) -> str:
    """A path with the home directory as `~`."""
    base = os.path.expanduser("~")
    return "~" + path[len(base) :] if base != "/" and path.startswith(base + "/") else path


def duration(seconds: float) -> str:
    """Seconds as people say them: 0.41 s, 4.1 s, 142 s, 31 min, 5 h, 3 days."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} days"


def roughly(seconds: float) -> str:
    """Seconds as people guess them: 8 s, 75 s, 4 min, 3 h."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else duration(seconds)


def plural(count: int, noun: str) -> str:
    """`1 finding`, `2 findings`, `2 processes`."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def url(need: Need) -> str:
    """Where the server answers."""
    if need.uds is not None:
        return f"unix:{need.uds}"
    if need.http is None:
        return ""
    host = need.http.host or "0.0.0.0"
    return f"{need.scheme}://{f'[{host}]' if ':' in host else host}:{need.http.number}"


# argparse takes the beginning of a flag for the flag where it means only one.
_ABBREVIATED = (
    ("--api-k", "--api-key"),
    ("--admin-a", "--admin-api-key"),
    ("--ssl-keyfile-", "--ssl-keyfile-password"),
)


def redact(argv: Sequence[str]) -> list[str]:
    """The command line without secrets: values of flags and assignments whose name speaks of one, passwords in URLs."""
    shown: list[str] = []
    # Whether the next word is a secret, and whether it may also be the next flag.
    hide = further = False
    for word in argv:
        # What is given to our own --set: `env:NAME=a,b`, or a flag that may stand there without its dashes.
        joined = "--set=" if word.startswith("--set=") else ""
        swept = bool(joined) or shown[-1:] == ["--set"]
        name, equals, _ = word.removeprefix(joined).partition("=")
        secret = _is_secret(name.removeprefix("env:")) or (swept and _is_secret(f"--{name.lstrip('-')}"))
        if hide and not (further and word.startswith("-")):
            shown.append(HIDDEN)
            hide = further = _goes_on(shown)
            continue
        shown.append(joined + name + equals + HIDDEN if secret and equals else without_passwords(word))
        hide, further = secret and not equals and name.startswith("-"), False
    return shown


def without_passwords(word: str) -> str:
    """A word in which the passwords of URLs are hidden: `redis://ann:***@host`."""
    if "://" not in word:
        return word
    return _TOKEN_ALONE.sub(rf"\g<before>{HIDDEN}@", _PASSWORD.sub(rf"\g<before>{HIDDEN}@", word))


def hides(word: str) -> bool:
    """Whether a recorded word is not the one that was given, because a secret was in it."""
    return word == HIDDEN or f"{HIDDEN}@" in word


def settings(env: Mapping[str, str]) -> dict[str, str]:
    """What the environment says to engines and to what they are built on, without secrets, sorted by name."""
    return {
        name: HIDDEN if _is_secret(name) else without_passwords(value)
        for name, value in sorted(env.items())
        if name.startswith(_SETTINGS) and "\n" not in value
    }


def _goes_on(shown: Sequence[str]) -> bool:
    """Whether the flag whose value was hidden takes several: vLLM's does."""
    flag = next((word for word in reversed(shown) if word != HIDDEN), "")
    return flag.replace("_", "-") == "--api-key"


def _is_secret(name: str) -> bool:
    if name.startswith("-"):
        flag = name.lower().replace("_", "-")
        return (
            any(word in flag for word in _SECRET_FLAGS)
            or _TOKEN.search(flag) is not None
            or any(flag.startswith(least) and whole.startswith(flag) for least, whole in _ABBREVIATED)
        )
    speaks = any(word in name.upper() for word in _SECRET_WORDS) or _TOKEN.search(name) is not None
    return name.isidentifier() and speaks
