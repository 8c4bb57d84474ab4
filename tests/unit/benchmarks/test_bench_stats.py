from __future__ import annotations

import math

import pytest

from benchmarks.stats import latency, quantile, show, spread, stage_summary


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([1, 2, 3, 4, 5], 0.5, 3),
        ([5, 1, 4, 2, 3], 0.5, 3),
        ([0, 10], 0.95, 9.5),
        ([7], 0.99, 7),
        ([1, 2, 3, 4], 0.5, 2.5),
        ([1, 2, 3], 0, 1),
        ([1, 2, 3], 1, 3),
    ],
)
def test_quantile_interpolates(values: list[float], q: float, expected: float) -> None:
    assert quantile(values, q) == pytest.approx(expected)


def test_quantile_of_nothing_is_nan() -> None:
    assert math.isnan(quantile([], 0.5))


def test_latency_counts_pairs_over_the_wall_time() -> None:
    summary = latency([0.1, 0.2, 0.3], wall_s=0.5, documents=20)
    assert summary.p50_ms == pytest.approx(200)
    assert summary.mean_ms == pytest.approx(200)
    assert summary.requests_per_s == pytest.approx(6)
    assert summary.pairs_per_s == pytest.approx(120)


def test_latency_without_answers_is_nan_and_not_zero() -> None:
    summary = latency([], wall_s=0.0, documents=20)
    assert math.isnan(summary.p50_ms)
    assert math.isnan(summary.pairs_per_s)


def test_spread_leaves_out_what_is_not_finite() -> None:
    found = spread([3.0, math.nan, 1.0, 2.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 3.0)
    assert math.isnan(spread([]).median)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (99.94, "99.9"), (1.234, "1.23"), (0.0, "0.00"), (math.nan, "-")]
)
def test_show(value: float, text: str) -> None:
    assert show(value) == text


def test_stage_summary_counts_only_requests_that_report_a_stage() -> None:
    found = stage_summary([{"engine": 1.0, "total": 4.0}, {"engine": 3.0}])
    assert found["engine"] == {"p50_ms": 2.0, "p95_ms": pytest.approx(2.9), "requests": 2}
    assert found["total"]["requests"] == 1
    assert list(found) == ["engine", "total"]
