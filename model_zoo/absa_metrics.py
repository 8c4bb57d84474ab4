"""How well spans, aspects and sentiments are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from model_zoo.absa_modelling import POLARITIES, Answer
from model_zoo.absa_reviews import Review


def score(reviews: Sequence[Review], answers: Sequence[Answer]) -> dict[str, float]:
    """The figures of answers to reviews.

    Returns:
        `span_f1`: micro F1 of spans whose place, aspect and polarity are all right; `place_f1`: of their places alone;
        `aspect_f1`: of the distinct (aspect, polarity) of each review; `sentiment_accuracy`, and what always saying
        `commonest` would reach.
    """
    pairs = list(zip(reviews, answers, strict=True))
    right = sum(review.sentiment == answer.sentiment for review, answer in pairs)
    counts = Counter(review.sentiment for review in reviews)
    return {
        "span_f1": _f1([({*review.spans}, {*answer.spans}) for review, answer in pairs]),
        "place_f1": _f1([({(s.start, s.end) for s in r.spans}, {(s.start, s.end) for s in a.spans}) for r, a in pairs]),
        "aspect_f1": _f1(
            [({(s.aspect, s.polarity) for s in r.spans}, {(s.aspect, s.polarity) for s in a.spans}) for r, a in pairs]
        ),
        "sentiment_accuracy": round(right / len(reviews), 4),
        "commonest": round(max(counts[polarity] for polarity in POLARITIES) / len(reviews), 4),
    }


def _f1(pairs: Sequence[tuple[set[object], set[object]]]) -> float:
    both = sum(len(wanted & found) for wanted, found in pairs)
    total = sum(len(wanted) + len(found) for wanted, found in pairs)
    return round(2 * both / total, 4) if total else 1.0
