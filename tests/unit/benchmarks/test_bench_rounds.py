from __future__ import annotations

import pytest

from benchmarks.clients import Load
from benchmarks.load import Outcome
from benchmarks.rounds import SATURATED, Slot, plan, progress, row


def test_order_is_swapped_every_round() -> None:
    slots = plan(["a", "b"], [1, 16], rounds=3, exclusive=False)
    assert [(s.concurrencies, s.round, s.backend) for s in slots if s.concurrencies == (1,)] == [
        ((1,), 0, "a"),
        ((1,), 0, "b"),
        ((1,), 1, "b"),
        ((1,), 1, "a"),
        ((1,), 2, "a"),
        ((1,), 2, "b"),
    ]
    assert len(slots) == 12
    assert [s.position for s in slots] == [0, 1] * 6


def test_exclusive_runs_all_concurrencies_in_one_start() -> None:
    slots = plan(["a", "b"], [1, 16], rounds=2, exclusive=True)
    assert [s.backend for s in slots] == ["a", "b", "b", "a"]
    assert {s.concurrencies for s in slots} == {(1, 16)}


def test_a_row_has_latencies_of_answers_only_and_counts_all_errors() -> None:
    stages = {"engine": 50.0, "total": 80.0}
    load = Load(
        outcomes=[
            Outcome(0.0, 0.1, None, stages, 500),
            Outcome(0.1, 0.2, None, {"engine": 70.0}, 300),
            Outcome(0.2, 5.0, "timeout"),
            Outcome(0.2, 0.21, "http 503"),
        ],
        cpu_shares=[0.1, 0.4],
        warmup_failures=[Outcome(0, 1, "http 503")],
    )
    found = row(Slot("a", 0, 0, (1,)), 1, 20, load)
    assert found.requests == 2
    assert found.errors == {"http 503": 2, "timeout": 1}
    assert found.failed == 3
    assert found.p99_ms == pytest.approx(100)
    assert found.wall_s == pytest.approx(5.0)
    assert found.client_cpu == 0.4
    assert found.answer_bytes == 400
    assert found.stages["engine"]["p50_ms"] == 60
    assert found.stages["client_overhead"] == {"p50_ms": pytest.approx(20), "p95_ms": pytest.approx(20), "requests": 1}
    assert "ERRORS" in progress(found, 3)


def test_a_saturated_client_is_announced() -> None:
    load = Load([Outcome(0.0, 0.1)], [SATURATED + 0.1])
    found = row(Slot("a", 0, 0, (1,)), 1, 20, load)
    assert "--clients" in progress(found, 1)
    assert "ERRORS" not in progress(found, 1)
