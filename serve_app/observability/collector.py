"""The snapshots of all replicas as one page.

Replicas come and go, what they counted stays: counters and histograms of the catalogue are sums over replicas, and a
replica that is gone leaves its part in the sum. Series per replica (vLLM's, memory, …) disappear with it. They are not
added up: a series that took over a dead replica's total would look to `rate()` like that many events.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from serve_app.observability.catalogue import BY_NAME, REPLICA_LABELS, Kind, Merge
from serve_app.observability.exposition import Block, number, prefix, render
from serve_app.observability.registry import Registry, Schema, Values

GONE_AFTER_S = 15.0
"""Seconds without a snapshot after which a replica counts as gone."""
TOMBSTONES = 1_000
"""Replicas that are gone and known, in case they were only slow."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports. One process: a replica that Ray Serve restarts is another one.

    Attributes:
        deployment: Gateway, ImageLoader, IOProcessor or PoolingEngine.
        model, version: "" for what serves all models.
        replica: Ray Serve's id of it, unique.
        started: wall-clock seconds.
    """

    deployment: str
    model: str
    version: str
    replica: str
    started: float


@dataclass(frozen=True, slots=True)
class Push:
    """A snapshot on its way.

    Attributes:
        values: float64 [series].
        schema_id: number that the reporter gave the schema.
        schema: None while the collector has it.
        acknowledged: with a schema: the values of the last push that any collector took. A collector that begins anew
            counts from there, so that its sums begin at zero and not with what was reported before.
    """

    values: Values
    schema_id: int
    schema: Schema | None = None
    acknowledged: Mapping[tuple[str, tuple[tuple[str, str], ...]], float] | None = None


@dataclass(slots=True)
class _Replica:
    schema_id: int
    schema: Schema
    values: Values
    base: Values
    seen: float
    prefixes: list[str] = field(default_factory=list)
    summed: Values = field(default_factory=lambda: np.zeros(0))


Key = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its sample's name and its labels."""


class Collector:
    """Takes snapshots, gives the page. Belongs to one thread.

    Args:
        clock: seconds, for the replicas' silence.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._living: dict[Reporter, _Replica] = {}
        self._gone: OrderedDict[Reporter, dict[Key, float]] = OrderedDict()
        self._retired: dict[Key, float] = {}
        self._families: dict[str, tuple[str, str]] = {}

    def push(self, reporter: Reporter, push: Push) -> bool:
        """Takes a snapshot. False: send it again with its schema."""
        replica = self._living.get(reporter)
        if push.schema is None:
            if replica is None or replica.schema_id != push.schema_id:
                return False
            replica.values, replica.seen = push.values, self._clock()
            return True
        for family in push.schema.families:
            self._families[family.name] = (family.kind, family.help)
        base = self._base(reporter, replica, push, push.schema)
        self._living[reporter] = _Replica(
            push.schema_id,
            push.schema,
            push.values,
            base,
            self._clock(),
            _prefixes(reporter, push.schema),
            _is_summed(push.schema),
        )
        return True

    def expire(self) -> None:
        """Lets go of replicas that have been silent; what they counted stays in the sums."""
        limit = self._clock() - GONE_AFTER_S
        for reporter in [r for r, replica in self._living.items() if replica.seen < limit]:
            self.remove(reporter)

    def remove(self, reporter: Reporter) -> None:
        """Lets go of a replica, at once."""
        replica = self._living.pop(reporter, None)
        if replica is None:
            return
        counted = _counted(replica)
        for key, value, base in counted:
            self._retired[key] = self._retired.get(key, 0.0) + value - base
        self._gone[reporter] = {key: value for key, value, _ in counted}
        while len(self._gone) > TOMBSTONES:
            self._gone.popitem(last=False)

    @property
    def replicas(self) -> frozenset[str]:
        """Ids of the living replicas."""
        return frozenset(reporter.replica for reporter in self._living)

    def blocks(self) -> dict[str, Block]:
        """The page's families, by name."""
        sums = dict(self._retired)
        gauges: dict[Key, list[float]] = {}
        own: dict[str, list[str]] = {}
        for replica in self._living.values():
            for key, value, base in _counted(replica):
                sums[key] = sums.get(key, 0.0) + value - base
            rest = zip(replica.schema.series, replica.prefixes, replica.values.tolist(), replica.summed, strict=True)
            for series, line, value, summed in rest:
                name = replica.schema.families[series.family].name
                if line:
                    own.setdefault(name, []).append(f"{line} {number(value)}")
                elif not summed:
                    gauges.setdefault((name, series.labels), []).append(value)
        lines: dict[str, list[str]] = {}
        for (sample, labels), value in sums.items():
            lines.setdefault(_family(sample), []).append(f"{prefix(sample, labels)} {number(value)}")
        for (name, labels), values in gauges.items():
            value = {Merge.MIN: min, Merge.MAX: max}.get(BY_NAME[name].merge, sum)(values)
            lines.setdefault(name, []).append(f"{prefix(name, labels)} {number(value)}")
        for name, of_replicas in own.items():
            lines.setdefault(name, []).extend(of_replicas)
        return {name: Block(name, *self._families[name], found) for name, found in lines.items()}

    def page(self) -> bytes:
        """The page in Prometheus's text format, without anything foreign."""
        return render(self.blocks())

    def _base(self, reporter: Reporter, replica: _Replica | None, push: Push, schema: Schema) -> Values:
        """What of a replica's counters is in the sums already, or belongs to an earlier collector."""
        known: Mapping[Key, float]
        if replica is not None:
            known = {key: base for key, _, base in _counted(replica)}
        elif reporter in self._gone:
            known = self._gone.pop(reporter)
        else:
            known = push.acknowledged or {}
        return np.array([known.get((series.sample, series.labels), 0.0) for series in schema.series])


async def local_page(registry: Registry) -> bytes:
    """The page of this process alone."""
    collector = Collector()
    snapshot = registry.snapshot()
    collector.push(Reporter("Gateway", "", "", "local", 0.0), Push(snapshot.values, 1, snapshot.schema))
    return collector.page()


def _is_summed(schema: Schema) -> Values:
    """1 for series of counters and histograms that are added up over replicas, by series."""
    summed = []
    for family in schema.families:
        metric = BY_NAME.get(family.name)
        summed.append(metric is not None and metric.merge is Merge.SUM and metric.kind is not Kind.GAUGE)
    return np.array([summed[series.family] for series in schema.series], dtype=np.float64)


def _counted(replica: _Replica) -> list[tuple[Key, float, float]]:
    """Series that are added up: key, value, base."""
    rows = zip(
        replica.schema.series, replica.values.tolist(), replica.base.tolist(), replica.summed.tolist(), strict=True
    )
    return [((series.sample, series.labels), value, base) for series, value, base, summed in rows if summed]


def _prefixes(reporter: Reporter, schema: Schema) -> list[str]:
    """Name and labels, as on the page, of the series that stay the replica's own; "" for the others."""
    names = (reporter.deployment, reporter.model, reporter.version, reporter.replica)
    who = tuple(zip(REPLICA_LABELS, names, strict=True))
    lines = []
    for series in schema.series:
        metric = BY_NAME.get(schema.families[series.family].name)
        if metric is not None and metric.merge is not Merge.REPLICA:
            lines.append("")
        else:
            lines.append(prefix(series.sample, who + tuple(p for p in series.labels if p[0] not in REPLICA_LABELS)))
    return lines


def _family(sample: str) -> str:
    """A summed sample's family."""
    if sample in BY_NAME:
        return sample
    return sample.rpartition("_")[0]
