"""Two sides' answers, compared: plain arithmetic, no model and no server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from serve_app.messages import AbsaItem, FloatArray, Span
from serve_app.verify.answers import Answer
from serve_app.verify.inputs import (
    AbsaLine,
    ClassifyLine,
    ImageLine,
    ImageRankLine,
    Line,
    PairLine,
    RerankLine,
    TextLine,
)
from serve_app.verify.ranking import Floats, Ranking, rank_agreement

NEIGHBOURS = 1_000
"""Embedded inputs whose similarities are compared, the first ones of a larger file: that is a matrix of this side."""


@dataclass(frozen=True, slots=True)
class Differences:
    """Absolute differences of single numbers. NaN where there are none."""

    count: int
    max: float
    mean: float


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many agree."""

    agree: int
    total: int

    @property
    def value(self) -> float:
        """The share, NaN of nothing."""
        return self.agree / self.total if self.total else float("nan")


@dataclass(frozen=True, slots=True)
class Case:
    """One number of one input, from both sides.

    Attributes:
        line: of the file of inputs.
        text: the input.
        what: the label, the span or the component that the numbers belong to; "" where an input has one number.
        reference, served: NaN where that side has none, as for a span that only the other side found.
    """

    line: int
    text: str
    what: str
    reference: float
    served: float

    @property
    def difference(self) -> float:
        """Absolute; infinite where only one side has a number."""
        return abs(self.served - self.reference) if np.isfinite(self.served + self.reference) else float("inf")


@dataclass(frozen=True, slots=True)
class Missing:
    """An input, or one document of it, without a served answer."""

    line: int
    text: str
    message: str


@dataclass(slots=True)
class Comparison:
    """Everything that was found.

    Attributes:
        values: differences of logits, or of vectors' components; of ABSA the spans' scores.
        scores: differences after the activation; None for vectors and ABSA.
        ranking: None where nothing is ordered.
        labels: inputs with the same best label (classifiers), or the same sentiment (ABSA).
        label_names: both sides' label names in their order; None but for classifiers.
        spans: texts whose spans are the same: place, aspect and polarity.
        span_f1: of the served spans against the reference's.
        cosine: the least cosine of an input's two vectors.
        missing: inputs without an answer.
        truncated: inputs that the server cut.
        cases: one per number, for plots and worst cases; of vectors the component that differs most.
        points: (reference, served) of the scatter plot.
    """

    values: Differences
    scores: Differences | None = None
    ranking: Ranking | None = None
    labels: Share | None = None
    label_names: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    spans: Share | None = None
    span_f1: float | None = None
    cosine: float | None = None
    missing: list[Missing] = field(default_factory=list)
    truncated: int = 0
    cases: list[Case] = field(default_factory=list)
    points: list[tuple[float, float]] = field(default_factory=list)

    def worst(self, count: int) -> list[Case]:
        """The cases that differ most, the worst first; those that do not differ are left out."""
        ranked = sorted(self.cases, key=lambda case: case.difference, reverse=True)
        return [case for case in ranked[:count] if case.difference > 0]


def compare(
    lines: Sequence[Line], reference: Sequence[Answer], served: Sequence[Answer], *, tie: float, k: int
) -> Comparison:
    """Compares both sides' answers to the same lines.

    Args:
        tie: values of the reference that are this close together count as equal in top-1 and top-k.
        k: of top-k.
    """
    kept = [i for i, answer in enumerate(served) if answer.error is None]
    missing = [
        Missing(line.number, _text(line), answer.error)
        for line, answer in zip(lines, served, strict=True)
        if answer.error is not None
    ]
    chosen = [lines[i] for i in kept], [reference[i] for i in kept], [served[i] for i in kept]
    match lines[0].content:
        case RerankLine() | PairLine() | ImageRankLine():
            found = _compare_scores(*chosen, tie=tie, k=k)
        case ClassifyLine():
            found = _compare_classes(*chosen, tie=tie)
        case TextLine() | ImageLine():
            found = _compare_vectors(*chosen, tie=tie, k=k)
        case AbsaLine():
            found = _compare_spans(*chosen)
    found.missing[:0] = missing
    found.truncated = sum(len(answer.truncated) for answer in served)
    return found


def _compare_scores(
    lines: Sequence[Line], reference: Sequence[Answer], served: Sequence[Answer], *, tie: float, k: int
) -> Comparison:
    pairs: list[tuple[Floats, Floats]] = []
    scores: list[Floats] = []
    groups: list[tuple[Floats, Floats]] = []
    single: list[tuple[float, float]] = []
    found = Comparison(_differences([]))
    for line, want, got in zip(lines, reference, served, strict=True):
        a, b = _both(want, got)
        ok = np.array([i not in got.failed for i in range(len(a))], dtype=bool)
        texts = _texts(line)
        found.missing += [Missing(line.number, texts[i], message) for i, message in sorted(got.failed.items())]
        found.cases += [Case(line.number, texts[i], "", float(a[i]), float(b[i])) for i in np.flatnonzero(ok).tolist()]
        pairs.append((a[ok], b[ok]))
        assert want.scores is not None
        assert got.scores is not None
        scores.append(np.abs(_floats(want.scores) - _floats(got.scores))[ok])
        if isinstance(line.content, PairLine):
            single.append((float(a[0]), float(b[0])))
        else:
            groups.append((a[ok], b[ok]))
    found.values = _differences([np.abs(a - b) for a, b in pairs])
    found.scores = _differences(scores)
    found.points = [(float(x), float(y)) for a, b in pairs for x, y in zip(a, b, strict=True)]
    if single and not groups:  # pairs have no best document; their order among each other still says something
        together = np.array(single, dtype=np.float64)
        found.ranking = rank_agreement([(together[:, 0], together[:, 1])], tie=tie, k=0)
    else:
        found.ranking = rank_agreement(groups, tie=tie, k=k)
    return found


def _compare_classes(
    lines: Sequence[Line], reference: Sequence[Answer], served: Sequence[Answer], *, tie: float
) -> Comparison:
    """By label name: a column that moved is no difference, a name that moved is."""
    found = Comparison(_differences([]))
    if not lines:
        return found
    names, served_names = reference[0].labels, served[0].labels
    found.label_names = (names, served_names)
    shared = [name for name in names if name in served_names]
    a_columns = [names.index(name) for name in shared]
    b_columns = [served_names.index(name) for name in shared]
    values, others, scores, agree = [], [], [], 0
    for line, want, got in zip(lines, reference, served, strict=True):
        a, b = _both(want, got, check=False)
        assert want.scores is not None
        assert got.scores is not None
        values.append(a[a_columns])
        others.append(b[b_columns])
        scores.append(np.abs(_floats(want.scores)[a_columns] - _floats(got.scores)[b_columns]))
        best = served_names[int(np.argmax(b))]
        agree += best in names and bool(a[names.index(best)] >= a.max() - tie)
        text = _text(line)
        found.cases += [
            Case(line.number, text, name, float(x), float(y))
            for name, x, y in zip(shared, values[-1], others[-1], strict=True)
        ]
    found.values = _differences([np.abs(a - b) for a, b in zip(values, others, strict=True)])
    found.scores = _differences(scores)
    found.labels = Share(agree, len(lines))
    found.points = [
        (float(x), float(y)) for a, b in zip(values, others, strict=True) for x, y in zip(a, b, strict=True)
    ]
    if shared:
        by_label = np.stack(values).T, np.stack(others).T
        found.ranking = rank_agreement(list(zip(*by_label, strict=True)), tie=tie, k=0)
    return found


def _compare_vectors(
    lines: Sequence[Line], reference: Sequence[Answer], served: Sequence[Answer], *, tie: float, k: int
) -> Comparison:
    found = Comparison(_differences([]))
    differences, cosines = [], []
    for line, want, got in zip(lines, reference, served, strict=True):
        a, b = _both(want, got)
        apart = np.abs(a - b)
        worst = int(np.argmax(np.nan_to_num(apart, nan=np.inf)))
        differences.append(apart)
        cosines.append(float(_unit(a[None])[0] @ _unit(b[None])[0]))
        found.cases.append(Case(line.number, _text(line), f"component {worst}", float(a[worst]), float(b[worst])))
    found.values = _differences(differences)
    if not lines:
        return found
    found.cosine = min(cosines)
    a = _similarities(reference[:NEIGHBOURS])
    b = _similarities(served[:NEIGHBOURS])
    others = ~np.eye(len(a), dtype=bool)
    groups = [(a[i][others[i]], b[i][others[i]]) for i in range(len(a))]
    found.ranking = rank_agreement(groups, tie=tie, k=k)
    upper = np.triu_indices(len(a), 1)
    found.points = list(zip(a[upper].tolist(), b[upper].tolist(), strict=True))
    return found


def _compare_spans(lines: Sequence[Line], reference: Sequence[Answer], served: Sequence[Answer]) -> Comparison:
    found = Comparison(_differences([]))
    apart: list[float] = []
    same = hits = wanted = given = sentiments = sentiments_same = 0
    for line, want, got in zip(lines, reference, served, strict=True):
        assert want.item is not None
        assert got.item is not None
        a, b = _spans(want.item), _spans(got.item)
        same += a.keys() == b.keys()
        hits, wanted, given = hits + len(a.keys() & b.keys()), wanted + len(a), given + len(b)
        for name in dict.fromkeys([*a, *b]):
            case = Case(line.number, _text(line), name, a.get(name, np.nan), b.get(name, np.nan))
            found.cases.append(case)
            if name in a and name in b:
                apart.append(case.difference)
                found.points.append((case.reference, case.served))
        if want.item.sentiment is not None or got.item.sentiment is not None:
            sentiments += 1
            left, right = want.item.sentiment or ("none", np.nan), got.item.sentiment or ("none", np.nan)
            sentiments_same += left[0] == right[0]
            what = f"sentiment {left[0]}" if left[0] == right[0] else f"sentiment {left[0]}, served {right[0]}"
            served_score = right[1] if left[0] == right[0] else float("nan")
            found.cases.append(Case(line.number, _text(line), what, left[1], served_score))
            if left[0] == right[0]:
                apart.append(abs(left[1] - right[1]))
                found.points.append((left[1], right[1]))
    found.values = _differences([np.array(apart)])
    found.spans = Share(same, len(lines))
    found.span_f1 = 2 * hits / (wanted + given) if wanted + given else 1.0
    found.labels = Share(sentiments_same, sentiments) if sentiments else None
    return found


def _spans(item: AbsaItem) -> dict[str, float]:
    """Score by place, aspect and polarity."""
    return {_span_name(span): span.score for span in item.spans}


def _span_name(span: Span) -> str:
    return f"{span.start}-{span.end} {span.text!r} {span.aspect or '-'} {span.polarity}"


def _both(want: Answer, got: Answer, *, check: bool = True) -> tuple[Floats, Floats]:
    assert want.values is not None
    assert got.values is not None
    if check and want.values.shape != got.values.shape:
        raise ValueError(
            f"the server gave {got.values.shape[0]} numbers where the reference has {want.values.shape[0]}"
        )
    return _floats(want.values), _floats(got.values)


def _floats(values: FloatArray) -> Floats:
    return values.astype(np.float64)


def _differences(parts: Sequence[Floats]) -> Differences:
    every = np.concatenate(parts) if parts else np.empty(0)
    if not len(every):
        return Differences(0, float("nan"), float("nan"))
    return Differences(len(every), float(every.max()), float(every.mean()))  # NaN stays NaN


def _similarities(answers: Sequence[Answer]) -> Floats:
    vectors = _unit(np.stack([answer.values for answer in answers if answer.values is not None]).astype(np.float64))
    similar: Floats = vectors @ vectors.T
    return similar


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _texts(line: Line) -> list[str]:
    """The inputs of a line, as a reader knows them."""
    match line.content:
        case RerankLine(query=query, documents=members) | ImageRankLine(query=query, images=members):
            return [f"{query} ⟶ {member}" for member in members]
        case PairLine(text_1=first, text_2=second):
            return [f"{first} ⟶ {second}"]
        case ClassifyLine(text=text, text_pair=second):
            return [text if second is None else f"{text} ⟶ {second}"]
        case ImageLine(image=image):
            return [image]
        case TextLine(text=text) | AbsaLine(text=text):
            return [text]


def _text(line: Line) -> str:
    return _texts(line)[0]
