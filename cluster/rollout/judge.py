"""Is the new version worse than the old one? By its scores, its errors, its times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.rollout.state import Limits, Sample
from serve_app.routing.counters import quantile_ms


@dataclass(frozen=True, slots=True)
class GatewayView:
    """What one gateway replica says of itself, from `GET /v1/routing`.

    Attributes:
        replica, since: which one, counting since when (unix seconds).
        table, refused: digest of the table in force; why the newest one is not, None: it is.
        versions: its counters, by (model, version).
    """

    replica: str
    since: float
    table: str
    refused: str | None
    versions: Mapping[tuple[str, str], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe's answer. status: 0: none came. scores: the numbers in the order of the request's items."""

    status: int
    ms: float
    scores: Sequence[float] = ()
    text: str = ""


def traffic(before: Mapping[str, GatewayView], after: Mapping[str, GatewayView], model: str, version: str) -> Sample:
    """What clients got between two looks at the gateways, all replicas together.

    A replica that is new counts from zero, one that has gone not at all.
    """
    requests = errors = 0
    histogram: Counter[int] = Counter()
    for replica, view in after.items():
        now = view.versions.get((model, version), {})
        then = before[replica].versions.get((model, version), {}) if replica in before else {}
        failed = sum(now.get(name, 0) - then.get(name, 0) for name in ("errors", "refused"))
        requests += failed + now.get("answered", 0) - then.get("answered", 0)
        errors += failed
        histogram.update({int(bucket): count for bucket, count in now.get("histogram", {}).items()})
        histogram.subtract({int(bucket): count for bucket, count in then.get("histogram", {}).items()})
    counts = {bucket: count for bucket, count in histogram.items() if count > 0}
    return Sample(requests, errors, quantile_ms(counts, 0.95), quantile_ms(counts, 0.5))


def of_probes(answers: Sequence[Answer]) -> Sample:
    """What probes got."""
    good = sorted(answer.ms for answer in answers if answer.status == 200)
    at = [good[min(len(good) - 1, int(q * len(good)))] if good else None for q in (0.5, 0.95)]
    return Sample(len(answers), len(answers) - len(good), at[1], at[0])


def worse_traffic(new: Sample, old: Sample | None, limits: Limits) -> str | None:
    """Why the new version's traffic is worse than the old one's; None: it is not, or there is too little to tell."""
    if old is None or new.requests < limits.min_requests or old.requests < limits.min_requests:
        return None
    if new.error_rate > old.error_rate + limits.error_rate:
        return f"{new.errors} of {new.requests} requests failed, of the old version's {old.errors} of {old.requests}"
    return _slower("p95 of the traffic", new.p95_ms, old.p95_ms, limits)


def worse_probes(new: Sample, old: Sample, limits: Limits) -> str | None:
    """Why the probes of the new version went worse. Few as they are, their median says more than their p95."""
    if new.errors > old.errors + max(1, limits.error_rate * new.requests):
        return f"{new.errors} of {new.requests} probes failed, of the old version's {old.errors}"
    return _slower("median of the probes", new.p50_ms, old.p50_ms, limits)


def _slower(what: str, new: float | None, old: float | None, limits: Limits) -> str | None:
    if new is None or old is None or new <= old * limits.p95_ratio + limits.p95_slack_ms:
        return None
    return f"{what} is {new:.1f} ms, the old version's {old:.1f} ms"


def worse_scores(new: Sequence[Answer], old: Sequence[Answer], limits: Limits) -> tuple[str | None, str]:
    """Compares the answers to the canary set.

    Returns:
        Why the new version's are worse, or None; and the figures.
    """
    for i, (ours, theirs) in enumerate(zip(new, old, strict=True), start=1):
        if ours.status != 200:
            both = "" if theirs.status == 200 else f"; neither does the old version answer it: {_outcome(theirs)}"
            return f"canary request {i}: {_outcome(ours)}{both}", ""
        if theirs.status == 200 and len(ours.scores) != len(theirs.scores):
            return f"canary request {i}: {len(ours.scores)} scores, the old version's {len(theirs.scores)}", ""
    answered = [(a.scores, b.scores) for a, b in zip(new, old, strict=True) if b.status == 200]
    if not answered:
        return f"the old version answers no request of the canary set: {_outcome(old[0])}", ""
    pairs = [(ours, theirs) for ours, theirs in answered if ours]
    if not pairs:
        if limits.score_difference is not None or limits.top1 > 0:
            return "the canary set has no scores to compare", ""
        return None, "no scores to compare"
    gap = max(abs(a - b) for ours, theirs in pairs for a, b in zip(ours, theirs, strict=True))
    rankings = [(ours, theirs) for ours, theirs in pairs if len(ours) > 1]
    same = sum(ours.index(max(ours)) == theirs.index(max(theirs)) for ours, theirs in rankings)
    share = same / len(rankings) if rankings else 1.0
    figures = f"largest difference of a score {gap:.4g}, same first place {same} of {len(rankings)}"
    if limits.score_difference is not None and gap > limits.score_difference:
        return f"scores differ by up to {gap:.4g}; the limit is {limits.score_difference:g}", figures
    if share < limits.top1:
        return f"the first place is the same in {share:.0%} of the rankings; the limit is {limits.top1:.0%}", figures
    return None, figures


def _outcome(answer: Answer) -> str:
    return f"{answer.status or 'no answer'} {answer.text[:300]}".rstrip()
