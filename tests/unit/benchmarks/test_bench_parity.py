from __future__ import annotations

import math

import pytest

from benchmarks.parity import compare, ranks, spearman, verdict


def test_equal_values_share_their_rank() -> None:
    assert list(ranks([0.5, 0.1, 0.5, 0.9])) == [1.5, 0.0, 1.5, 3.0]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 40], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 2, 3, 4, 5], [5, 6, 7, 8, 7], 0.8207826816681233),  # scipy.stats.spearmanr
    ],
)
def test_spearman(ours: list[float], theirs: list[float], expected: float) -> None:
    assert spearman(ours, theirs) == pytest.approx(expected)


def test_spearman_without_an_order_is_nan() -> None:
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))


def test_compare() -> None:
    found = compare("a", [[0.1, 0.9], [0.5, 0.4]], "b", [[0.1, 0.8], [0.4, 0.5]], threshold=0.2)
    assert found.requests == 2
    assert found.pairs == 4
    assert found.max_abs == pytest.approx(0.1)
    assert found.mean_abs == pytest.approx(0.075)
    assert found.top1 == 0.5
    assert found.spearman == pytest.approx(0.0)
    assert found.passed


def test_other_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="different requests"):
        compare("a", [[0.1]], "b", [[0.1, 0.2]], threshold=1)


def test_verdict() -> None:
    good = compare("a", [[0.1, 0.2]], "b", [[0.1, 0.2]], threshold=1e-3)
    bad = compare("a", [[0.1, 0.2]], "b", [[0.2, 0.2]], threshold=1e-3)
    nan = compare("a", [[math.nan, 0.2]], "b", [[0.2, 0.2]], threshold=1e-3)
    assert verdict([]) == "not checked"
    assert verdict([good]) == "passed"
    assert verdict([good, bad]) == "FAILED"
    assert verdict([nan]) == "FAILED"
