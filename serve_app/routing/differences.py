"""How far the answers of two versions to one request are apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from serve_app.messages import ClassifyResult, EmbedResult, FloatArray, PipelineResult, PoolResult, ScoreResult


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers compared.

    Attributes:
        values: numbers compared: scores, probabilities, vector components.
        max_abs, sum_abs: largest absolute difference and the sum of all.
        tops, tops_equal: rankings, or classified inputs, and how many of them have the same first place.
    """

    values: int
    max_abs: float
    sum_abs: float
    tops: int = 0
    tops_equal: int = 0


def difference(ours: PipelineResult, other: PipelineResult) -> Difference | None:
    """Compares two answers to the same request; None: they have no numbers, or not the same ones, to compare.

    Items that either could not answer (NaN) are left out.
    """
    match ours, other:
        case ScoreResult(), ScoreResult():
            return _compare(ours.scores, other.scores, ours.scores[None], other.scores[None])
        case ClassifyResult(), ClassifyResult() if list(ours.labels) == list(other.labels):
            return _compare(ours.scores, other.scores, ours.scores, other.scores)
        case EmbedResult(), EmbedResult():
            return _compare(ours.vectors, other.vectors)
        case PoolResult(), PoolResult() if [row.shape for row in ours.rows] == [row.shape for row in other.rows]:
            flat = [np.concatenate([row.reshape(-1) for row in rows]) for rows in (ours.rows, other.rows)]
            return _compare(flat[0], flat[1])
    return None


def _compare(
    a: FloatArray, b: FloatArray, a_rows: FloatArray | None = None, b_rows: FloatArray | None = None
) -> Difference | None:
    """a, b: the numbers. a_rows, b_rows: [rankings, candidates], whose first places are compared as well."""
    if a.shape != b.shape:
        return None
    gaps = np.abs(a.astype(np.float64) - b)
    gaps = gaps[np.isfinite(gaps)]
    if not len(gaps):
        return None
    tops = equal = 0
    if a_rows is not None and b_rows is not None:
        ranked = (np.isfinite(a_rows) & np.isfinite(b_rows)).any(axis=1)
        first = [np.where(np.isnan(rows[ranked]), -np.inf, rows[ranked]).argmax(axis=1) for rows in (a_rows, b_rows)]
        tops, equal = int(ranked.sum()), int((first[0] == first[1]).sum())
    return Difference(len(gaps), float(gaps.max()), float(gaps.sum()), tops, equal)
