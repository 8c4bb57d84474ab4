"""Where a comparison fails: does the served model compute in another number format than it says?"""

from __future__ import annotations

import numpy as np

from serve_app.settings import ModelSettings
from serve_app.verify.answers import Answer
from serve_app.verify.asking import size_of
from serve_app.verify.inputs import Inputs
from serve_app.verify.reading import Reading
from serve_app.verify.reference import reference_answers
from serve_app.vocabulary import DType, Task

AT_MOST = 64
"""Inputs that the reference is run on again, once per format."""
NEARER = 0.5
"""Mean difference to another format, as a part of that to the format compared, from which it counts as a sign."""


def nearer_dtype(
    settings: ModelSettings,
    inputs: Inputs,
    reading: Reading,
    dtype: DType,
    reference: list[Answer],
    served: list[Answer],
) -> str | None:
    """A note that names the format in which the reference comes much nearer to the served values; None: there is none.

    A model that computes in 16 bit is not equal to a reference in the same format, since sums are rounded in another
    order, but it lies nearer to it.
    """
    count, total = 0, 0
    for line in inputs.lines:
        total += size_of(line.content)
        if total > AT_MOST:
            break
        count += 1
    few = Inputs(inputs.settings, inputs.lines[:count], inputs.folder)
    if not count or settings.task is Task.ABSA:
        return None
    apart = {dtype: _mean(reference[:count], served[:count])}
    for other in DType:
        if other is not dtype:
            apart[other] = _mean(reference_answers(settings, few, reading, other, lambda done: None), served[:count])
    best = min(apart, key=lambda name: apart[name])
    if best is dtype or not apart[best] < NEARER * apart[dtype]:
        return None
    return (
        f"the served values are nearer to the reference in {best} (mean difference {apart[best]:.2g}) than in {dtype} "
        f"({apart[dtype]:.2g}): is the model served in {best}?"
    )


def _mean(reference: list[Answer], served: list[Answer]) -> float:
    """Mean difference; infinite where nothing can be compared. A classifier's columns must be in one order."""
    parts = [
        np.abs(a.values - b.values)
        for a, b in zip(reference, served, strict=True)
        if a.values is not None and b.values is not None and a.values.shape == b.values.shape and a.labels == b.labels
    ]
    values = np.concatenate(parts) if parts else np.empty(0)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else float("inf")
