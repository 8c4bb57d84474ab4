"""Counters of answers, on a clock of their own."""

from __future__ import annotations

import asyncio
import json

import pytest

from serve_app.errors import DeadlineExceeded, InvalidRequest, Overloaded
from serve_app.routing import Choice, Decision, RoutingCounters, Target
from serve_app.routing.counters import BOUNDS_MS, quantile_ms
from serve_app.vocabulary import Task

TARGET = Target("ce", "1", "ce-1", Task.RERANK, 1.0)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_answers_errors_and_times() -> None:
    clock = Clock()
    counters = RoutingCounters(clock, clock)
    for ms in (10, 10, 10, 200):
        with counters.answering(TARGET):
            clock.now += ms / 1e3
    for error in (DeadlineExceeded("late"), RuntimeError("ours"), Overloaded("full"), InvalidRequest("yours")):
        with pytest.raises(type(error)), counters.answering(TARGET):
            raise error
    with pytest.raises(asyncio.CancelledError), counters.answering(TARGET):
        raise asyncio.CancelledError
    snapshot = json.loads(json.dumps(counters.snapshot()))
    (row,) = snapshot["versions"]
    assert (row["answered"], row["errors"], row["refused"]) == (5, 2, 1)
    assert 10 <= row["latency_ms"]["p50"] <= 11.1
    assert 200 <= row["latency_ms"]["p95"] <= 222
    assert sum(row["histogram"].values()) == 4
    assert snapshot["since"] == 100.0


def test_when_a_version_was_asked_last() -> None:
    clock = Clock()
    counters = RoutingCounters(clock)
    assert counters.last_asked(TARGET) is None
    clock.now = 200.0
    counters.decided(Decision(TARGET, Choice.PINNED))
    counters.decided(Decision(TARGET, Choice.WEIGHTED))
    assert counters.last_asked(TARGET) == 200.0
    assert counters.snapshot()["versions"][0]["decisions"] == {"pinned": 1, "weighted": 1}


def test_quantiles() -> None:
    assert quantile_ms({}, 0.95) is None
    assert quantile_ms({3: 1}, 0.95) == BOUNDS_MS[3]
    assert quantile_ms({3: 94, 50: 6}, 0.95) == BOUNDS_MS[50]
    assert quantile_ms({3: 95, 50: 5}, 0.95) == BOUNDS_MS[3]
    assert quantile_ms({len(BOUNDS_MS): 1}, 0.5) == BOUNDS_MS[-1]
