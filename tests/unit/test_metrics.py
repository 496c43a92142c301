"""Metrics from histories of news, as Prometheus reads them; each figure with what must not count."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from supervise.model.news import (
    BecameReady,
    Ended,
    Entered,
    Launched,
    Over,
    Progressed,
    Relaunching,
    Stalled,
    Swept,
    WasHung,
)
from supervise.model.slate import Finding, Outcome, Ownership, SlateResult, Verdict
from supervise.report.metrics import Metrics

COMMON = {"run": "vllm-8000", "engine": "vllm"}


class Told:
    """Metrics with a clock of their own, read back."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = Metrics("vllm-8000", "vllm", "1.2.3", clock=lambda: self.now, now=lambda: 1000.0)

    def hear(self, *news) -> Told:
        for each in news:
            self.metrics.tally.hear(each)
        return self

    def samples(self) -> dict[str, dict[tuple, float]]:
        found: dict[str, dict[tuple, float]] = {}
        for family in text_string_to_metric_families(self.metrics.text().decode()):
            for sample in family.samples:
                labels = dict(sample.labels)
                assert {name: labels.pop(name) for name in COMMON} == COMMON
                found.setdefault(sample.name, {})[tuple(sorted(labels.items()))] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples().get(f"supervise_{name}", {}).get(tuple(sorted(labels.items())))


def ended(attempt: int = 1, **more) -> Ended:
    told = {
        "exit_status": 1, "outcome": "died", "cause": "boom", "failure": "transient", "signature": "address-in-use",
        "fingerprint": None, "ready_s": None, "phases": {}, "stop_s": 0.3, "survivors": 0, "log_bytes": 77,
        "asked": False, "log": "/l",
    }  # fmt: skip
    return Ended(attempt, **{**told, **more})


def entered(state: str) -> Entered:
    return Entered(state, 1, None, None, 0.0)


def launched(attempt: int = 1, log: str = "/nowhere") -> Launched:
    return Launched(attempt, log, 4711)


def test_before_anything_everything_is_nought_and_nothing_is_made_up():
    told = Told()
    assert told.value("info", version="1.2.3", profile="vllm") == 1
    assert (told.value("up"), told.value("ready"), told.value("attempts_total"), told.value("survivors")) == (
        1,
        0,
        0,
        0,
    )
    assert told.value("start_time_seconds") == 1000
    assert told.value("resident_memory_bytes") > 2**20
    assert told.value("open_fds") >= 3
    for absent in ("ready_seconds", "log_bytes", "attempt", "exit_status"):
        assert told.value(absent) is None
    assert not [name for name in told.samples() if name.endswith("_created")]


def test_one_state_at_a_time():
    told = Told()
    for state in ("starting", "ready", "stopping"):
        told.hear(entered(state))
        states = {dict(labels)["state"]: value for labels, value in told.samples()["supervise_state"].items()}
        assert [name for name, value in states.items() if value] == [state]
        assert len(states) == 9
        assert told.value("ready") == (state == "ready")


def test_restarts_are_counted_by_the_class_of_what_went_before():
    told = Told().hear(launched(1), ended(1), Relaunching(1, 4.0, "transient, 1 of 5", "boom", "transient"))
    assert told.value("restarts_total", **{"class": "transient"}) == 0  # not yet: it may be called off
    told.hear(launched(2), ended(2, failure="load"), launched(3), ended(3, asked=True, failure=None), launched(4))
    counts = {dict(labels)["class"]: value for labels, value in told.samples()["supervise_restarts_total"].items()}
    assert counts == {"transient": 1, "load": 1, "asked": 1, "deterministic": 0, "unknown": 0}
    assert told.value("attempts_total") == 4 == sum(counts.values()) + 1
    assert told.value("attempt") == 4


def test_a_stop_that_was_asked_for_is_no_failure_unless_it_had_failed():
    told = Told().hear(launched(), ended(asked=True, failure=None, outcome="asked"))
    assert "supervise_failures_total" not in told.samples()
    told.hear(
        ended(), ended(), ended(asked=True, outcome="asked"), ended(failure=None, outcome="keeper-lost", signature=None)
    )
    failures = told.samples()["supervise_failures_total"]
    assert {tuple(dict(labels).values()): value for labels, value in failures.items()} == {
        ("transient", "died", "address-in-use"): 2,
        ("transient", "asked", "address-in-use"): 1,
        ("unknown", "keeper-lost", ""): 1,
    }


def test_thousand_signatures_do_not_make_a_thousand_series():
    told = Told().hear(*(ended(signature=f"own-{number}") for number in range(1000)))
    failures = told.samples()["supervise_failures_total"]
    assert len(failures) <= 201
    assert sum(failures.values()) == 1000
    assert told.value("failures_total", outcome="died", signature="other", **{"class": "transient"}) == 800


def test_phases_go_on_while_it_starts_and_are_replaced_by_what_was_measured():
    told = Told().hear(launched(), Progressed("imports", None, None, None, 0.0, None, True))
    told.now += 5
    assert told.value("phase_seconds", phase="imports") == 5
    told.hear(Progressed("load", None, None, None, 5.0, None, True))
    told.now += 7
    told.hear(Progressed("load", 50, 1, 2, 12.0, None, False))
    assert (told.value("phase_seconds", phase="imports"), told.value("phase_seconds", phase="load")) == (5, 7)
    told.hear(BecameReady(1, 12.5, {"imports": 5.1, "load": 7.4}))
    told.now += 100
    assert told.value("phase_seconds", phase="load") == 7.4
    assert told.value("ready_seconds") == 12.5
    told.hear(ended(ready_s=12.5, phases={"imports": 5.1, "load": 7.4}), launched(2))
    assert told.value("ready_seconds") is None
    assert told.value("phase_seconds", phase="load") is None


def test_findings_are_counted_by_kind_and_remarks_are_none():
    finding = Finding("process", "pid 7", Ownership.STALE, ())
    result = SlateResult(
        "r",
        (Outcome(finding, Verdict.GONE, "ended", 0.1), Outcome(finding, Verdict.REMAINS, "", 0.1)),
        (Finding("port", "8000", Ownership.FOREIGN, ()),),
        (Finding("cache", "x", Ownership.UNKNOWN, ()),),
        (),
        0.1,
    )
    told = Told().hear(Swept(result), Swept(result))
    assert (told.value("slate_findings_total", kind="process"), told.value("slate_findings_total", kind="port")) == (
        4,
        2,
    )
    assert told.value("slate_findings_total", kind="cache") is None


def test_ends_stalls_and_hangs(tmp_path):
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 33)
    told = Told().hear(launched(log=str(log)), Stalled("load", "no progress"), WasHung(("a", "b")))
    assert (told.value("stalls_total"), told.value("hangs_total"), told.value("log_bytes")) == (1, 1, 33)
    told.hear(ended(stop_s=0.3, survivors=2), ended(stop_s=20.0))
    assert told.value("kill_seconds_bucket", le="0.1") == 0
    assert told.value("kill_seconds_bucket", le="0.5") == 1
    assert told.value("kill_seconds_bucket", le="30.0") == told.value("kill_seconds_bucket", le="+Inf") == 2
    assert (told.value("kill_seconds_count"), told.value("kill_seconds_sum")) == (2, 20.3)
    assert (told.value("survivors"), told.value("log_bytes")) == (0, 77)


def test_once_it_has_left_it_is_not_up():
    told = Told().hear(entered("ready"), Over(96, "gave up", None))
    assert (told.value("up"), told.value("ready"), told.value("state", state="done")) == (0, 0, 1)
    assert told.value("exit_status") == 96


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb"])
def test_a_name_from_outside_breaks_no_line(name):
    told = Told().hear(ended(signature=name))
    assert told.value("failures_total", outcome="died", signature=name, **{"class": "transient"}) == 1
