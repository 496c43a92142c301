"""The ports that a launch will bind on this host, by the rules of its profile."""

from __future__ import annotations

from collections.abc import Iterator

from supervise.model.need import Port
from supervise.model.profile import PortRule, Profile
from supervise.profiles.values import Values

_EVERYWHERE = "0.0.0.0"
_HIGHEST = 65535


def ports(values: Values, profile: Profile) -> tuple[Port, ...]:
    """Tell the ports that are certain: given, or by default and bound in this mode.

    Args:
        values: looks up what was given; a text that is no port becomes a note.
        profile: its port rules.

    Returns:
        The ports in the order of the rules; none over HTTP if the server listens on a Unix socket.
    """
    return tuple(port for rule in profile.ports if _applies(rule, values) for port in _of(rule, values))


def _applies(rule: PortRule, values: Values) -> bool:
    if rule.value == "port" and values.given("uds"):
        return False
    if not all(map(values.given, rule.when)) or any(map(values.given, rule.unless)):
        return False
    if rule.multi_node and (values.number("nodes") or 1) <= 1:
        return False
    return not (rule.first_node and values.number("node_rank"))


def _of(rule: PortRule, values: Values) -> Iterator[Port]:
    text = values.text(rule.value)
    base = None if text is None else _number(text, rule, values)
    if base is None:
        return
    first = base + rule.offset if base + rule.offset <= _HIGHEST else base - rule.offset
    host = (values.text(rule.host) if rule.host else None) or _EVERYWHERE
    count = (values.number(rule.count) if rule.count else None) or rule.width
    for number in range(first, min(first + max(count, 1), _HIGHEST + 1)):
        yield Port(number, host, rule.role, values.source(rule.value))


def _number(text: str, rule: PortRule, values: Values) -> int | None:
    digits = text.rpartition(":")[2]
    # int() takes more than a parser of ports should: blanks, underscores, other scripts.
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_HIGHEST)) else -1
    if 0 < number <= _HIGHEST:
        return number
    source = values.source(rule.value)
    if number == 0:
        values.note(f"{source} 0: the kernel chooses the port, so that it is not known beforehand")
    else:
        values.note(f"{source} {text!r} is not a port (1 to {_HIGHEST})")
    return None
