"""What is left of a message when all that changes from run to run and from machine to machine is taken out of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from re import Match, Pattern

# What is cut off depends on how long numbers and paths are, so it is cut off far behind what is kept in the end.
_READ, _KEPT = 8_192, 400
_LONG_PATH = 512
# Digits that must stay, out of the reach of what takes numbers away: a private use area of Unicode.
_SHELTER = str.maketrans("0123456789", "".join(chr(0xE000 + digit) for digit in range(10)))

_Rule = tuple[Pattern[str], str | Callable[[Match[str]], str]]

_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
_STDLIB = re.compile(r".*/lib(?:64)?/(?:python|pypy)3?[\d.]*t?/")
_CHECKOUT = re.compile(r"(?:.*/)?(?=(?:vllm|sglang)[\w-]*/(?:.*/)?[^/]+\.py$)")
_TEMPORARY = re.compile(r"(?:/private)?(?:/var)?(?:/tmp|/folders/.*)|/dev/shm|/run/user/\d+")
# Names that mkstemp(3), Python's tempfile and the engines give: a word, and behind it what makes it unique.
_RANDOM_NAME = re.compile(r"(?P<word>tmp(?=\w{8}$)|[A-Za-z]*(?=[-_.\d]))?.*")


def place(path: str) -> str:
    """A path without what differs between installations.

    Args:
        path: as it was printed.

    Returns:
        For installed files, the standard library's and checkouts of engines what is below their directory; of all
        others the last name, of temporary ones only the word that it begins with.
    """
    path = path[-_LONG_PATH:].replace("\\", "/").rstrip("/")
    for root in (_INSTALLED, _STDLIB, _CHECKOUT):
        if found := root.match(path):
            return path[found.end() :]
    directory, _, name = path.rpartition("/")
    if _TEMPORARY.fullmatch(directory):
        random = _RANDOM_NAME.fullmatch(name)
        return f"<temporary>{(random['word'] or '') if random and random['word'] is not None else name}"
    return name


def _sheltered(found: Match[str]) -> str:
    return found[0].translate(_SHELTER)


def _xid(found: Match[str]) -> str:
    """The code without the PCI address of the GPU."""
    return f"Xid {found[0].rpartition(' ')[2].translate(_SHELTER)}"


def _quoted_path(found: Match[str]) -> str:
    return f"{found['quote']}{place(found['path'])}{found['quote']}"


def _bare_path(found: Match[str]) -> str:
    dots = "." * (len(found[0]) - len(found[0].rstrip(".")))
    return place(found[0].rstrip(".")) + dots


def _one_of_each(found: Match[str]) -> str:
    """Sets of Python have no order, and one name per layer becomes the same name many times."""
    names = sorted(set(re.findall(r"'[^']*'", found[0])))
    return f"{found[0][0]}{', '.join(names)}{found[0][-1]}"


# Who counts: a number that is joined to one of these words says which one, not what.
_COUNTED = (
    r"(?:local_?)?rank|gpu|cuda|hip|xpu|npu|device|process|thread(?:pool)?|executor|worker|engine_?core|node|stage|layers?|"
    r"experts?|blocks?|shard|replica|group|scheduler|port|pid|tid|request|req|step|iter|batch|cp|c?python|run|attempt"
)
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"

# How the phrases of RFC 9110 begin, and requests' "401 Client Error".
_REASONS = (
    "Client |Server |OK|Moved |Found|Bad |Unauthorized|Forbidden|Not |Method |Request |Conflict|Gone|Payload |Content |"
    "Unprocessable |Too |Internal |Service |Gateway "
)
_NUMBER = r"[-+]?(?<![A-Za-z0-9]-)\d++(?:[.,]\d++)*+(?:e[-+]?\d+)?"
# Two colons in a row, or more of them than a time of day has.
_IPV6 = r"[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}::|(?:[0-9a-f]{1,4}:){5}"
_UNIT = r"(?: ?(?:[KMGTP]i?B|[kKMGT]|B|bytes?|ms|us|ns|s|min|h|%))?"
_RULES: tuple[_Rule, ...] = (
    (re.compile(r"^\s*\[rank\d+\]:\s*"), ""),
    # pydantic quotes all arguments of a launch, torch counts every process of a GPU, lists of what would have been
    # right grow with each release.
    (re.compile(r",? ?input_value=.*"), ""),
    (re.compile(r"(?<=out of memory)\. Tried to allocate .*"), ""),
    (re.compile(r"(?:\b(?:choose|chose) from\b|\b[Mm]ust be one of\b|\b(?:Supported|Available) [\w ]{1,80}:).*"), ""),
    (re.compile(r"\bThe available \w+ .*"), ""),
    # Numbers that are names: HTTP's statuses, errno, exit statuses, signals, codes of CUDA, NCCL and the driver.
    (re.compile(r"(?i)\b(?:status|HTTP(?:/\d(?:\.\d)?)?|error)(?: code)?[ :=(]{1,3}-?\d{1,3}\b(?!\.?\d)"), _sheltered),
    (re.compile(rf"\b[1-5]\d\d (?={_REASONS})"), _sheltered),
    (re.compile(r"(?i)\b(?:errno[ :=]{1,3}-?\d{1,3}|signal[ :=(]{1,3}\d{1,2})\b"), _sheltered),
    (re.compile(r"(?i)\bexit(?:ed with)?[ -]?(?:code|status)?[ :=(]{1,3}-?\d{1,3}\b"), _sheltered),
    (re.compile(r"\bXid (?:\([^)]*\): )?\d{1,3}\b"), _xid),
    # Places.
    (re.compile(r"(?P<scheme>\bhttps?://)(?:[^\s/@'\"]*@)?(?P<rest>[^\s?#'\"]*)[^\s'\"]*"), r"\g<scheme>\g<rest>"),
    (re.compile(r"\b(tcp|ipc|inproc|unix|file|zmq|ws|wss|grpc)://[^\s'\"),\]}]*"), r"\1://#"),
    (re.compile(r"(?P<quote>['\"`])(?P<path>~?/[^'\"`]*)(?P=quote)"), _quoted_path),
    (re.compile(r"(?<![\w:/.~<-])~?/[^\s'\"`,;:()\[\]{}<>|=]+"), _bare_path),
    (re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])"), "#"),
    # Moments and identities.
    (
        re.compile(rf"(?:\b{_DAY},? )?\b{_MONTH} +\d{{1,2}},?(?= \d)|\b\d{{1,2}} {_MONTH}(?= \d)|\b{_DAY},? (?=\d)"),
        "# ",
    ),
    (re.compile(r"\b\d{4}[-/]\d\d[-/]\d\d(?:[T_ -]\d\d[:-]\d\d[:-]\d\d[\d.,]*)?(?:Z|[-+]\d\d:?\d\d)?"), "#"),
    (re.compile(rf"\[?\b(?={_IPV6})[0-9a-f:]{{3,45}}(?:%\w+)?\]?(?![\w:])"), "#"),
    (re.compile(r"(?:\b\d\d-\d\d )?(?<![\d.:])\d{1,2}:\d\d(?::\d\d[\d.,]*)?(?!\d)"), "#"),
    (re.compile(r"(?i)\b0x[0-9a-f]+\b"), "#"),
    (re.compile(r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "#"),
    (re.compile(r"(?i)(?<![0-9a-z])(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}(?![0-9a-z])"), "#"),
    (re.compile(r"(?<=-#)-[a-z0-9]{5}\b"), ""),
    # Who and how many.
    (re.compile(rf"(?i)(?P<word>{_COUNTED})(?P<joint>[-_:. ]?)\d++(?:[._]\d++)*+(?![a-z])"), r"\g<word>\g<joint>#"),
    (re.compile(r"(?<![A-Za-z])(?P<word>(?:TP|PP|DP|EP|CP|SP|DCP|MoE_?EP|ATTN_?TP)[_-]?)\d+"), r"\g<word>#"),
    (re.compile(r"(?<![A-Za-z0-9])\d{5}-of-\d{5}(?!\d)|(?<=[-_])\d{4,}(?![\w.])"), "#"),
    (re.compile(r"(?<![\w.-])\d+(?:-\d+|(?:[x×]\d+)+)(?![\w.-])"), "#"),
    (re.compile(rf"(?<![\w.]){_NUMBER}{_UNIT}(?!\w)"), "#"),
    (re.compile(r"(?<=\.)\d+(?=\.|\b(?![\w-]))"), "#"),
    # What is left of lists and shapes.
    (re.compile(r"#(?: ?[,x×] ?#)+"), "#"),
    (re.compile(r"[{\[]'[^'{}\[\]]*'(?:, '[^'{}\[\]]*')*[}\]]"), _one_of_each),
    (re.compile(r"\s+"), " "),
)


def essence(message: str) -> str:
    """Take everything out of a message that does not say what went wrong.

    Args:
        message: a line without its prefix.

    Returns:
        At most 400 characters. `#` stands for numbers, sizes, durations, dates, addresses, ids; paths are what `place`
        makes of them. Names of tensors and parameters stay, the numbers of layers and experts in them do not. Numbers
        that are joined to a word (`w13_weight`, `fp8`, `sm_90`) and codes of errors, signals and HTTP stay.
    """
    text = message[:_READ]
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text.strip()[:_KEPT]
