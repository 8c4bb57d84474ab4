"""What rounds come to: medians with their range, and ratios to named baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.stats import Spread, spread
from benchmarks.turns import Condition, Measurement


@dataclass(frozen=True, slots=True)
class Ratios:
    """A side against a baseline: within a round first, then median and range.

    Attributes:
        rate: texts/s over the baseline's.
        latency: p50 over the baseline's; NaN where the two had different conditions.
    """

    rate: Spread
    latency: Spread


@dataclass(frozen=True, slots=True)
class TextSummary:
    """All rounds of one side under one condition. `text_ms`: p50 over the texts of a request."""

    side: str
    condition: Condition
    rounds: int
    requests: int
    p50_ms: Spread
    p95_ms: Spread
    p99_ms: Spread
    mean_ms: Spread
    requests_per_s: Spread
    texts_per_s: Spread
    text_ms: Spread
    ratios: Mapping[str, Ratios]
    stages: Mapping[str, Mapping[str, float]]
    client_cpu: float
    errors: int

    @property
    def label(self) -> str:
        """For charts."""
        return f"{self.side} · {', '.join(str(value) for value in self.condition.values())}"


def summaries(turns: Sequence[Measurement], baselines: Sequence[str]) -> list[TextSummary]:
    """One summary per condition and side, in the order in which they were first measured."""
    groups: dict[tuple[tuple[object, ...], str], list[Measurement]] = {}
    for turn in turns:
        groups.setdefault((tuple(turn.condition.values()), turn.side), []).append(turn)
    order = list(dict.fromkeys(key[0] for key in groups))
    keys = sorted(groups, key=lambda key: order.index(key[0]))
    return [_summary(groups[key], turns, baselines) for key in keys]


def best(turns: Sequence[Measurement], sides: Sequence[str]) -> str | None:
    """The side with the highest median rate."""
    rates = {side: spread(t.items_per_s for t in turns if t.side == side).median for side in sides}
    known = {side: rate for side, rate in rates.items() if math.isfinite(rate)}
    return max(known, key=known.__getitem__) if known else None


def _base(turn: Measurement, turns: Sequence[Measurement], baseline: str) -> Measurement | None:
    """The baseline's turn of the same round: under the same condition, else its only one."""
    found = [t for t in turns if t.side == baseline and t.round == turn.round]
    same = [t for t in found if t.condition == turn.condition]
    return same[0] if same else found[0] if len(found) == 1 else None


def _summary(group: Sequence[Measurement], turns: Sequence[Measurement], baselines: Sequence[str]) -> TextSummary:
    ratios = {}
    for name in baselines:
        pairs = [(turn, base) for turn in group if (base := _base(turn, turns, name)) is not None]
        same = [(turn, base) for turn, base in pairs if turn.condition == base.condition]
        ratios[name] = Ratios(
            spread(_ratio(turn.items_per_s, base.items_per_s) for turn, base in pairs),
            spread(_ratio(turn.p50_ms, base.p50_ms) for turn, base in same),
        )
    stages = {name: None for turn in group for name in turn.stages}
    return TextSummary(
        side=group[0].side,
        condition=group[0].condition,
        rounds=len(group),
        requests=sum(turn.requests for turn in group),
        p50_ms=spread(turn.p50_ms for turn in group),
        p95_ms=spread(turn.p95_ms for turn in group),
        p99_ms=spread(turn.extra.get("p99_ms", math.nan) for turn in group),
        mean_ms=spread(turn.mean_ms for turn in group),
        requests_per_s=spread(turn.requests_per_s for turn in group),
        texts_per_s=spread(turn.items_per_s for turn in group),
        text_ms=spread(turn.p50_ms / turn.items for turn in group),
        ratios=ratios,
        stages={
            name: {q: spread(t.stages[name][q] for t in group if name in t.stages).median for q in ("p50_ms", "p95_ms")}
            for name in stages
        },
        client_cpu=max((turn.extra.get("client_cpu", 0.0) for turn in group), default=0.0),
        errors=sum(turn.failed for turn in group),
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan
