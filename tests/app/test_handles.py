"""Calls between deployments when the other side dies: what is repeated, what is not, and who leaves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from deployments import pooling_engine
from deployments.handles import ask
from deployments.pooling_engine import PoolingEngine
from serve_app.errors import EngineDead, InternalError, Overloaded, PoolserveError, ReplicaDied
from serve_app.messages import EngineBatch, EngineOutput
from serve_app.observability.registry import Registry
from serve_app.vocabulary import PoolingTask
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


class Handle:
    """A deployment whose method `run` ends with an error, or a value."""

    def __init__(self, outcome: Any) -> None:
        self.run = self
        self.outcome = outcome

    def remote(self, *arguments: Any) -> Any:
        async def response() -> Any:
            if isinstance(self.outcome, Exception) and not isinstance(self.outcome, PoolserveError):
                raise self.outcome
            return self.outcome

        return response()


def _grpc_error(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "details")


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (ActorDiedError(), ReplicaDied),
        (ActorUnavailableError("gone", b"0" * 16), ReplicaDied),
        (_grpc_error(grpc.StatusCode.UNAVAILABLE), ReplicaDied),
        (_grpc_error(grpc.StatusCode.CANCELLED), ReplicaDied),
        (_grpc_error(grpc.StatusCode.RESOURCE_EXHAUSTED), InternalError),  # the same elsewhere
        (Overloaded("full"), Overloaded),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_death_is_told_from_other_errors(outcome: Exception, error: type[PoolserveError]) -> None:
    with pytest.raises(error) as caught:
        await ask(Handle(outcome), "run", deadline=time.time() + 10)
    assert type(caught.value) is error


async def test_a_value_is_a_value() -> None:
    assert await ask(Handle(5), "run", deadline=time.time() + 10) == 5


def _batch() -> EngineBatch:
    ids, offsets = np.array([1, 2, 3], np.int32), np.array([0, 3], np.int32)
    return EngineBatch("id", PoolingTask.CLASSIFY, ids, offsets, None, time.time() + 10)


class _NotReporting:
    """A replica's way to the page of metrics, where there is no replica."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.registry = Registry()
        self.replica = "none"


@pytest.fixture(autouse=True)
def _outside_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pooling_engine, "Reporting", _NotReporting)


class Bare(PoolingEngine):
    """Nobody awaits its end here."""

    def __del__(self) -> None:  # type: ignore[override]
        """Nothing to end."""


async def _engine(folder: Path, **fake: Any) -> PoolingEngine:
    settings = settings_for(folder, "rerank", version="7", engine={"kind": "fake", "fake": fake})
    engine = Bare.__new__(Bare)
    await engine.__init__(settings)  # type: ignore[misc]
    return engine


async def test_an_engine_says_its_version(checkpoints: Checkpoints) -> None:
    plain, salted = [await _engine(checkpoints.bert(1), salt=salt) for salt in (0, 1)]
    outputs = [await engine.run(_batch()) for engine in (plain, salted, salted)]
    assert all(isinstance(output, EngineOutput) and output.version == "7" for output in outputs)
    assert outputs[0].values != outputs[1].values == outputs[2].values  # type: ignore[union-attr]


async def test_a_replica_with_a_dead_engine_leaves_at_once(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[int] = []
    monkeypatch.setattr(pooling_engine.os, "_exit", exits.append)
    engine = await _engine(checkpoints.bert(1))
    assert isinstance(await engine.run(_batch()), EngineOutput)
    assert exits == []
    engine._engine.dead = True  # type: ignore[attr-defined]
    assert isinstance(await engine.run(_batch()), EngineDead)
    assert exits == [1]


async def test_a_start_that_fails_says_why(checkpoints: Checkpoints) -> None:
    with pytest.raises(RuntimeError, match="the weights are gone"):
        await _engine(checkpoints.bert(1), start_error="the weights are gone")
