"""Copies: bounded, awaited by nobody, counted, and gone when they are cancelled. Events, not clocks."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from serve_app.errors import ModelUnavailable
from serve_app.messages import Context, PipelineRequest, PipelineResult, ScoreRequest, ScoreResult, Served
from serve_app.routing import Decision, RoutingCounters, RoutingTable, Shadows, Target
from serve_app.settings import RoutingSettings
from serve_app.vocabulary import Operation

REQUEST = ScoreRequest(["q"], ["a", "b", "c"])


def _result(*scores: float, version: str = "1") -> ScoreResult:
    return ScoreResult(np.array(scores, np.float32), Served("ce", version, 1))


class Backend:
    """Holds every copy until `gate` opens, then answers with `answer` or raises it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started = 0
        self.ended_early = 0
        self.answer: PipelineResult | Exception = _result(0.1, 0.2, 0.9, version="2")

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        assert (target.application, request) == ("ce-2", REQUEST)
        self.started += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended_early += 1
            raise
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def _table(**shadow: object) -> RoutingTable:
    versions = {v: {"application": f"ce-{v}", "task": "rerank", "weight": 2 - int(v)} for v in ("1", "2")}
    model = {"versions": versions, "shadow": {"version": "2", **shadow}}
    return RoutingTable(RoutingSettings.model_validate({"models": {"ce": model}}))


def _decision(table: RoutingTable) -> Decision:
    decision = table.route("ce", Operation.RERANK)
    assert decision.shadow is not None
    return decision


def _offer(shadows: Shadows, table: RoutingTable) -> bool:
    context = Context("id", time.time() + 60, "rerank")
    return shadows.offer(_decision(table), context, REQUEST, _result(0.1, 0.5, 0.6))


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def counters() -> RoutingCounters:
    return RoutingCounters()


@pytest.fixture
def shadows(backend: Backend, counters: RoutingCounters) -> Shadows:
    return Shadows(backend.run, counters)


def _counts(counters: RoutingCounters) -> dict[str, float]:
    (row,) = counters.snapshot()["shadows"]
    assert (row.pop("model"), row.pop("version"), row.pop("shadow")) == ("ce", "1", "2")
    return {name: value for name, value in row.items() if value}


async def _settled(shadows: Shadows) -> None:
    while shadows.in_flight:
        await asyncio.sleep(0)


async def test_no_more_copies_than_there_is_room_for(
    backend: Backend, shadows: Shadows, counters: RoutingCounters
) -> None:
    table = _table(max_in_flight=3)
    assert [_offer(shadows, table) for _ in range(5)] == [True, True, True, False, False]
    assert backend.started == 0  # nothing ran while the caller's path did
    await asyncio.sleep(0)
    assert (backend.started, shadows.in_flight) == (3, 3)
    backend.gate.set()
    await _settled(shadows)
    assert _offer(shadows, table)
    await _settled(shadows)
    counts = _counts(counters)
    assert (counts["sent"], counts["answered"], counts["dropped"], counts["compared"]) == (4, 4, 2, 4)


async def test_the_difference_of_the_scores_is_counted(
    backend: Backend, shadows: Shadows, counters: RoutingCounters
) -> None:
    backend.gate.set()
    assert _offer(shadows, _table())
    await _settled(shadows)
    counts = _counts(counters)
    assert counts["max_abs"] == pytest.approx(0.3)
    assert counts["mean_abs"] == pytest.approx(0.6 / 3)
    assert (counts["values"], counts["tops"], counts["tops_equal"]) == (3, 1, 1)
    backend.answer = _result(0.9, 0.1, 0.2, version="2")
    assert _offer(shadows, _table())
    await _settled(shadows)
    counts = _counts(counters)
    assert (counts["tops"], counts["tops_equal"]) == (2, 1)


@pytest.mark.parametrize("error", [ModelUnavailable("gone"), RuntimeError("a fault of ours")])
async def test_a_failing_copy_is_counted_and_leaves_nothing(
    backend: Backend, shadows: Shadows, counters: RoutingCounters, error: Exception
) -> None:
    backend.answer = error
    backend.gate.set()
    assert _offer(shadows, _table(max_in_flight=1))
    await _settled(shadows)
    assert _offer(shadows, _table(max_in_flight=1))  # its room is free again
    await _settled(shadows)
    assert _counts(counters) == {"sent": 2, "failed": 2}


async def test_a_copy_past_its_time_is_given_up(backend: Backend, shadows: Shadows, counters: RoutingCounters) -> None:
    assert _offer(shadows, _table(timeout_ms=1))
    await _settled(shadows)
    assert (backend.ended_early, _counts(counters)) == (backend.started, {"sent": 1, "failed": 1})


async def test_a_table_without_the_shadow_ends_its_copies(
    backend: Backend, shadows: Shadows, counters: RoutingCounters
) -> None:
    table = _table()
    assert _offer(shadows, table)
    assert _offer(shadows, table)
    await asyncio.sleep(0)
    shadows.retain(table)
    await asyncio.sleep(0)
    assert shadows.in_flight == 2
    shadows.retain(RoutingTable(RoutingSettings()))
    await _settled(shadows)
    assert backend.ended_early == 2
    assert _counts(counters) == {"sent": 2, "cancelled": 2}


async def test_the_end_leaves_no_task(backend: Backend, shadows: Shadows, counters: RoutingCounters) -> None:
    before = asyncio.all_tasks()
    table = _table()
    for _ in range(4):
        assert _offer(shadows, table)
    await asyncio.sleep(0)
    assert _offer(shadows, table)  # cancelled before its first step
    await shadows.close()
    assert asyncio.all_tasks() == before
    assert (shadows.in_flight, backend.started, backend.ended_early) == (0, 4, 4)
    assert _counts(counters) == {"sent": 5, "cancelled": 5}
