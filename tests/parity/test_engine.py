"""The real engine under cancellation, deadlines, overload, silence and death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import psutil
import pytest

from serve_app.engine.vllm_engine import engine_process_ids
from serve_app.errors import DeadlineExceeded, EngineDead, Overloaded
from serve_app.messages import ClassifyRequest, Context, EngineBatch
from tests.checkpoints import Checkpoints
from tests.parity.conftest import Served, serving

LONG = ClassifyRequest(["the quick fox " * 80] * 400)
SHORT = ClassifyRequest(["fox"])


@pytest.fixture(scope="module")
def served(checkpoints: Checkpoints) -> Iterator[Served]:
    changes = {
        "health": {"canary_timeout_s": 2.0},
        "admission": {"max_documents_in_flight": 500, "max_tokens_in_flight": 100_000},
        # As on a GPU, so that all of this holds with it; the longest there is, since this machine may be busy.
        "engine": {"enforce_eager": True, "gather_ms": 100.0},
    }
    with serving(checkpoints.bert(3), "classify", max_model_len=256, **changes) as started:
        yield started


def _nothing_left(served: Served) -> None:
    load = served.engine.load()
    assert (load.sequences, load.tokens, load.unfinished) == (0, 0, 0)


def test_the_start_says_where_its_time_went(served: Served) -> None:
    times = dict(served.start_times)
    total = times.pop("total")
    assert times.keys() == {"import", "setup", "weights", "profile", "compile", "canary"}
    assert all(seconds >= 0 for seconds in times.values())
    assert min(times["weights"], times["setup"], times["canary"]) > 0
    assert sum(times.values()) <= total


def test_parameters_that_sequences_share_are_sent_as_vllms_and_not_changed(served: Served) -> None:
    ours = served.engine._shared_params(task="classify", use_activation=False, extra_kwargs={"a": 1})
    theirs = served.engine._params(task="classify", use_activation=False, extra_kwargs={"a": 1})
    assert ours.clone() is ours
    assert msgspec.msgpack.encode(ours) == msgspec.msgpack.encode(theirs)
    seen: list[Any] = []
    make = served.engine._pooling_params

    def noting(batch: EngineBatch, segment: int | None) -> object:
        params = make(batch, segment)
        seen.append(params)
        return params

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served.engine, "_pooling_params", noting)
        for _ in range(2):
            served.run(ClassifyRequest(["the quick fox", "a fox", "fox"]))
    first, second = seen
    assert first is not second  # shared within a batch only
    assert msgspec.msgpack.encode(first) == msgspec.msgpack.encode(second)


def test_a_step_begins_with_a_whole_request(served: Served) -> None:
    """20 sequences arrive over some milliseconds, in which an idle core would have begun with the first."""
    states: list[Any] = []
    submit = served.engine._submit

    async def noting(batch: EngineBatch, loaded: Any, tags: Any, collectors: list[Any], first: list[Any]) -> None:
        await submit(batch, loaded, tags, collectors, first)
        known = served.engine._llm.output_processor.request_states
        states.extend(known[collector.request_id] for collector in collectors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(served.engine, "_submit", noting)
        served.run(ClassifyRequest(["fox"] * 20))
    assert len(states) == 20
    assert len({state.stats.scheduled_ts for state in states}) == 1


def test_cancelled_work_leaves_the_engine(served: Served) -> None:
    async def leave() -> None:
        task = asyncio.ensure_future(served.pipeline.run(Context("gone", time.time() + 60), LONG))
        while served.engine.load().unfinished < 100:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        _nothing_left(served)
        # the engine's core has dropped them too: a small request is not behind 400 long ones
        begin = time.monotonic()
        await served.pipeline.run(Context("next", time.time() + 60), SHORT)
        assert time.monotonic() - begin < 2.0

    before = served.engine.load().cancelled
    served.call(leave())
    assert served.engine.load().cancelled == before + 1


def test_past_the_deadline_work_leaves_the_engine(served: Served) -> None:
    async def late() -> None:
        with pytest.raises(DeadlineExceeded):
            await served.pipeline.run(Context("late", time.time() + 0.5), LONG)
        _nothing_left(served)

    served.call(late())


def test_overload_is_refused_whole(served: Served) -> None:
    async def two() -> None:
        first = asyncio.ensure_future(served.pipeline.run(Context("a", time.time() + 120), LONG))
        while served.engine.load().sequences == 0:
            await asyncio.sleep(0.01)
        with pytest.raises(Overloaded) as caught:
            await served.pipeline.run(Context("b", time.time() + 60), LONG)
        assert 1 <= caught.value.retry_after_s <= 30
        assert served.engine.load().sequences == 400
        assert len((await first).scores) == 400  # type: ignore[union-attr]

    served.call(two())
    _nothing_left(served)


async def _short_requests_beside(served: Served) -> None:
    """A health check beside a client whose requests give up sooner than an engine's silence means death."""

    async def ask() -> None:
        while True:
            with contextlib.suppress(DeadlineExceeded):
                await served.pipeline.run(Context("short", time.time() + 0.5), SHORT)

    client = asyncio.ensure_future(ask())
    try:
        await asyncio.sleep(0.8)
        assert served.engine.load().sequences
        await served.engine.check_health()
    finally:
        client.cancel()
        await asyncio.wait([client])


def test_a_silent_engine_is_noticed_and_a_dead_one_at_once(served: Served) -> None:
    """Last in this file: it ends the engine."""
    core = next(pid for pid in engine_process_ids() if "EngineCore" in psutil.Process(pid).name())
    served.call(served.engine.check_health())
    os.kill(core, signal.SIGSTOP)
    try:
        with pytest.raises(EngineDead, match="did not answer its canary within 2 s"):
            served.call(served.engine.check_health())
        with pytest.raises(EngineDead, match="did not answer its canary within 2 s"):
            served.call(_short_requests_beside(served))
    finally:
        os.kill(core, signal.SIGCONT)
    served.call(served.engine.check_health())

    async def stopped_under_load() -> None:
        task = asyncio.ensure_future(served.pipeline.run(Context("x", time.time() + 60), LONG))
        while served.engine.load().unfinished < 100:
            await asyncio.sleep(0.01)
        os.kill(core, signal.SIGSTOP)
        await asyncio.sleep(2.5)
        with pytest.raises(EngineDead, match="has work and gave no output"):
            await served.engine.check_health()
        os.kill(core, signal.SIGKILL)
        with pytest.raises(EngineDead):
            await task
        with pytest.raises(EngineDead):
            await served.engine.check_health()
        with pytest.raises(EngineDead):
            await served.pipeline.run(Context("y", time.time() + 60), SHORT)

    served.call(stopped_under_load())
