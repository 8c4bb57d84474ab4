"""The figures, on numbers whose answers are known, and the limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from serve_app.messages import AbsaItem, Span
from serve_app.tasks.activation import activate
from serve_app.verify.answers import Answer, Ticking
from serve_app.verify.compare import Comparison, compare
from serve_app.verify.inputs import AbsaLine, ClassifyLine, Line, PairLine, RerankLine, TextLine
from serve_app.verify.limits import Check, checks, default_limits
from serve_app.verify.ranking import spearman, top_overlap
from serve_app.vocabulary import Activation, DType, Task

LIMITS = default_limits(Task.RERANK, DType.FLOAT32)


def _scores(*values: float, **more: object) -> Answer:
    logits = np.array(values, dtype=np.float32)
    return replace(Answer(values=logits, scores=activate(logits, Activation.SIGMOID)), **more)  # type: ignore[arg-type]


def _rerank(*documents: str, number: int = 1) -> Line:
    return Line(number, RerankLine(query="q", documents=list(documents)))


def _compare(lines: list[Line], reference: list[Answer], served: list[Answer]) -> Comparison:
    return compare(lines, reference, served, tie=2e-4, k=2)


def _failed(found: Comparison, limits: object = LIMITS) -> set[str]:
    return {check.name for check in checks(found, limits) if not check.passed}  # type: ignore[arg-type]


def test_equal_sides_pass_everything() -> None:
    found = _compare([_rerank("a", "b", "c")], [_scores(1, 2, 3)], [_scores(1, 2, 3)])
    assert (found.values.max, found.values.count) == (0, 3)
    assert found.ranking is not None
    assert (found.ranking.spearman, found.ranking.top1, found.ranking.topk) == (1, 1, 1)
    assert not _failed(found)
    assert found.worst(10) == []


def test_differences_order_and_worst_cases() -> None:
    lines = [_rerank("a", "b", "c"), _rerank("d", "e", "f", number=4)]
    found = _compare(lines, [_scores(1, 2, 3), _scores(0, 0, 1)], [_scores(3, 2, 1), _scores(0, 0, 1.5)])
    assert found.values.max == 2
    assert found.values.mean == pytest.approx(4.5 / 6)
    assert found.ranking is not None
    assert found.ranking.top1 == 0.5
    assert found.ranking.spearman == pytest.approx(0)
    assert found.ranking.spearman_min == pytest.approx(-1)
    assert found.ranking.topk == 0.75  # of the first two of 1, 2, 3 the served ones hold one
    worst = found.worst(3)
    assert [(case.line, case.text, case.difference) for case in worst] == [
        (1, "q ⟶ a", 2),
        (1, "q ⟶ c", 2),
        (4, "q ⟶ f", 0.5),
    ]
    assert _failed(found) == {"largest difference", "largest difference of scores", "top-1 agreement"}


def test_a_tie_of_the_reference_may_be_served_in_either_order() -> None:
    found = _compare([_rerank("a", "b", "c")], [_scores(2.0001, 2, 0)], [_scores(2, 2.0001, 0)])
    assert found.ranking is not None
    assert found.ranking.top1 == 1


@pytest.mark.parametrize("seed", range(20))
def test_spearman_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 6, 12).astype(float), rng.integers(0, 6, 12).astype(float)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)


def test_spearman_of_a_side_without_an_order_is_no_agreement() -> None:
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 1.0])) == 0
    assert math.isnan(spearman(np.array([1.0, 2.0]), np.array([1.0, np.nan])))
    assert top_overlap(np.array([1.0, 2.0]), np.array([np.nan, np.nan]), 1, 0.0) == 0


def test_a_value_that_is_no_number_never_passes() -> None:
    found = _compare([_rerank("a", "b")], [_scores(1, 2)], [_scores(1, float("nan"))])
    assert "largest difference" in _failed(found)
    assert found.worst(1)[0].difference == math.inf


def test_pairs_have_an_order_together_and_no_best_one() -> None:
    lines = [Line(i + 1, PairLine(text_1="a", text_2=str(i))) for i in range(4)]
    found = _compare(lines, [_scores(i) for i in range(4)], [_scores(i) for i in (0, 1, 3, 2)])
    assert found.ranking is not None
    assert found.ranking.spearman == pytest.approx(0.8)
    assert "top-1 agreement" not in {check.name for check in checks(found, LIMITS)}


def test_failed_documents_and_lines_are_missing_and_not_compared() -> None:
    lines = [_rerank("a", "b"), _rerank("c", number=2)]
    served = [_scores(1, float("nan"), failed={1: "gone"}), Answer(error="refused")]
    found = _compare(lines, [_scores(1, 2), _scores(3)], served)
    assert [(m.line, m.text, m.message) for m in found.missing] == [(2, "q ⟶ c", "refused"), (1, "q ⟶ b", "gone")]
    assert (found.values.max, found.values.count) == (0, 1)
    assert _failed(found) == {"inputs without a served answer"}


def test_when_nothing_was_answered_nothing_passes() -> None:
    found = _compare([_rerank("a")], [_scores(1)], [Answer(error="refused")])
    assert _failed(found) >= {"inputs without a served answer", "largest difference"}


def _classified(labels: tuple[str, ...], *values: float) -> Answer:
    logits = np.array(values, dtype=np.float32)
    return Answer(values=logits, scores=activate(logits, Activation.SOFTMAX), labels=labels)


def test_classes_are_compared_by_name() -> None:
    lines = [Line(1, ClassifyLine(text="x"))]
    want = [_classified(("no", "yes"), 1, 3)]
    moved = _compare(lines, want, [_classified(("yes", "no"), 3, 1)])
    assert moved.values.max == 0
    assert not _failed(moved)
    swapped = _compare(lines, want, [_classified(("yes", "no"), 1, 3)])
    assert _failed(swapped) == {"largest difference", "largest difference of scores", "label agreement"}
    renamed = _compare(lines, want, [_classified(("no", "si"), 1, 3)])
    assert _failed(renamed) == {"labels that one side lacks", "label agreement"}


def test_vectors_agree_by_component_cosine_and_neighbours() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(5, 8)).astype(np.float32)
    lines = [Line(i + 1, TextLine(text=str(i))) for i in range(5)]
    want = [Answer(values=vector) for vector in vectors]
    limits = default_limits(Task.EMBED, DType.FLOAT32)
    same = _compare(lines, want, want)
    assert same.cosine == pytest.approx(1)
    assert not _failed(same, limits)
    other = [Answer(values=vector) for vector in vectors[[1, 0, 2, 3, 4]]]
    swapped = _compare(lines, want, other)
    assert swapped.cosine == pytest.approx(
        float(vectors[0] @ vectors[1] / np.prod(np.linalg.norm(vectors[:2], axis=1)))
    )
    assert _failed(swapped, limits) == {"largest difference", "top-1 agreement"}


def test_another_width_is_not_compared() -> None:
    with pytest.raises(ValueError, match="the server gave 2 numbers where the reference has 3"):
        _compare([_rerank("a", "b", "c")], [_scores(1, 2, 3)], [_scores(1, 2)])


def _item(*spans: tuple[int, int, str, float], sentiment: str | None = "positive") -> Answer:
    text = "the food was good"
    found = [Span(a, b, text[a:b], "food", polarity, score) for a, b, polarity, score in spans]
    return Answer(item=AbsaItem((sentiment, 0.9) if sentiment else None, found))


def test_spans_agree_by_place_aspect_and_polarity() -> None:
    lines = [Line(i, AbsaLine(text="the food was good")) for i in (1, 2)]
    limits = default_limits(Task.ABSA, DType.FLOAT32)
    want = [_item((4, 8, "positive", 0.9)), _item(sentiment=None)]
    same = _compare(lines, want, [_item((4, 8, "positive", 0.90005)), _item(sentiment=None)])
    assert same.spans is not None
    assert same.labels is not None
    assert (same.spans.value, same.labels.total, same.span_f1) == (1, 1, 1)
    assert same.values.max == pytest.approx(5e-5)
    assert not _failed(same, limits)
    other = _compare(lines, want, [_item((4, 8, "negative", 0.9), sentiment="negative"), _item(sentiment=None)])
    assert other.span_f1 == 0
    assert _failed(other, limits) == {"span agreement", "label agreement"}  # no span has two scores to compare
    assert {case.what.split(" ")[0] for case in other.worst(3)} == {"4-8", "sentiment"}


def test_texts_without_any_span_agree() -> None:
    lines = [Line(1, AbsaLine(text="x"))]
    found = _compare(lines, [_item(sentiment=None)], [_item(sentiment=None)])
    assert not _failed(found, default_limits(Task.ABSA, DType.FLOAT32))


def test_the_coarsest_format_decides_the_limits() -> None:
    tight, loose = default_limits(Task.RERANK, DType.FLOAT32), default_limits(Task.RERANK, DType.BFLOAT16)
    assert default_limits(Task.RERANK, DType.FLOAT32, DType.BFLOAT16) == loose
    assert tight.max_difference < default_limits(Task.RERANK, DType.FLOAT16).max_difference < loose.max_difference
    assert Check("x", float("nan"), 1, at_most=True).passed is False


def test_progress_follows_the_items() -> None:
    done: list[int] = []
    ticking = Ticking(["a", "b"], done.append)
    iterator = iter(ticking)
    next(iterator)
    assert (ticking.started, done) == (1, [])
    assert list(iterator) == ["b"]
    assert (ticking.started, done) == (2, [1, 1])
