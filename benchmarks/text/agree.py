"""Do the sides give the same answers? Each is compared with the library, one text at a time, without padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.pages import table
from benchmarks.text.wire import Answer, Spans


@dataclass(frozen=True, slots=True)
class TextAgreement:
    """One side's answers against the reference's.

    Attributes:
        same: share of texts with the same label, or with the same spans, or with the same label on every token; NaN
            for embeddings.
        max_abs, mean_abs: differences of probabilities or scores; for spans, of the scores of those that both sides
            found; for embeddings of components.
        least_cosine: embeddings; NaN for others.
        least_same, most_abs, most_mean, cosine: limits; NaN: none.
    """

    side: str
    against: str
    texts: int
    same: float
    max_abs: float
    mean_abs: float
    least_cosine: float
    least_same: float = math.nan
    most_abs: float = math.nan
    most_mean: float = math.nan
    cosine: float = math.nan

    @property
    def passed(self) -> bool:
        kept = (
            math.isnan(self.least_same) or self.same >= self.least_same,
            math.isnan(self.most_abs) or self.max_abs <= self.most_abs,
            math.isnan(self.most_mean) or self.mean_abs <= self.most_mean,
            math.isnan(self.cosine) or self.least_cosine >= self.cosine,
        )
        return all(kept)

    def limits(self) -> str:
        """What had to hold, in words."""
        named = (
            ("same ≥ {:g}", self.least_same),
            ("max ≤ {:g}", self.most_abs),
            ("mean ≤ {:g}", self.most_mean),
            ("cosine ≥ {:g}", self.cosine),
        )
        return ", ".join(form.format(limit) for form, limit in named if not math.isnan(limit)) or "none"


def limits(task: str, dtypes: Sequence[str]) -> dict[str, float]:
    """What must hold: everything equal in float32; in 16 bit labels at the edge of a decision may differ."""
    half = any(dtype.endswith("float16") for dtype in dtypes)
    if task == "embed":
        return {"cosine": 0.995 if half else 0.99999}
    if task == "documents":
        return {"most_abs": 0.05 if half else 1e-3}
    if half:
        return {"least_same": 0.9, "most_mean": 0.02}
    return {"least_same": 1.0, "most_abs": 1e-3}


def compare(
    side: str, ours: Sequence[Answer], against: str, theirs: Sequence[Answer], kept: dict[str, float]
) -> TextAgreement:
    """Agreement of a side with the library.

    Args:
        theirs: vectors, scores, probabilities by label, or (spans, token probabilities).
        kept: the limits, as `limits` gives them.
    """
    same: list[bool] = []
    differences: list[float] = [0.0]
    cosines: list[float] = []
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, tuple):  # the library itself, in another number format
            a = a[0]
        if isinstance(a, Spans):
            spans = b[0]
            same.append((a.places, a.sentiment) == (spans.places, spans.sentiment))
            known = dict(zip(spans.places, spans.scores, strict=True))
            scored = zip(a.places, a.scores, strict=True)
            differences += [abs(score - known[place]) for place, score in scored if place in known]
        elif isinstance(b, tuple):
            rows = b[1]
            alike = a.shape == rows.shape
            same.append(alike and bool((a.argmax(1) == rows.argmax(1)).all()))
            differences += np.abs(a - rows).ravel().tolist() if alike else [math.inf]
        elif isinstance(b, float):
            differences.append(abs(a - b))
        elif isinstance(b, dict):
            values = list(b.values())
            row = [a.get(name, math.inf) for name in b] if isinstance(a, dict) else list(a)
            alike = len(row) == len(values)
            same.append(alike and int(np.argmax(row)) == int(np.argmax(values)))
            differences += np.abs(np.subtract(row, values)).tolist() if alike else [math.inf]
        else:
            alike = a.shape == b.shape
            norm = float(np.linalg.norm(a) * np.linalg.norm(b)) if alike else 0.0
            cosines.append(float(a @ b) / norm if norm else -1.0)
            differences += np.abs(a - b).tolist() if alike else [math.inf]
    return TextAgreement(
        side=side,
        against=against,
        texts=len(ours),
        same=float(np.mean(same)) if same else math.nan,
        max_abs=float(np.max(differences)),  # unlike max(), NaN if any is
        mean_abs=float(np.mean(differences[1:])) if len(differences) > 1 else 0.0,
        least_cosine=float(np.min(cosines)) if cosines else math.nan,
        **kept,
    )


def agreement_table(agreements: Sequence[TextAgreement]) -> Iterator[str]:
    """How answers agree, in Markdown."""
    header = ["side", "against", "texts", "same", "max abs", "mean abs", "least cosine", "limits", ""]
    return table(header, map(agreement_cells, agreements))


def agreement_cells(a: TextAgreement) -> list[str]:
    """A row of that table."""
    same = "-" if math.isnan(a.same) else f"{100 * a.same:.1f} %"
    cosine = "-" if math.isnan(a.least_cosine) else f"{a.least_cosine:.6f}"
    cells = [a.side, a.against, str(a.texts), same, f"{a.max_abs:.1e}", f"{a.mean_abs:.1e}", cosine, a.limits()]
    return [*cells, "passed" if a.passed else "FAILED"]
