"""The live view: a scene as lines of text, as many and as wide as there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from rich.console import Group
from rich.text import Text

from supervise.report.scene import Card, Phase, Scene
from supervise.text import duration, printable

# Of a terminal of 20 columns: the last one stays empty, for some terminals begin a new line once it is written.
_LEAST_WIDTH = 19
_MARGIN = 2
# Of a text; no terminal is wider.
_MOST = 1000
_SHORTEST_BAR, _LONGEST_BAR = 8, 40
# A GPU's label, bar and figures, and how many of them may stand beside each other.
_CARD_BAR, _MOST_CARDS = 10, 4
_GIB = 1024**3
_PULSE = 4
_KEYS = (("q", "stop"), ("r", "relaunch"), ("c", "clean relaunch"), ("?", "keys"))
_HELP = (
    ("q", "stop, as Ctrl-C does; once more: without grace"),
    ("r", "stop path, clean slate, next attempt"),
    ("c", "the same, and the compile caches are moved aside first"),
    ("Ctrl-Z", "suspend supervise and the server"),
    ("?", "hide this"),
)


class Rank:
    """What is left out first where there is little room: the highest number."""

    HEAD, FATAL, PRESENT, KEYS, HELP, CARDS, PAST, LOG, TO_COME, RULE = range(10)


class _Row(NamedTuple):
    """A line; of one rank the one with the higher `order` is left out first."""

    rank: int
    text: Text
    order: int = 0


def render(scene: Scene, width: int, height: int) -> Group:
    """A scene as lines.

    Args:
        scene: what is to be seen.
        width: columns that a line may have.
        height: lines that there may be.

    Returns:
        At most that; nothing at all where not even one line has room.
    """
    if width < _LEAST_WIDTH or height < 1:
        return Group()
    rows = list(_rows(_harmless(scene), width))
    kept = sorted(range(len(rows)), key=lambda at: (rows[at].rank, rows[at].order))[:height]
    return Group(*(_cut(rows[at].text, width) for at in sorted(kept)))


def _harmless(scene: Scene) -> Scene:
    """Without what would do something else on a terminal than stand there."""
    return replace(
        scene,
        run=_shown(scene.run),
        eta=_shown(scene.eta),
        fatal=_shown(scene.fatal),
        why=_shown(scene.why),
        restarted_for=_shown(scene.restarted_for),
        url=_shown(scene.url),
        log=tuple(map(_shown, scene.log)),
        phases=tuple(phase._replace(name=_shown(phase.name)) for phase in scene.phases),
        cards=tuple(card._replace(label=_shown(card.label)) for card in scene.cards),
    )


def _shown(text: str) -> str:
    return printable(text[:_MOST]).replace("\t", " ")


def _cut(text: Text, width: int) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    text.truncate(width, overflow="ellipsis")
    return text


def _rows(scene: Scene, width: int) -> Iterator[_Row]:
    yield _Row(Rank.RULE, Text("─" * width, "dim"))
    yield _Row(Rank.HEAD, _head(scene))
    if scene.fatal:
        yield _Row(Rank.FATAL, _pair("fatal", scene.fatal, "red"))
    if scene.restarts and scene.state != "waiting":
        yield _Row(Rank.PAST, _pair("restarts", f"{scene.restarts}, the last for: {scene.restarted_for}"))
    yield from _phases(scene, width)
    yield from _cards(scene.cards, width)
    for at, line in enumerate(scene.log):
        yield _Row(Rank.LOG, Text(f"{'':{_MARGIN}}{line}", "dim"), len(scene.log) - at)
    if scene.keys:
        if scene.help:
            told = [(key, says) for key, says in _HELP if key in scene.keys or len(key) > 1]
            yield from (_Row(Rank.HELP, _pair(key, says), at) for at, (key, says) in enumerate(told))
        else:
            yield _Row(Rank.KEYS, _keys(scene.keys))


def _head(scene: Scene) -> Text:
    head = Text.assemble((scene.run, "bold"), f"  attempt {scene.attempt}  ")
    match scene.state:
        case "ready":
            head.append("ready", "bold green").append(f" since {scene.since}")
            return head.append(f"   {scene.url}", "bold") if scene.url else head
        case "waiting":
            return head.append("waiting", "bold yellow").append(f"  {_waits(scene)}")
        case "starting":
            head.append("loading", "bold cyan")
        case _:
            head.append("stopping", "bold yellow").append(f"  {scene.why}")
    head.append(f"  +{_clock(scene.elapsed_s)}")
    return head.append(f"  {scene.eta}", "bold") if scene.eta else head


def _waits(scene: Scene) -> str:
    by_key = "r" in scene.keys
    if scene.eta:
        what = f"the next attempt begins {scene.eta}{', with r now' * by_key}"
    else:
        what = f"for a change of a watched file{', or for r' * by_key}"
    return f"{what}  ({scene.why})" if scene.why else what


def _clock(seconds: float) -> str:
    """Whole seconds, so that nothing flickers."""
    return duration(seconds) if seconds >= 10 else f"{seconds:.0f} s"


# --- phases -----------------------------------------------------------------------------------------------------------


def _phases(scene: Scene, width: int) -> Iterator[_Row]:
    begun = sum(phase.seconds is not None for phase in scene.phases)
    names = max((len(phase.name) for phase in scene.phases), default=0)
    bar = max(_SHORTEST_BAR, min(_LONGEST_BAR, width - _MARGIN - names - 36))
    for at, phase in enumerate(scene.phases):
        text = Text(f"{'':{_MARGIN}}{phase.name:<{names}}  ")
        if phase.seconds is None:
            yield _Row(Rank.TO_COME, text.append("─" * bar, "dim").append(_usually(phase), "dim"), at)
        elif at + 1 < begun:
            yield _Row(Rank.PAST, text.append("━" * bar, "green").append(f"  {_clock(phase.seconds):>7}"), begun - at)
        else:
            yield _Row(Rank.PRESENT, _present(text, phase, scene, bar))


def _present(text: Text, phase: Phase, scene: Scene, width: int) -> Text:
    """By what the log says, else by what it used to take, else something that moves."""
    seconds = phase.seconds or 0.0
    share = _share(phase, seconds, scene.percent)
    if share is None:
        at = int(seconds) % (width - _PULSE + 1)
        text.append("─" * at, "dim").append("━" * _PULSE, "cyan").append("─" * (width - _PULSE - at), "dim")
    else:
        _bar(text, share, width, "cyan")
    text.append(f"  {_clock(seconds):>7}")
    if scene.percent is not None:
        text.append(f"  {scene.percent:.0f} %")
    if scene.total:
        text.append(f"  ({scene.done}/{scene.total})")
    elif scene.percent is None:
        text.append(_usually(phase), "dim")
    return text


def _usually(phase: Phase) -> str:
    """What it used to take, where that is a second at least."""
    return "" if phase.usual_s is None or phase.usual_s < 1 else f"  usually {_clock(phase.usual_s)}"


def _share(phase: Phase, seconds: float, percent: float | None) -> float | None:
    if percent is not None:
        return percent / 100
    return min(0.99, seconds / phase.usual_s) if phase.usual_s else None


def _bar(text: Text, share: float, width: int, style: str) -> Text:
    filled = round(max(0.0, min(1.0, share)) * width)
    return text.append("━" * filled, style).append("─" * (width - filled), "dim")


# --- the rest ---------------------------------------------------------------------------------------------------------


def _cards(cards: Sequence[Card], width: int) -> Iterator[_Row]:
    """As many beside each other as there is room for."""
    cells = [_card(card) for card in cards]
    widest = max((cell.cell_len for cell in cells), default=1)
    beside = max(1, min(_MOST_CARDS, width // (widest + _MARGIN)))
    for first in range(0, len(cells), beside):
        row = Text()
        for cell in cells[first : first + beside]:
            cell.pad_right(widest - cell.cell_len)
            row.append(" " * _MARGIN).append_text(cell)
        yield _Row(Rank.CARDS, row, first)


def _card(card: Card) -> Text:
    share = card.used / card.total if card.total else 0.0
    style = "red" if share > 0.98 else "magenta"
    text = _bar(Text(f"{card.label} "), share, _CARD_BAR, style)
    return text.append(f" {card.used / _GIB:5.1f}/{card.total / _GIB:.1f} GiB")


def _pair(label: str, told: str, style: str = "") -> Text:
    return Text.assemble(" " * _MARGIN, (f"{label:<8}", "bold"), f" {told}", style=style)


def _keys(known: str) -> Text:
    text = Text(" " * _MARGIN)
    for key, says in _KEYS:
        if key in known:
            text.append(key, "bold").append(f" {says}   ", "dim")
    text.rstrip()
    return text
