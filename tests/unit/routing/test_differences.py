"""Comparing two versions' answers."""

from __future__ import annotations

import numpy as np
import pytest

from serve_app.messages import AbsaResult, ClassifyResult, EmbedResult, PoolResult, ScoreResult, Served
from serve_app.routing.differences import Difference, difference

SERVED = Served("m", "1", 1)


def _array(*rows: object) -> np.ndarray:
    return np.array(rows, np.float32)


def test_scores() -> None:
    found = difference(ScoreResult(_array(1, 2, 3), SERVED), ScoreResult(_array(1, 4, 3.5), SERVED))
    assert found == Difference(3, 2.0, 2.5, 1, 0)


def test_items_without_an_answer_are_left_out() -> None:
    nan = np.nan
    found = difference(ScoreResult(_array(nan, 2, 3), SERVED), ScoreResult(_array(9, nan, 3.5), SERVED))
    assert found == Difference(1, 0.5, 0.5, 1, 0)
    assert difference(ScoreResult(_array(nan), SERVED), ScoreResult(_array(1), SERVED)) is None


def test_classes_agree_by_input() -> None:
    ours, other = _array([0.9, 0.1], [0.4, 0.6]), _array([0.8, 0.2], [0.7, 0.3])
    found = difference(ClassifyResult(ours, ["a", "b"], SERVED), ClassifyResult(other, ["a", "b"], SERVED))
    assert found is not None
    assert (found.tops, found.tops_equal, found.max_abs) == (2, 1, pytest.approx(0.3))
    assert difference(ClassifyResult(ours, ["a", "b"], SERVED), ClassifyResult(other, ["b", "a"], SERVED)) is None


def test_vectors_and_poolers() -> None:
    found = difference(EmbedResult(_array([1, 0]), SERVED), EmbedResult(_array([0, 1]), SERVED))
    assert found == Difference(2, 1.0, 2.0)
    rows = [_array(1, 2), _array([3, 4], [5, 6])]
    assert difference(PoolResult(rows, SERVED), PoolResult(rows, SERVED)) == Difference(6, 0.0, 0.0)
    assert difference(PoolResult(rows, SERVED), PoolResult(rows[::-1], SERVED)) is None
    assert difference(EmbedResult(_array([1, 0]), SERVED), EmbedResult(_array([0, 1, 2]), SERVED)) is None
    assert difference(AbsaResult([], SERVED), AbsaResult([], SERVED)) is None
