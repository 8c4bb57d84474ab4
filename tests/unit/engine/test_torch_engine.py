"""The engine for small encoders: batching, fairness, ends of all kinds. Its parity is in tests/parity."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_app.checkpoint import read_checkpoint
from serve_app.engine import torch_engine
from serve_app.engine.torch_engine import TorchEngine
from serve_app.engine.torch_forward import groups
from serve_app.errors import DeadlineExceeded, EngineDead, InternalError, InvalidRequest, Overloaded
from serve_app.messages import EngineBatch, EngineOutput
from serve_app.vocabulary import PoolingTask
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


def batch(lengths: list[int], seed: int = 0, *, deadline_s: float = 60.0, **changes: Any) -> EngineBatch:
    ids = np.random.default_rng(seed).integers(5, 30, sum(lengths)).astype(np.int32)
    values: dict[str, Any] = {
        "request_id": f"r{seed}",
        "task": PoolingTask.CLASSIFY,
        "token_ids": ids,
        "offsets": np.cumsum([0, *lengths], dtype=np.int32),
        "segment_starts": np.array([length // 2 for length in lengths], np.int32),
        "deadline": time.time() + deadline_s,
    }
    return EngineBatch(**values | changes)


@pytest.fixture
async def engine(checkpoints: Checkpoints) -> AsyncIterator[TorchEngine]:
    changes = {
        "engine": {"kind": "torch"},
        "max_num_seqs": 16,
        "max_num_batched_tokens": 256,
        "health": {"canary_timeout_s": 0.5},
        "admission": {"max_documents_in_flight": 600, "max_tokens_in_flight": 100_000},
    }
    settings = settings_for(checkpoints.bert(3), "classify", **changes)
    made = TorchEngine(settings, read_checkpoint(checkpoints.bert(3), settings))
    times = await made.start()
    assert times.keys() == {"import", "weights", "canary", "total"}
    yield made
    await made.shutdown()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sequences of every step from now on."""
    found: list[int] = []
    forward = torch_engine.forward

    def noting(model: Any, inputs: Any) -> Any:
        found.append(len(inputs.lengths))
        return forward(model, inputs)

    monkeypatch.setattr(torch_engine, "forward", noting)
    return found


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Steps wait until it is set."""
    event = threading.Event()
    forward = torch_engine.forward

    def waiting(model: Any, inputs: Any) -> Any:
        event.wait(30)
        return forward(model, inputs)

    monkeypatch.setattr(torch_engine, "forward", waiting)
    return event


async def output(engine: TorchEngine, wanted: EngineBatch) -> EngineOutput:
    found = await engine.run(wanted)
    assert isinstance(found, EngineOutput)
    return found


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9).map(sorted), fixed=st.sampled_from([0, 3, 64]))
def test_groups_cost_least(lengths: list[int], fixed: int) -> None:
    def cost(ranges: list[tuple[int, int]]) -> int:
        return sum(fixed + (end - start) * lengths[end - 1] for start, end in ranges)

    found = groups(np.array(lengths), fixed)
    assert [start for start, _ in found] + [len(lengths)] == [0] + [end for _, end in found]
    inner = range(1, len(lengths))
    cuts = (c for n in range(len(lengths)) for c in itertools.combinations(inner, n))
    assert cost(found) == min(cost(list(itertools.pairwise([0, *c, len(lengths)]))) for c in cuts)


async def test_values_do_not_depend_on_company(engine: TorchEngine, steps: list[int]) -> None:
    lengths = [3, 40, 7, 7, 1, 25, 64, 12]
    together = await output(engine, batch(lengths))
    assert steps == [8]
    whole = batch(lengths)
    for i in range(len(lengths)):
        ids = whole.token_ids[whole.offsets[i] : whole.offsets[i + 1]]
        alone = batch([lengths[i]], token_ids=ids)
        np.testing.assert_allclose((await output(engine, alone)).values[0], together.values[i], atol=1e-5)
    assert len(np.unique(together.values.round(4), axis=0)) == len(lengths)
    without = await output(engine, batch(lengths, segment_starts=None))
    assert np.abs(without.values - together.values).max() > 1e-3


async def test_requests_share_steps_and_a_small_one_does_not_wait(
    engine: TorchEngine, steps: list[int], gate: threading.Event
) -> None:
    large = asyncio.ensure_future(engine.run(batch([20] * 400)))
    await asyncio.sleep(0.05)  # its first step has begun
    small = [asyncio.ensure_future(engine.run(batch([20], seed=i))) for i in range(1, 6)]
    await asyncio.sleep(0.05)
    gate.set()
    done, _ = await asyncio.wait({large, *small}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*small)
    assert large not in done
    assert not large.done()
    assert (await large).values.shape == (400, 3)  # type: ignore[union-attr]
    assert engine.load().sequences == 0


async def test_a_step_stays_within_its_limits(engine: TorchEngine, steps: list[int]) -> None:
    await engine.run(batch([60] * 10))
    assert steps == [4, 4, 2]  # 256 tokens
    steps.clear()
    await asyncio.gather(*(engine.run(batch([2], seed=i)) for i in range(40)))
    assert max(steps) == 16
    assert sum(steps) == 40


async def test_who_leaves_leaves_nothing(engine: TorchEngine, steps: list[int], gate: threading.Event) -> None:
    task = asyncio.ensure_future(engine.run(batch([20] * 400)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    load = engine.load()
    assert (load.sequences, load.tokens, load.unfinished, load.cancelled) == (0, 0, 0, 1)
    gate.set()
    assert (await output(engine, batch([5]))).values.shape == (1, 3)
    assert len(steps) <= 2  # the one under way, and the new one's: 400 sequences would be 34


async def test_a_deadline_ends_the_work(engine: TorchEngine, gate: threading.Event) -> None:
    with pytest.raises(DeadlineExceeded):
        await engine.run(batch([20] * 400, deadline_s=0.1))
    gate.set()
    assert engine.load().unfinished == 0


async def test_overload_is_refused_whole(engine: TorchEngine, gate: threading.Event) -> None:
    first = asyncio.ensure_future(engine.run(batch([5] * 500)))
    await asyncio.sleep(0.05)
    with pytest.raises(Overloaded):
        await engine.run(batch([5] * 101))
    gate.set()
    assert len((await first).values) == 500  # type: ignore[union-attr]


async def test_a_step_that_fails_takes_its_requests_only(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch_engine, "forward", lambda model, inputs: 1 / 0)
        with pytest.raises(InternalError):
            await engine.run(batch([5]))
    await engine.check_health()
    assert (await output(engine, batch([5]))).values.shape == (1, 3)


async def test_a_device_that_fails_takes_the_engine(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_settings", engine._settings.model_copy(update={"device": "cuda"}))
    monkeypatch.setattr(torch_engine, "forward", lambda model, inputs: 1 / 0)
    with pytest.raises(EngineDead):
        await engine.run(batch([5]))
    for asked in (engine.check_health(), engine.run(batch([5]))):
        with pytest.raises(EngineDead, match="device has failed"):
            await asked


async def test_silence_is_noticed(engine: TorchEngine, gate: threading.Event) -> None:
    with pytest.raises(EngineDead, match="did not answer its canary"):
        await engine.check_health()
    task = asyncio.ensure_future(engine.run(batch([5])))
    await asyncio.sleep(0.7)
    with pytest.raises(EngineDead, match="has work and gave no output"):
        await engine.check_health()
    gate.set()
    await task
    await engine.check_health()


async def test_a_hang_is_noticed_although_requests_give_up_soon(engine: TorchEngine, gate: threading.Event) -> None:
    """One request after the other, each shorter than the silence that means death."""

    async def ask() -> None:
        while True:
            with pytest.raises(DeadlineExceeded):
                await engine.run(batch([5], deadline_s=0.2))

    client = asyncio.ensure_future(ask())
    await asyncio.sleep(0.3)
    assert engine.load().sequences == 1
    with pytest.raises(EngineDead, match="did not answer its canary"):
        await engine.check_health()
    client.cancel()
    gate.set()
    await asyncio.wait([client])
    await output(engine, batch([5]))
    await engine.check_health()


async def test_under_load_the_canary_is_not_asked_again_once_an_output_has_come(
    engine: TorchEngine, gate: threading.Event, steps: list[int]
) -> None:
    gone = asyncio.ensure_future(engine.run(batch([5])))
    await asyncio.sleep(0.05)
    gone.cancel()
    await asyncio.wait([gone])
    gate.set()
    await output(engine, batch([5]))
    task = asyncio.ensure_future(engine.run(batch([5])))
    await asyncio.sleep(0)
    before = len(steps)
    await engine.check_health()
    assert len(steps) == before
    await task


@pytest.mark.parametrize(
    "changes",
    [{"task": PoolingTask.EMBED}, {"task": PoolingTask.TOKEN_CLASSIFY, "values_per_token": True}, {"params": {}}],
    ids=str,
)
async def test_what_it_cannot_do_is_said(engine: TorchEngine, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="by task classify"):
        await engine.run(batch([5], **changes))


async def test_an_end_fails_what_is_under_way(engine: TorchEngine, gate: threading.Event) -> None:
    task = asyncio.ensure_future(engine.run(batch([20] * 100)))
    await asyncio.sleep(0.05)
    gate.set()
    await engine.shutdown()
    with pytest.raises(EngineDead):
        await task


def test_an_embedder_must_say_how_it_pools(checkpoints: Checkpoints) -> None:
    settings = settings_for(checkpoints.xlm_roberta(0), "embed", engine={"kind": "torch"})
    with pytest.raises(ValueError, match="pooling: the checkpoint does not say"):
        TorchEngine(settings, read_checkpoint(checkpoints.xlm_roberta(0), settings))


@pytest.mark.parametrize("culprits", [1, 2])
async def test_of_requests_that_share_a_failed_step_only_the_one_at_fault_fails(
    culprits: int, engine: TorchEngine, monkeypatch: pytest.MonkeyPatch, gate: threading.Event
) -> None:
    forward = torch_engine.forward
    steps: list[int] = []

    def poisoned(model: Any, inputs: Any) -> Any:
        steps.append(len(inputs.lengths))
        if 99_999 in inputs.ids:
            raise IndexError("index out of range in self")
        return forward(model, inputs)

    monkeypatch.setattr(torch_engine, "forward", poisoned)
    first = asyncio.ensure_future(engine.run(batch([5])))
    await asyncio.sleep(0.05)  # its step has begun; the others share the next one
    bad = [batch([3], seed=i, token_ids=np.array([5, 99_999, 6], np.int32)) for i in range(culprits)]
    runs = [batch([3, 7], seed=11), *bad, batch([9], seed=12)]
    others = [asyncio.ensure_future(engine.run(run)) for run in runs]
    await asyncio.sleep(0.05)
    gate.set()
    await first
    answers = await asyncio.gather(*others, return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineOutput, *[InternalError] * culprits, EngineOutput]
    assert steps == [1, 3 + culprits, 2, *[1] * culprits, 1]
    monkeypatch.setattr(torch_engine, "forward", forward)
    for answer, alone in ((answers[0], runs[0]), (answers[-1], runs[-1])):
        assert isinstance(answer, EngineOutput)
        np.testing.assert_allclose(answer.values, (await output(engine, alone)).values, atol=1e-5)
    assert engine.load().sequences == 0
