"""A run as numbers, for Prometheus.

Every series bears the labels `run` and `engine`. Nothing global of prometheus_client is used: its own default registry
would tell of our process under names that are the server's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from supervise.host import ourselves
from supervise.report.tally import KILL_BOUNDS_S, STATES, Labels, Tally


class Metrics(Collector):
    """Tells how things stand whenever it is asked, from whichever thread.

    Args:
        run: name of the run.
        engine: name of its profile.
        version: supervise's.
        clock: monotonic seconds.
        now: seconds since the epoch.

    Attributes:
        tally: is to hear what happens.
    """

    def __init__(
        self,
        run: str,
        engine: str,
        version: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.tally = Tally(clock)
        self._common = {"run": run, "engine": engine}
        self._version, self._began_at = version, now()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """How things stand; see docs/metrics.md."""
        yield from self._standing()
        yield from self._history()
        yield from self._last_attempt()
        yield from self._ourselves()

    def _standing(self) -> Iterator[Metric]:
        tally, state = self.tally, self.tally.state
        version = {"version": self._version, "profile": self._common["engine"]}
        yield self._gauge("info", "Which supervise, and by which profile the server is known.", 1, version)
        yield self._gauge("up", "1 while supervise is at work, 0 once it has left.", int(tally.up))
        yield self._gauge("ready", "1 while the server is proven to serve.", int(state == "ready"))
        states: dict[Labels, float] = {(name,): int(name == state) for name in STATES}
        yield self._gauges("state", "1 for the state that the run is in.", states, ("state",))
        if tally.exit_status is not None:
            yield self._gauge("exit_status", "The status that supervise has left with.", tally.exit_status)

    def _history(self) -> Iterator[Metric]:
        tally = self.tally
        yield self._counter("attempts", "Launches of the server.", {(): tally.attempts})
        text = "Launches after the first, by the class of what the attempt before failed of; asked: somebody wanted it."
        yield self._counter("restarts", text, tally.restarts, ("class",))
        text = "Attempts that failed, by outcome, class and known failure."
        yield self._counter("failures", text, tally.failures, ("outcome", "class", "signature"))
        text = "What dirtied the slate before a launch, by kind."
        yield self._counter("slate_findings", text, tally.findings, ("kind",))
        yield self._counter("stalls", "Times that start-up went on no more.", {(): tally.stalls})
        yield self._counter("hangs", "Times that a server was proven to hang.", {(): tally.hangs})
        yield self._kills()

    def _kills(self) -> Metric:
        tally = self.tally
        text = "Seconds until the group of an attempt was empty."
        family = HistogramMetricFamily("supervise_kill_seconds", text, labels=list(self._common))
        buckets = [(str(bound), float(tally.kills[bound])) for bound in KILL_BOUNDS_S]
        family.add_metric(list(self._common.values()), [*buckets, ("+Inf", float(tally.ends))], tally.ends_s)
        return family

    def _last_attempt(self) -> Iterator[Metric]:
        tally, size = self.tally, self.tally.log_bytes
        if tally.attempt is not None:
            yield self._gauge("attempt", "Number of the newest attempt.", tally.attempt)
        phases: dict[Labels, float] = {(phase,): seconds for phase, seconds in tally.phases().items()}
        yield self._gauges("phase_seconds", "Seconds in each phase of the newest start-up.", phases, ("phase",))
        if tally.ready_s is not None:
            yield self._gauge("ready_seconds", "Seconds until the newest attempt was ready.", tally.ready_s)
        yield self._gauge("survivors", "Processes that were left after the newest verified end.", tally.survivors)
        if size is None and tally.log is not None:
            size = ourselves.size_of(tally.log)
        if size is not None:
            yield self._gauge("log_bytes", "Size of the newest attempt's log.", size)

    def _ourselves(self) -> Iterator[Metric]:
        yield self._gauge("start_time_seconds", "When supervise began, seconds since the epoch.", self._began_at)
        if (resident := ourselves.resident_bytes()) is not None:
            yield self._gauge("resident_memory_bytes", "Memory of supervise itself.", resident)
        if (descriptors := ourselves.open_descriptors()) is not None:
            yield self._gauge("open_fds", "Open descriptors of supervise itself.", descriptors)

    def _gauge(self, name: str, text: str, value: float, more: Mapping[str, str] | None = None) -> Metric:
        labels = dict(more or {})
        return self._gauges(name, text, {tuple(labels.values()): value}, tuple(labels))

    def _gauges(self, name: str, text: str, values: Mapping[Labels, float], labels: Labels = ()) -> Metric:
        return self._filled(GaugeMetricFamily, name, text, values, labels)

    def _counter(self, name: str, text: str, values: Mapping[Labels, int], labels: Labels = ()) -> Metric:
        return self._filled(CounterMetricFamily, name, text, values, labels)

    def _filled(
        self,
        kind: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        values: Mapping[Labels, float],
        labels: Labels,
    ) -> Metric:
        family = kind(f"supervise_{name}", text, labels=[*self._common, *labels])
        # A copy: the loop's thread counts on.
        for more, value in dict(values).items():
            family.add_metric([*self._common.values(), *more], value)
        return family
