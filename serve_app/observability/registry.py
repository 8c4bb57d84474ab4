"""A process's metrics and their snapshots.

Counting is prometheus_client's. A snapshot is what travels to the collector: the names of all series once, then their
values alone, since 1,000 series are 100 kB with their names and 8 kB without.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric as Collected

from serve_app.observability.catalogue import BY_NAME, Kind, Metric

Values = npt.NDArray[np.float64]
FOREIGN = ("vllm:",)
"""Families of prometheus_client's global registry that are passed on: vLLM registers its metrics there."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A value that is read off something when a snapshot is taken.

    Attributes:
        name: a counter or gauge of the catalogue.
        value: a counter's value since the process began.
        labels: values of its labels, in the catalogue's order.
    """

    name: str
    value: float
    labels: tuple[str, ...] = ()


Source = Callable[[], Iterable[Reading]]


class Family(NamedTuple):  # with Series made and compared every second, by the hundred: twice as fast as a dataclass
    """A family of series, of the catalogue or of vLLM."""

    name: str
    kind: str
    help: str


class Series(NamedTuple):
    """One series: its family's place in the schema, its sample's name, and its labels as pairs."""

    family: int
    sample: str
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """What a snapshot's values belong to."""

    families: tuple[Family, ...] = ()
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """values: float64 [series], in the schema's order. Counters are totals since the process began."""

    schema: Schema
    values: Values


class Registry:
    """The metrics of one process.

    Metrics exist from their first use: no process shows what it does not count.
    """

    def __init__(self) -> None:
        self._own = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._sources: list[Source] = []
        self._before: list[Callable[[], None]] = []
        self._schema = Schema()

    def counter(self, name: str) -> Counter:
        """A counter of the catalogue."""
        if name not in self._counters:
            metric = _of_kind(name, Kind.COUNTER)
            self._counters[name] = Counter(name, metric.help, metric.labels, registry=self._own)
        return self._counters[name]

    def gauge(self, name: str) -> Gauge:
        """A gauge of the catalogue."""
        if name not in self._gauges:
            metric = _of_kind(name, Kind.GAUGE)
            self._gauges[name] = Gauge(name, metric.help, metric.labels, registry=self._own)
        return self._gauges[name]

    def histogram(self, name: str) -> Histogram:
        """A histogram of the catalogue."""
        if name not in self._histograms:
            metric = _of_kind(name, Kind.HISTOGRAM)
            self._histograms[name] = Histogram(
                name, metric.help, metric.labels, registry=self._own, buckets=metric.buckets
            )
        return self._histograms[name]

    def add_source(self, source: Source) -> None:
        """Reads metrics off something that counts by itself, at every snapshot."""
        self._sources.append(source)

    def before_snapshot(self, count: Callable[[], None]) -> None:
        """Calls `count`, in whichever thread takes a snapshot, before each one: what has gathered is counted then."""
        self._before.append(count)

    def snapshot(self) -> Snapshot:
        """All series now. Safe to call from another thread; takes 3-9 ms of it with vLLM's metrics."""
        for count in self._before:
            count()
        families: list[Family] = []
        series: list[Series] = []
        values: list[float] = []
        for metric in itertools.chain(self._own.collect(), _foreign()):
            time.sleep(0)  # lets go of the GIL: the event loop shall not wait for the whole of it
            name = f"{metric.name}_total" if metric.type == "counter" else metric.name
            families.append(Family(name, metric.type, metric.documentation))
            for sample in metric.samples:
                if not sample.name.endswith("_created"):
                    series.append(Series(len(families) - 1, sample.name, tuple(sample.labels.items())))
                    values.append(sample.value)
        self._read_sources(families, series, values)
        schema = Schema(tuple(families), tuple(series))
        if schema != self._schema:  # the same object while it is the same, so that comparing is cheap elsewhere
            self._schema = schema
        return Snapshot(self._schema, np.array(values, dtype=np.float64))

    def _read_sources(self, families: list[Family], series: list[Series], values: list[float]) -> None:
        places: dict[str, int] = {}
        for source in self._sources:
            for reading in source():
                metric = BY_NAME[reading.name]
                place = places.get(metric.name)
                if place is None:
                    place = places[metric.name] = len(families)
                    families.append(Family(metric.name, metric.kind.value, metric.help))
                series.append(Series(place, metric.name, tuple(zip(metric.labels, reading.labels, strict=True))))
                values.append(reading.value)


def _foreign() -> Iterator[Collected]:
    return (family for family in REGISTRY.collect() if family.name.startswith(FOREIGN))


def _of_kind(name: str, kind: Kind) -> Metric:
    metric = BY_NAME[name]
    if metric.kind is not kind:
        raise ValueError(f"{name} is a {metric.kind}, not a {kind}")
    return metric
