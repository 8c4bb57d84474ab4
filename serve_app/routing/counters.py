"""What the gateway has done per version: decisions, answers, errors, times, copies. Since the replica's start."""

from __future__ import annotations

import bisect
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from serve_app.errors import CallerError, Overloaded
from serve_app.routing.differences import Difference
from serve_app.routing.table import Decision, Target

BOUNDS_MS = tuple(round(1.1**i, 3) for i in range(117))
"""Upper bounds of the histogram's buckets: 1 ms to 63 s, each 10 % above the one before; the last bucket is open."""


def quantile_ms(histogram: Mapping[int, int], q: float) -> float | None:
    """The upper bound of the bucket that holds the quantile; None: the histogram is empty."""
    wanted = q * sum(histogram.values())
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted and seen > 0:
            return BOUNDS_MS[min(bucket, len(BOUNDS_MS) - 1)]
    return None


@dataclass(slots=True)
class _Version:
    decisions: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    errors: int = 0
    refused: int = 0
    last_asked: float | None = None
    histogram: Counter[int] = field(default_factory=Counter)


@dataclass(slots=True)
class _Shadow:
    sent: int = 0
    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    dropped: int = 0
    not_comparable: int = 0
    compared: int = 0
    values: int = 0
    max_abs: float = 0.0
    sum_abs: float = 0.0
    tops: int = 0
    tops_equal: int = 0


class RoutingCounters:
    """Counters of one gateway replica. Only grows; a replica that starts anew begins at zero.

    Args:
        clock: wall-clock seconds.
        timer: seconds of a clock that only goes forward.
    """

    def __init__(self, clock: Callable[[], float] = time.time, timer: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._timer = timer
        self.since = clock()
        self._versions: dict[tuple[str, str], _Version] = {}
        self._shadows: dict[tuple[str, str, str], _Shadow] = {}

    def decided(self, decision: Decision) -> None:
        """A client's request was routed."""
        version = self._version(decision.target)
        version.decisions[decision.how.value] += 1
        version.last_asked = self._clock()

    @contextlib.contextmanager
    def answering(self, target: Target) -> Iterator[None]:
        """Counts the answer that is made inside, with its milliseconds; a caller who left counts as nothing."""
        version, started = self._version(target), self._timer()
        try:
            yield
        except CallerError:  # as good an answer as any, but its time says nothing
            version.answered += 1
            raise
        except Overloaded:
            version.refused += 1
            raise
        except Exception:
            version.errors += 1
            raise
        version.answered += 1
        version.histogram[bisect.bisect_left(BOUNDS_MS, (self._timer() - started) * 1e3)] += 1

    def shadow(self, decision: Decision, outcome: str) -> None:
        """A copy was sent, answered, failed, cancelled, dropped, or not_comparable."""
        counters = self._shadow(decision)
        setattr(counters, outcome, getattr(counters, outcome) + 1)

    def compared(self, decision: Decision, found: Difference) -> None:
        """A copy's answer was compared with the caller's."""
        counters = self._shadow(decision)
        counters.compared += 1
        counters.values += found.values
        counters.max_abs = max(counters.max_abs, found.max_abs)
        counters.sum_abs += found.sum_abs
        counters.tops += found.tops
        counters.tops_equal += found.tops_equal

    def last_asked(self, target: Target) -> float | None:
        """Unix seconds of the last client's request that this version got; None: none since `since`."""
        version = self._versions.get((target.model, target.version))
        return version.last_asked if version is not None else None

    def snapshot(self) -> dict[str, Any]:
        """Everything, as JSON.

        Returns:
            `since`: unix seconds of the start.
            `versions`: a list of {model, version, decisions: {pinned, latest, sticky, weighted, default}, answered,
            errors (5xx answers but 429), refused (429), last_asked (unix seconds, null: never), latency_ms: {p50, p95},
            histogram: {bucket: count}}; `histogram`'s buckets are indexes into `BOUNDS_MS`.
            `shadows`: a list of {model, version, shadow, sent, answered, failed, cancelled, dropped (no room),
            not_comparable, compared, values, max_abs, mean_abs, sum_abs, tops, tops_equal}; the last six are
            `differences.Difference` summed up, version and shadow those who answered the caller and the copy.
        """
        return {
            "since": self.since,
            "versions": [_version_row(*names, counters) for names, counters in self._versions.items()],
            "shadows": [_shadow_row(*names, counters) for names, counters in self._shadows.items()],
        }

    def _version(self, target: Target) -> _Version:
        return self._versions.setdefault((target.model, target.version), _Version())

    def _shadow(self, decision: Decision) -> _Shadow:
        assert decision.shadow is not None
        names = (decision.target.model, decision.target.version, decision.shadow.version)
        return self._shadows.setdefault(names, _Shadow())


def _version_row(model: str, version: str, counters: _Version) -> dict[str, Any]:
    return {
        "model": model,
        "version": version,
        "decisions": dict(counters.decisions),
        "answered": counters.answered,
        "errors": counters.errors,
        "refused": counters.refused,
        "last_asked": counters.last_asked,
        "latency_ms": {f"p{q}": quantile_ms(counters.histogram, q / 100) for q in (50, 95)},
        "histogram": {str(bucket): count for bucket, count in sorted(counters.histogram.items())},
    }


def _shadow_row(model: str, version: str, shadow: str, counters: _Shadow) -> dict[str, Any]:
    numbers = {name: getattr(counters, name) for name in _Shadow.__slots__}
    mean = counters.sum_abs / counters.values if counters.values else 0.0
    return {"model": model, "version": version, "shadow": shadow, **numbers, "mean_abs": mean}
