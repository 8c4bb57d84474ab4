"""Who is measured when, and what one measurement is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.clients import Load
from benchmarks.stats import latency, stage_summary

SATURATED = 0.8
"""CPU share of a load process above which the client may be what is measured."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A stretch of the plan: one backend, one round, one or more concurrencies in a row.

    Attributes:
        round: from 0.
        position: place in the round's order, from 0.
    """

    backend: str
    round: int
    position: int
    concurrencies: tuple[int, ...]


def plan(backends: Sequence[str], concurrencies: Sequence[int], rounds: int, exclusive: bool) -> list[Slot]:
    """Backends alternate and the order is swapped every round, so that drift of the machine hits both sides alike.

    Shared: all backends up, a concurrency's rounds follow each other: the two sides of a ratio are seconds apart.
    Exclusive: one backend up at a time, all concurrencies in one start, for a start costs about a minute.
    """

    def order(number: int) -> list[str]:
        return list(backends) if number % 2 == 0 else list(reversed(backends))

    groups = [tuple(concurrencies)] if exclusive else [(c,) for c in concurrencies]
    return [
        Slot(name, number, position, group)
        for group in groups
        for number in range(rounds)
        for position, name in enumerate(order(number))
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """One backend, one concurrency, one round.

    Attributes:
        requests: answered with 200 and one finite score a document; only these are in the latencies and rates.
        errors: failed requests by kind, those of the turn's warm-up included.
        answer_bytes: mean size of an answer's body.
        client_cpu: CPU share of the busiest load process; at 1.0 the client is the bottleneck.
        stages: p50 and p95 of each `Server-Timing` metric, and of `client_overhead`: the client's latency minus
            the server's `total` (network, HTTP ingress, the client itself).
    """

    backend: str
    concurrency: int
    round: int
    position: int
    requests: int
    documents: int
    errors: dict[str, int]
    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    requests_per_s: float
    pairs_per_s: float
    wall_s: float
    answer_bytes: float
    client_cpu: float
    stages: dict[str, dict[str, float]]

    @property
    def failed(self) -> int:
        return sum(self.errors.values())


def row(slot: Slot, concurrency: int, documents: int, load: Load) -> Row:
    """Summarise one turn."""
    good = [o for o in load.outcomes if o.error is None]
    errors = Counter(o.error for o in [*load.warmup_failures, *load.outcomes] if o.error is not None)
    summary = latency([o.seconds for o in good], load.wall_s, documents)
    stages = [
        {**o.stages, "client_overhead": 1e3 * o.seconds - o.stages["total"]} if "total" in o.stages else o.stages
        for o in good
    ]
    return Row(
        backend=slot.backend,
        concurrency=concurrency,
        round=slot.round,
        position=slot.position,
        requests=len(good),
        documents=documents,
        errors=dict(errors),
        p50_ms=summary.p50_ms,
        p95_ms=summary.p95_ms,
        p99_ms=summary.p99_ms,
        mean_ms=summary.mean_ms,
        requests_per_s=summary.requests_per_s,
        pairs_per_s=summary.pairs_per_s,
        wall_s=load.wall_s,
        answer_bytes=sum(o.answer_bytes for o in good) / max(len(good), 1),
        client_cpu=max(load.cpu_shares, default=0.0),
        stages=stage_summary(stages),
    )


def progress(r: Row, rounds: int) -> str:
    """One line for the terminal."""
    line = (
        f"c={r.concurrency:<3} round {r.round + 1}/{rounds} {r.backend:<12} p50 {r.p50_ms:8.1f} ms  p95 {r.p95_ms:8.1f}"
        f"  p99 {r.p99_ms:8.1f}  {r.pairs_per_s:9,.1f} pairs/s  client CPU {100 * r.client_cpu:3.0f} %"
    )
    if r.client_cpu > SATURATED:
        line += "  CLIENT NEARLY SATURATED: raise --clients"
    if r.errors:
        line += f"  ERRORS {r.errors}"
    return line
