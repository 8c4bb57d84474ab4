"""From rows to summaries, ratios and a Markdown page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.pages import listed, machine, parity_table, plain, table
from benchmarks.parity import Agreement, verdict
from benchmarks.rounds import SATURATED, Row
from benchmarks.stats import Spread, show, spread

METRICS = ("p50_ms", "p95_ms", "p99_ms", "pairs_per_s")
HEADINGS = ("p50 ms", "p95 ms", "p99 ms", "pairs/s")


@dataclass(frozen=True, slots=True)
class Summary:
    """All rounds of one backend at one concurrency.

    Attributes:
        metrics: median and range over rounds of each metric.
        speedup, latency_ratio: pairs/s and p50 of this backend over the baseline's of the same round, then median and
            range. Ratios first: a slow minute of the machine hits both sides of a round.
        stages: medians over rounds of each stage's p50 and p95.
    """

    backend: str
    concurrency: int
    metrics: dict[str, Spread]
    speedup: Spread
    latency_ratio: Spread
    per_round_speedup: list[float]
    stages: dict[str, dict[str, float]]
    errors: int
    answer_bytes: float
    client_cpu: float


def baseline_name(names: Sequence[str], chosen: str | None = None) -> str:
    """The backend that ratios are taken against: the chosen one, else one called `vllm`, else the first."""
    if chosen is not None:
        return chosen
    return "vllm" if "vllm" in names else names[0]


def summarise(rows: Sequence[Row], baseline: str) -> list[Summary]:
    """One summary per concurrency and backend, in the order in which they were measured."""
    groups: dict[tuple[int, str], list[Row]] = {}
    for r in sorted(rows, key=lambda r: r.concurrency):
        groups.setdefault((r.concurrency, r.backend), []).append(r)
    return [_summary(group, {r.round: r for r in groups.get((c, baseline), [])}) for (c, _), group in groups.items()]


def _summary(group: Sequence[Row], base: dict[int, Row]) -> Summary:
    paired = [(r, base[r.round]) for r in group if r.round in base]
    speedups = [_ratio(r.pairs_per_s, b.pairs_per_s) for r, b in paired]
    stages = {name: None for r in group for name in r.stages}
    return Summary(
        backend=group[0].backend,
        concurrency=group[0].concurrency,
        metrics={m: spread(getattr(r, m) for r in group) for m in METRICS},
        speedup=spread(speedups),
        latency_ratio=spread(_ratio(r.p50_ms, b.p50_ms) for r, b in paired),
        per_round_speedup=speedups,
        stages={
            name: {q: spread(r.stages[name][q] for r in group if name in r.stages).median for q in ("p50_ms", "p95_ms")}
            for name in stages
        },
        errors=sum(r.failed for r in group),
        answer_bytes=sum(r.answer_bytes for r in group) / len(group),
        client_cpu=max(r.client_cpu for r in group),
    )


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.nan


def problems(rows: Sequence[Row], agreements: Sequence[Agreement]) -> list[str]:
    """Why the figures may not be quoted; empty for a valid run."""
    found = []
    found += [
        f"{r.backend}, c={r.concurrency}, round {r.round + 1}: {r.failed} requests failed {r.errors}"
        for r in rows
        if r.failed
    ]
    found += [
        f"parity of {a.backend} against {a.against}: {a.max_abs:.2g} is over {a.threshold:g}"
        for a in agreements
        if not a.passed
    ]
    return found


def markdown(result: dict[str, Any], summaries: Sequence[Summary], agreements: Sequence[Agreement]) -> str:
    """The report: validity, the table, stages, parity, conditions."""
    baseline = result["settings"]["baseline"]
    lines = [f"# {result['name']}, {result['date']}", "", f"valid: {'yes' if result['valid'] else 'NO'}"]
    lines += [f"parity: {result['parity']['verdict']}", ""]
    if result["problems"]:
        lines += [*(f"* {plain(p)}" for p in result["problems"]), ""]
    lines += [
        f"Median over {result['settings']['rounds']} alternating rounds, smallest and largest in brackets. "
        f"1 query x {result['settings']['documents']} documents a request.",
        "",
        *table(
            ["c", "backend", *HEADINGS, f"pairs/s ÷ {baseline}", f"p50 ÷ {baseline}", "errors"],
            (
                list(map(str, [s.concurrency, s.backend, *s.metrics.values(), s.speedup, s.latency_ratio, s.errors]))
                for s in summaries
            ),
        ),
        "",
    ]
    if any(s.stages for s in summaries):
        lines += ["## Stages", "", "Medians over rounds of each round's quantile, from `Server-Timing`.", ""]
        stage_rows = (
            [str(s.concurrency), s.backend, name, show(v["p50_ms"]), show(v["p95_ms"])]
            for s in summaries
            for name, v in s.stages.items()
        )
        lines += [*table(["c", "backend", "stage", "p50 ms", "p95 ms"], stage_rows), ""]
    if agreements:
        lines += ["## Parity", "", *parity_table(agreements), ""]
    lines += ["## Conditions", "", *_conditions(result, summaries), ""]
    return "\n".join(lines)


def _conditions(result: dict[str, Any], summaries: Sequence[Summary]) -> Iterator[str]:
    yield from machine(result)
    yield f"* dtype: {listed({b['name']: b['dtype'] for b in result['backends']})}"
    if result["model"]:
        yield f"* model: {listed(result['model'])}"
    yield f"* pair lengths: {listed(result['pair_lengths'])}"
    yield f"* versions: {listed(result['versions'])}"
    if result["reference"]:
        yield f"* reference: Transformers, {listed(result['reference'])} pairs"
    busiest = max((s.client_cpu for s in summaries), default=0.0)
    warning = ", the client may be what was measured" if busiest > SATURATED else ""
    yield f"* load processes: {result['settings']['clients']}, the busiest at {100 * busiest:.0f} % of a core{warning}"
    yield f"* bytes an answer: {listed({s.backend: f'{s.answer_bytes:,.0f}' for s in summaries})}"
    yield f"* started by: `{' '.join(result['command'])}`"
    for b in result["backends"]:
        if b["command"]:
            yield f"* {b['name']}: `{' '.join(b['command'])}`"


def result_parts(
    rows: Sequence[Row], summaries: Sequence[Summary], agreements: Sequence[Agreement], others: Sequence[str] = ()
) -> dict[str, Any]:
    """The measured part of the JSON file; `others`: problems that rows and parity do not show."""
    found = [*others, *problems(rows, agreements)]
    return {
        "valid": bool(rows) and not found,
        "problems": found,
        "summary": [asdict(s) for s in summaries],
        "parity": {"verdict": verdict(agreements), "agreements": [asdict(a) for a in agreements]},
        "rows": [asdict(r) for r in rows],
    }
