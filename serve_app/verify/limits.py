"""What agreement is asked for, and whether it is there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from serve_app.verify.compare import Comparison
from serve_app.vocabulary import DType, Task


@dataclass(frozen=True, slots=True)
class Limits:
    """The least agreement that passes.

    Attributes:
        max_difference: of a logit, of a score after the activation, of a vector's component, of a span's score.
        tie: two values of the reference that are this close are level; either may come first.
        min_top1, min_topk, min_spearman: of rankings; None: not asked for.
        min_labels, min_spans: shares of inputs.
    """

    max_difference: float
    tie: float
    min_top1: float
    min_labels: float
    min_spans: float
    min_topk: float | None = None
    min_spearman: float | None = None


# ce-mini (two layers, logits to 3.5) through vLLM's CPU engine: 1.6e-6 in float32, 0.02 in bfloat16. Models of 24
# layers round ten times as often, and their logits are larger.
_LOGITS = {
    DType.FLOAT32: Limits(1e-4, 2e-4, 1.0, 1.0, 1.0),
    DType.FLOAT16: Limits(2e-2, 2e-2, 0.99, 0.99, 0.98),
    DType.BFLOAT16: Limits(1.5e-1, 1.5e-1, 0.98, 0.98, 0.95),
}
_UNIT = {DType.FLOAT32: 1e-4, DType.FLOAT16: 5e-3, DType.BFLOAT16: 3e-2}
"""Components of unit vectors, and probabilities of spans, are smaller than logits."""


def default_limits(task: Task, *dtypes: DType) -> Limits:
    """Limits for a comparison of these formats; the coarsest one decides."""
    coarsest = max(dtypes, key=lambda dtype: _LOGITS[dtype].max_difference)
    limits = _LOGITS[coarsest]
    if task not in (Task.EMBED, Task.ABSA):
        return limits
    small = _UNIT[coarsest]
    return Limits(small, 2 * small, limits.min_top1, limits.min_labels, limits.min_spans)


@dataclass(frozen=True, slots=True)
class Check:
    """One figure beside its limit. A figure that is NaN does not pass."""

    name: str
    value: float
    limit: float
    at_most: bool

    @property
    def passed(self) -> bool:
        """Whether the limit is kept."""
        if math.isnan(self.value):
            return False
        return self.value <= self.limit if self.at_most else self.value >= self.limit


def checks(found: Comparison, limits: Limits) -> list[Check]:
    """Every figure that has a limit."""
    made = [Check("inputs without a served answer", len(found.missing), 0, at_most=True)]
    if found.values.count or found.spans is None:  # texts without any span have no scores to compare
        made.append(Check("largest difference", found.values.max, limits.max_difference, at_most=True))
    if found.scores is not None:
        made.append(Check("largest difference of scores", found.scores.max, limits.max_difference, at_most=True))
    if found.label_names is not None:
        apart = len(set(found.label_names[0]) ^ set(found.label_names[1]))
        made.append(Check("labels that one side lacks", apart, 0, at_most=True))
    if found.labels is not None:
        made.append(Check("label agreement", found.labels.value, limits.min_labels, at_most=False))
    if found.spans is not None:
        made.append(Check("span agreement", found.spans.value, limits.min_spans, at_most=False))
    if (ranking := found.ranking) is not None:
        if ranking.k:
            made.append(Check("top-1 agreement", ranking.top1, limits.min_top1, at_most=False))
        if ranking.k and limits.min_topk is not None:
            made.append(Check(f"top-{ranking.k} agreement", ranking.topk, limits.min_topk, at_most=False))
        if limits.min_spearman is not None:
            made.append(Check("rank correlation", ranking.spearman, limits.min_spearman, at_most=False))
    return made
