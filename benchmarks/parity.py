"""Do the servers compute the same scores? A speed-up that changes the ranking is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Scores = Sequence[Sequence[float]]
"""Scores by request, in the order of the request's documents."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One backend's scores against others of the same requests.

    Attributes:
        max_abs, mean_abs: differences of single scores.
        top1: share of requests with the same best document.
        spearman: mean rank correlation within a request; requests whose scores are all equal are left out.
        threshold: largest `max_abs` that passes.
    """

    backend: str
    against: str
    requests: int
    pairs: int
    max_abs: float
    mean_abs: float
    top1: float
    spearman: float
    threshold: float

    @property
    def passed(self) -> bool:
        return self.max_abs <= self.threshold  # False for NaN too


def ranks(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Ranks from 0, ascending; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: npt.NDArray[np.float64] = (ends - (counts + 1) / 2)[inverse]
    return shared


def spearman(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Rank correlation; NaN when one side does not order the documents at all."""
    a, b = ranks(ours), ranks(theirs)
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / norm if norm > 0 else float("nan")


def compare(backend: str, ours: Scores, against: str, theirs: Scores, threshold: float) -> Agreement:
    """Agreement of two sets of scores of the same requests."""
    if [len(r) for r in ours] != [len(r) for r in theirs]:
        raise ValueError(f"{backend} and {against} scored different requests")
    differences = np.abs(np.concatenate([np.subtract(a, b) for a, b in zip(ours, theirs, strict=True)]))
    correlations = [c for a, b in zip(ours, theirs, strict=True) if not np.isnan(c := spearman(a, b))]
    same_best = [int(np.argmax(a)) == int(np.argmax(b)) for a, b in zip(ours, theirs, strict=True)]
    return Agreement(
        backend=backend,
        against=against,
        requests=len(same_best),
        pairs=int(differences.size),
        max_abs=float(differences.max()),
        mean_abs=float(differences.mean()),
        top1=float(np.mean(same_best)),
        spearman=float(np.mean(correlations)) if correlations else float("nan"),
        threshold=threshold,
    )


def verdict(agreements: Sequence[Agreement]) -> str:
    """`passed`, `FAILED`, or `not checked` for a run with nothing to compare with."""
    if not agreements:
        return "not checked"
    return "passed" if all(a.passed for a in agreements) else "FAILED"
