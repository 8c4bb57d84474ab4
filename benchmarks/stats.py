"""Quantiles, latency summaries and the spread of repeated measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass


def quantile(values: Iterable[float], q: float) -> float:
    """Linear interpolation between the closest ranks; NaN when there are no values."""
    ordered = sorted(values)
    if not ordered:
        return math.nan
    position = (len(ordered) - 1) * q
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True)
class Latency:
    """One turn's latencies in milliseconds, and its rates."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    requests_per_s: float
    pairs_per_s: float


def latency(seconds: Sequence[float], wall_s: float, documents: int) -> Latency:
    """Summary of one turn.

    Args:
        seconds: latency of each answered request.
        wall_s: from the first request sent to the last answer received.
        documents: documents of a request, each one a pair.
    """
    rate = len(seconds) / wall_s if wall_s > 0 else math.nan
    return Latency(
        p50_ms=1e3 * quantile(seconds, 0.50),
        p95_ms=1e3 * quantile(seconds, 0.95),
        p99_ms=1e3 * quantile(seconds, 0.99),
        mean_ms=1e3 * statistics.fmean(seconds) if seconds else math.nan,
        requests_per_s=rate,
        pairs_per_s=rate * documents,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range over rounds. The range, not a deviation: three rounds have no deviation worth the name."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if not math.isfinite(self.median):
            return "-"
        return f"{show(self.median)} ({show(self.low)}-{show(self.high)})"

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def spread(values: Iterable[float]) -> Spread:
    """Median, smallest and largest of the finite values; NaN throughout when there are none."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return Spread(math.nan, math.nan, math.nan)
    return Spread(statistics.median(finite), min(finite), max(finite))


def show(value: float) -> str:
    """Three significant digits, or whole numbers from 100 on; `-` for NaN."""
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def describe(values: Sequence[float]) -> dict[str, float]:
    """Count, mean, 5th, 50th, 95th percentile and maximum, for lengths."""
    return {
        "n": len(values),
        "mean": round(statistics.fmean(values), 1),
        "p5": quantile(values, 0.05),
        "p50": quantile(values, 0.5),
        "p95": quantile(values, 0.95),
        "max": max(values),
    }


def stage_summary(requests: Iterable[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """p50 and p95 of each stage over the requests that report it, in the order the stages first appear."""
    by_stage: dict[str, list[float]] = {}
    for stages in requests:
        for name, milliseconds in stages.items():
            by_stage.setdefault(name, []).append(milliseconds)
    return {
        name: {"p50_ms": quantile(v, 0.5), "p95_ms": quantile(v, 0.95), "requests": len(v)}
        for name, v in by_stage.items()
    }
