"""Agreement of two orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Agreement of the order within groups: a query's documents, a label's texts, a text's neighbours.

    Attributes:
        groups: how many have at least two members that the reference tells apart.
        spearman: mean rank correlation of the groups.
        spearman_min: the worst group's.
        top1: share of the groups whose best member is the same, or one that the reference puts level with its best.
        topk: mean share of the best `k` that is the same, ties as above.
    """

    groups: int
    spearman: float
    spearman_min: float
    top1: float
    topk: float
    k: int


def rank_agreement(groups: Sequence[tuple[Floats, Floats]], *, tie: float, k: int) -> Ranking | None:
    """Agreement of (reference, served) values by group; None where no group has an order.

    Args:
        tie: values of the reference that are this close together count as equal in top-1 and top-k.
        k: of top-k; 0: the groups have an order and no best member that matters.
    """
    usable = [(a, b) for a, b in groups if len(a) > 1 and np.ptp(a) > tie]
    if not usable:
        return None
    correlations = [spearman(a, b) for a, b in usable]
    top1 = [top_overlap(a, b, 1, tie) for a, b in usable] if k else [float("nan")]
    topk = [top_overlap(a, b, k, tie) for a, b in usable] if k else [float("nan")]
    return Ranking(
        groups=len(usable),
        spearman=float(np.mean(correlations)),
        spearman_min=float(np.min(correlations)),
        top1=float(np.mean(top1)),
        topk=float(np.mean(topk)),
        k=k,
    )


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; equal values share a rank. 0 if only one side orders anything, NaN if one holds NaN."""
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        return float("nan")
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    shared: Floats = (np.cumsum(counts) - (counts + 1) / 2)[inverse]
    return shared


def top_overlap(reference: Floats, served: Floats, k: int, tie: float) -> float:
    """Share of the served best `k` that belong there by the reference, up to `tie`."""
    k = min(k, len(reference))
    threshold = np.sort(reference)[-k] - tie
    chosen = np.argsort(-served, kind="stable")[:k]
    return float(np.mean(reference[chosen] >= threshold))
