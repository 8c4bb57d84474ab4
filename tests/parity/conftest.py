"""Real engines for parity tests: one vLLM engine per checkpoint, in this process's event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.engine.factory import engine_of
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.pipeline import Pipeline
from serve_app.startup import StartTimes
from tests.parity.images import DecodingLoader
from tests.unit.models import text_model


def assert_same_order(got: np.ndarray, want: np.ndarray, tie: float = 2e-4) -> None:
    """Ranking by `got` is ranking by `want`, but for neighbours that `want` itself puts within `tie`."""
    ranked = want[np.argsort(-got, kind="stable")]
    best_of_the_rest = np.maximum.accumulate(ranked[::-1])[::-1]
    assert (best_of_the_rest - ranked <= tie).all()


class Served:
    """A pipeline with a real engine, called from synchronous tests."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipeline: Pipeline,
        engine: Any,
        loader: DecodingLoader,
        start_times: StartTimes,
    ) -> None:
        self._loop = loop
        self.loader = loader
        self.start_times = start_times
        self.pipeline = pipeline
        self.engine = engine
        self.model = pipeline.model

    def run(self, request: PipelineRequest, deadline_s: float = 120.0) -> Any:
        """The result of one request."""
        return self.together([request], deadline_s)[0]

    def together(self, requests: Sequence[PipelineRequest], deadline_s: float = 120.0) -> list[PipelineResult]:
        """The results of requests that are under way at the same time."""

        async def all_of_them() -> list[PipelineResult]:
            deadline = time.time() + deadline_s
            runs = [self.pipeline.run(Context(f"r{i}", deadline), request) for i, request in enumerate(requests)]
            return list(await asyncio.gather(*runs))

        return self._loop.run_until_complete(all_of_them())

    def context(self, deadline_s: float = 120.0) -> Context:
        """A request's context."""
        return Context("r", time.time() + deadline_s)

    def through(self, pipeline: Pipeline, request: PipelineRequest) -> Any:
        """The result of one request through another pipeline to the same engine."""
        return self.call(pipeline.run(self.context(), request))

    def settle(self) -> None:
        """Waits until the engine has nothing left to do; fails if that does not happen."""

        async def wait() -> None:
            for _ in range(100):
                if self.engine.load().unfinished == 0:
                    return
                await asyncio.sleep(0.1)
            raise AssertionError(f"still there: {self.engine.load()}")

        self.call(wait())

    def call(self, coroutine: Any) -> Any:
        """Runs a coroutine on the engine's loop."""
        return self._loop.run_until_complete(coroutine)


@contextmanager
def serving(folder: Path, task: str, **changes: Any) -> Iterator[Served]:
    """Starts an engine for a checkpoint and ends it."""
    model = text_model(folder, task, **changes)
    engine: Any = engine_of(model.settings, model.checkpoint)
    loop = asyncio.new_event_loop()
    try:
        times = loop.run_until_complete(engine.start())
        with ThreadPoolExecutor(1) as executor:
            loader = DecodingLoader()
            yield Served(loop, Pipeline(model, engine, executor, loader), engine, loader, times)
    finally:
        loop.run_until_complete(engine.shutdown())
        loop.close()
