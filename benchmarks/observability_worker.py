"""A process of the observability benchmark: the gateway with one variant's settings, and its own load."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from benchmarks import environment
from serve_app.checkpoint import read_checkpoint
from serve_app.engine.fake_engine import FakeEngine
from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.observability.collector import Collector, Reporter
from serve_app.observability.registry import Registry
from serve_app.observability.reporter import ReportingThread
from serve_app.observability.request import make_observer
from serve_app.pipeline import Pipeline, canary_request
from serve_app.routing import Target
from serve_app.settings import GatewayObservabilitySettings, GatewaySettings, ModelSettings, RoutingSettings
from serve_app.startup import freeze
from serve_app.tasks.model import TextModel
from serve_app.tokenization import TextTokenizer

MODEL = environment.REPOSITORY / "model_zoo" / "ce-mini"
BODY = {"model": "ce-mini", "query": "winter boots", "documents": ["warm waterproof boots for winter walks"] * 20}


@dataclass(frozen=True)
class Turn:
    """What the parent asks for.

    Attributes:
        requests: how many.
        concurrency: in flight, of a closed loop.
        rate: requests/s of an open loop with exponential gaps; 0: a closed loop.
        seed: of the gaps.
    """

    requests: int
    concurrency: int
    rate: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Took:
    """milliseconds: of each request, in an open loop from when it was due. cpu_ms: the process's, per request."""

    milliseconds: list[float]
    cpu_ms: float
    wall_s: float


@dataclass
class LocalBackend:
    """A pipeline in this process."""

    pipeline: Pipeline

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        return await self.pipeline.run(context, request)

    async def canary(self, target: Target, deadline: float) -> None:
        await self.pipeline.run(Context("canary", deadline), canary_request(target.task))


def work(pipe: Connection, observability: dict[str, Any], engine_ms: float) -> None:
    """Serves turns until the parent sends None. The first one is to be thrown away."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as executor, asyncio.Runner() as runner:
        frontend, end = gateway(LocalBackend(_pipeline(executor, engine_ms / 1e3)), observability, Path(folder))
        transport = httpx.ASGITransport(frontend.app())
        client = httpx.AsyncClient(transport=transport, base_url="http://app")
        pipe.send("ready")
        frozen = False
        while (turn := pipe.recv()) is not None:
            pipe.send(runner.run(take(client, turn)))
            if not frozen:
                freeze()  # as every deployment does
                frozen = True
        runner.run(client.aclose())
        end()


def _pipeline(executor: ThreadPoolExecutor, delay_s: float) -> Pipeline:
    settings = ModelSettings.model_validate(
        {"name": "ce-mini", "version": "1", "source": str(MODEL), "task": "rerank", "device": "cpu", "dtype": "float32"}
        | {"max_model_len": 512, "max_num_seqs": 128, "max_num_batched_tokens": 4096}
    )
    model = TextModel.of(settings, read_checkpoint(MODEL, settings), TextTokenizer(MODEL))
    return Pipeline(model, FakeEngine(settings, delay_s=delay_s), executor)


def gateway(backend: LocalBackend, observability: dict[str, Any], folder: Path) -> tuple[Frontend, Callable[[], None]]:
    """A front end with these settings, its reports going nowhere, and what ends it."""
    settings = GatewayObservabilitySettings.model_validate(observability)
    registry = Registry()
    observer = make_observer(settings, registry, "bench", folder)
    frontend = Frontend(GatewaySettings(observability=settings), backend, observer=observer)
    route = {"versions": {"1": {"application": "ce-mini-1", "task": "rerank"}}}
    frontend.reconfigure(RoutingSettings.model_validate({"models": {"ce-mini": route}}))
    if not settings.metrics.enabled:
        return frontend, observer.close
    reporter = Reporter("Gateway", "", "", "bench", time.time())
    thread = ReportingThread(registry, reporter, Collector().push, settings.metrics.interval_s)
    thread.start()

    def end() -> None:
        thread.stop()
        observer.close()

    return frontend, end


async def take(client: httpx.AsyncClient, turn: Turn) -> Took:
    """Sends a turn's requests."""
    milliseconds: list[float] = []
    begin, cpu = time.perf_counter(), time.process_time()

    async def one(due: float) -> None:
        response = await client.post("/v1/rerank", json=BODY)
        milliseconds.append(round(1e3 * (time.perf_counter() - due), 3))
        response.raise_for_status()

    if turn.rate:
        gaps, due, tasks = random.Random(turn.seed), begin, []
        for _ in range(turn.requests):
            due += gaps.expovariate(turn.rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(one(due)))
        await asyncio.gather(*tasks)
    else:
        left = iter(range(turn.requests))

        async def loop() -> None:
            for _ in left:
                await one(time.perf_counter())

        await asyncio.gather(*(loop() for _ in range(turn.concurrency)))
    wall = time.perf_counter() - begin
    return Took(milliseconds, 1e3 * (time.process_time() - cpu) / turn.requests, wall)
