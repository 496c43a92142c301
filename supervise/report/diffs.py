"""Unified diffs that `patch -p1` and `git apply` take, whatever the files end with, within a bounded time. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

_CONTEXT = 3
# difflib takes the product of both numbers of lines at worst: beyond it, what differs is one block.
_MOST_WORK = 4_000_000
_NO_END = "\\ No newline at end of file\n"

Opcode = tuple[str, int, int, int, int]


def unified(path: str, before: Sequence[str] | None, after: Sequence[str] | None) -> tuple[str, int, int]:
    """The diff of one file.

    Args:
        path: its name, relative.
        before: its lines with their ends, None if there was no such file.
        after: likewise.

    Returns:
        The text, and how many lines were added and removed; an empty text where only the being of an empty file
        differs.
    """
    old, new = before or (), after or ()
    text: list[str] = []
    added = removed = 0
    for group in _grouped(_opcodes(old, new)):
        text.append(_heading(group))
        for kind, i, j, k, m in group:
            if kind == "equal":
                text += [_line(" ", line) for line in old[i:j]]
                continue
            text += [_line("-", line) for line in old[i:j]]
            text += [_line("+", line) for line in new[k:m]]
            added, removed = added + m - k, removed + j - i
    if text:
        text.insert(0, f"--- {_name('a', path, before)}\n+++ {_name('b', path, after)}\n")
    return "".join(text), added, removed


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """What is equal, replaced, deleted and inserted; most edits leave all but a few lines at both ends alone."""
    most = min(len(old), len(new))
    head = next((at for at in range(most) if old[at] != new[at]), most)
    tail = next((at for at in range(most - head) if old[-1 - at] != new[-1 - at]), most - head)
    i, k = len(old) - tail, len(new) - tail
    codes: list[Opcode] = [("equal", 0, head, 0, head)] if head else []
    if (i - head) * (k - head) > _MOST_WORK:
        codes.append(("replace", head, i, head, k))
    else:
        found = SequenceMatcher(None, old[head:i], new[head:k], autojunk=False).get_opcodes()
        codes += [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in found]
    if tail:
        codes.append(("equal", i, len(old), k, len(new)))
    return codes


def _grouped(codes: Sequence[Opcode]) -> Iterator[list[Opcode]]:
    """Changes with the lines around them, each with those that are near."""
    if all(kind == "equal" for kind, *_ in codes):
        return
    matcher = SequenceMatcher(None, "", "")
    # What get_opcodes() returns if it has been worked out before.
    matcher.opcodes = list(codes)  # type: ignore[attr-defined]
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [(str(kind), i, j, k, m) for kind, i, j, k, m in group]


def _heading(group: Sequence[Opcode]) -> str:
    first, last = group[0], group[-1]
    return f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@\n"


def _range(start: int, stop: int) -> str:
    """As in diff(1): counted from 1, an empty one is after its line."""
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _line(sign: str, line: str) -> str:
    return sign + line if line.endswith("\n") else f"{sign}{line}\n{_NO_END}"


def _name(side: str, path: str, lines: Sequence[str] | None) -> str:
    return "/dev/null" if lines is None else f"{side}/{path}"
