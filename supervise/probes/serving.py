"""Does the server of this group serve, and is it ours that answers?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from http import HTTPStatus

from supervise.host import procfs, sockets
from supervise.model.need import Need, Port
from supervise.model.probe import Answer, Probed
from supervise.model.process import Process
from supervise.model.profile import ReadyRule
from supervise.probes.http import CLOSED, Client
from supervise.probes.names import another, names
from supervise.text import redact

Members = Callable[[], Iterable[Process]]


class Asker:
    """Asks one server again and again, and for its names until they are known.

    Args:
        need: where it should listen, and what it should serve.
        rule: what to ask.
    """

    def __init__(self, need: Need, rule: ReadyRule) -> None:
        self._need, self._rule = need, rule

    def ready(self, members: Members) -> Probed:
        """Ask once; see `ready`."""
        probed = ready(self._need, self._rule, members)
        if probed.named:
            self._rule = replace(self._rule, models=None)
        return probed


def ready(need: Need, rule: ReadyRule, members: Members) -> Probed:
    """Ask whether the server of this group serves.

    Every listening socket on each of its ports must belong to a member of the group: a vLLM that starts on a port where
    another one listens loads, reports "Application startup complete." and never gets a request (VLLM_REAL.md section
    4); with SO_REUSEPORT both get some. Whether the model is the one that was asked for tells those apart who answer in
    its place without listening here, behind a proxy or a redirected port.

    Args:
        need: where it should listen, and what it should serve.
        rule: what to ask.
        members: reads who belongs to the group now.

    Returns:
        The answer; blocking, and bounded by the rule's time-out for each port, and once more for the names.
    """
    owned = _owned(need, members)
    if owned is not None:
        return owned
    if need.uds is None and need.http is None:
        return Probed(Answer.YES)
    if need.mutual_tls:
        return Probed(Answer.YES, note="clients must show a certificate: whether it answers is not asked")
    return _answered(need, rule)


def _answered(need: Need, rule: ReadyRule) -> Probed:
    """Whether it says that it is well, on every port that it should."""
    note = ""
    for each in _each(need):
        answer = None if rule.http is None else Client(each, each.key).get(rule.http, rule.timeout_s)
        if rule.http is not None and (answer is None or answer.status not in (HTTPStatus.OK, *CLOSED)):
            return Probed(Answer.NOT_YET, again_s=rule.every_s)
        if answer is not None and answer.status != HTTPStatus.OK:
            note = f"GET {rule.http} is answered {answer.status}: whether it is well cannot be asked"
    return _named(need, rule, note)


def _named(need: Need, rule: ReadyRule, note: str) -> Probed:
    """Whether it serves the model that was asked for; one that does not tell its name is believed."""
    yes = Probed(Answer.YES, note=note, again_s=rule.every_s)
    if rule.models is None or not need.served_names:
        return yes
    answer = Client(need, need.key).get(rule.models, rule.timeout_s)
    if answer is None or answer.status != HTTPStatus.OK:
        return yes._replace(named=answer is not None and answer.status in CLOSED)
    served = names(answer.body)
    if not served:
        return yes._replace(note=note or f"GET {rule.models} names no model")
    who = another(need, served, resolves=rule.resolves)
    return yes._replace(named=True) if who is None else Probed(Answer.NOT_OURS, who, again_s=rule.every_s)


def _each(need: Need) -> tuple[Need, ...]:
    """The need of each of its HTTP servers: vLLM has one for each rank if they are balanced from outside."""
    if need.uds is not None:
        return (need,)
    return tuple(replace(need, ports=(replace(port, role="http"),)) for port in need.doors)


def _owned(need: Need, members: Members) -> Probed | None:
    """What is wrong with who listens, None if nothing is."""
    doors: tuple[Port | None, ...] = (None,) if need.uds is not None else need.doors
    listening = [_listeners(need, port) for port in doors]
    left, sure = _not_of(frozenset().union(*listening), members)
    for inodes in listening:
        strangers = inodes & left
        # A Unix socket whose path another has taken since still listens, and can be reached by nobody.
        shared = strangers != inodes and sure and need.uds is None
        if strangers and (strangers == inodes or shared):
            return Probed(Answer.NOT_OURS, _holder(strangers) + (", besides ours" if shared else ""))
    return None if all(listening) else Probed(Answer.SILENT)


def _not_of(inodes: frozenset[int], members: Members) -> tuple[frozenset[int], bool]:
    """Which of these sockets no member holds, and whether every member could be looked at."""
    sure = True
    for member in members() if inodes else ():
        held = procfs.sockets_of(member.pid)
        sure = sure and held is not None
        inodes -= held or frozenset()
        if not inodes:
            break
    return inodes, sure


def _listeners(need: Need, port: Port | None) -> frozenset[int]:
    if port is None:
        return frozenset(sockets.unix_listeners().get(need.uds or "", ()))
    return frozenset(each.inode for each in sockets.listeners(port.number, port.host))


def _holder(inodes: frozenset[int]) -> str:
    for process in procfs.scan(environ=False).values():
        if inodes & (procfs.sockets_of(process.pid) or frozenset()):
            return f"pid {process.pid} {' '.join(redact(process.title.split()))[:80]}"
    return "a process that is not visible from here"
