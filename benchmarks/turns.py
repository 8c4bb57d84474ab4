"""Turns of the image benchmarks: one side under one condition in one round; and what rounds come to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load import Outcome
from benchmarks.stats import Spread, latency, spread, stage_summary
from benchmarks.timed import wall_s

Condition = Mapping[str, Any]
"""What is varied beside the sides, in the order of the table's columns: {"c": 4, "images": "cold"}."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement.

    Attributes:
        side: what is compared.
        condition: see `Condition`.
        round, position: from 0; the place in the round's order.
        requests: answered ones; only these are in latencies and rates.
        items: images, or pairs, of a request.
        errors: failed requests by kind.
        stages: p50 and p95 of each stage.
        extra: further figures by name, one number each.
    """

    side: str
    condition: Condition
    round: int
    position: int
    requests: int
    items: int
    errors: dict[str, int]
    p50_ms: float
    p95_ms: float
    mean_ms: float
    requests_per_s: float
    items_per_s: float
    wall_s: float
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return sum(self.errors.values())


def measurement(
    side: str,
    condition: Condition,
    place: tuple[int, int],
    items: int,
    outcomes: list[Outcome],
    *,
    extra: Mapping[str, float] | None = None,
    also_failed: Sequence[Outcome] = (),
) -> Measurement:
    """Summarises one turn.

    Args:
        place: (round, position).
        also_failed: outcomes of the warm-up; its errors count.
    """
    good = [o for o in outcomes if o.error is None]
    errors = Counter(o.error for o in [*also_failed, *outcomes] if o.error is not None)
    wall = wall_s(outcomes)
    summary = latency([o.seconds for o in good], wall, items)
    return Measurement(
        side=side,
        condition=dict(condition),
        round=place[0],
        position=place[1],
        requests=len(good),
        items=items,
        errors={str(kind): count for kind, count in errors.items()},
        p50_ms=summary.p50_ms,
        p95_ms=summary.p95_ms,
        mean_ms=summary.mean_ms,
        requests_per_s=summary.requests_per_s,
        items_per_s=summary.pairs_per_s,
        wall_s=wall,
        stages=stage_summary([o.stages for o in good]),
        extra=dict(extra or {}),
    )


def alternating(sides: Sequence[str], rounds: int) -> Iterator[tuple[int, list[str]]]:
    """Rounds and the order of the sides in each, swapped every time: drift of the machine hits all sides alike."""
    for number in range(rounds):
        yield number, list(sides) if number % 2 == 0 else list(reversed(sides))


def progress(measured: Measurement, rounds: int, unit: str) -> str:
    """One line for the terminal."""
    where = " ".join(f"{name}={value}" for name, value in measured.condition.items())
    line = (
        f"round {measured.round + 1}/{rounds} {where:<28} {measured.side:<18} p50 {measured.p50_ms:9.1f} ms  "
        f"p95 {measured.p95_ms:9.1f}  {measured.items_per_s:10,.1f} {unit}/s  {measured.requests:5} requests"
    )
    return f"{line}  ERRORS {measured.errors}" if measured.errors else line


@dataclass(frozen=True, slots=True)
class Summary:
    """All rounds of one side under one condition.

    Attributes:
        speedup: items/s over the baseline's of the same round, then median and range; NaN for a run without baseline.
        stages: medians over rounds of each stage's p50 and p95.
        extra: median over rounds.
    """

    side: str
    condition: Condition
    rounds: int
    requests: int
    p50_ms: Spread
    p95_ms: Spread
    requests_per_s: Spread
    items_per_s: Spread
    speedup: Spread
    stages: dict[str, dict[str, float]]
    extra: dict[str, float]
    errors: int


def summaries(turns: Sequence[Measurement], baseline: str | None) -> list[Summary]:
    """One summary per condition and side; conditions in the order of their values, sides as first measured."""
    groups: dict[tuple[tuple[Any, ...], str], list[Measurement]] = {}
    for measured in turns:
        groups.setdefault((tuple(measured.condition.values()), measured.side), []).append(measured)
    conditions = sorted({values for values, _ in groups})
    ordered = [(key, groups[key]) for values in conditions for key in groups if key[0] == values]
    return [_summary(group, {t.round: t for t in groups.get((key[0], baseline or ""), [])}) for key, group in ordered]


def _summary(group: Sequence[Measurement], base: Mapping[int, Measurement]) -> Summary:
    stages = {name: None for t in group for name in t.stages}
    extra = {name: None for t in group for name in t.extra}
    return Summary(
        side=group[0].side,
        condition=group[0].condition,
        rounds=len(group),
        requests=sum(t.requests for t in group),
        p50_ms=spread(t.p50_ms for t in group),
        p95_ms=spread(t.p95_ms for t in group),
        requests_per_s=spread(t.requests_per_s for t in group),
        items_per_s=spread(t.items_per_s for t in group),
        speedup=spread(_ratio(t.items_per_s, base[t.round].items_per_s) for t in group if t.round in base),
        stages={
            name: {q: spread(t.stages[name][q] for t in group if name in t.stages).median for q in ("p50_ms", "p95_ms")}
            for name in stages
        },
        extra={name: spread(t.extra[name] for t in group if name in t.extra).median for name in extra},
        errors=sum(t.failed for t in group),
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def failures(turns: Sequence[Measurement]) -> list[str]:
    """Turns with failed requests, in words."""
    return [
        f"{t.side}, {dict(t.condition)}, round {t.round + 1}: {t.failed} requests failed {t.errors}"
        for t in turns
        if t.failed
    ]
