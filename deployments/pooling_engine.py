"""PoolingEngine: the inference engine in a replica of its own. Token ids and pixels in, numpy float32 out."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import replace

from ray import serve

from deployments.metrics import Reporting
from serve_app.checkpoint import read_checkpoint
from serve_app.engine.compile_cache import use_compile_cache
from serve_app.engine.factory import engine_of
from serve_app.engine.protocol import Engine, EngineLoad
from serve_app.errors import EngineDead, PoolserveError
from serve_app.materialized import locate
from serve_app.messages import EngineBatch, EngineOutput, LoadedImages, MissingImages
from serve_app.observability.sources import EngineMetrics
from serve_app.observability.tracing import make_tracer
from serve_app.scaling.meter import Meter
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_metadata
from serve_app.startup import Phase, StartClock, StartTimes, freeze, in_words
from serve_app.vocabulary import Measure

logger = logging.getLogger("ray.serve")


def make_engine(settings: ModelSettings, clock: StartClock | None = None) -> Engine:
    """The engine that the settings name, not started. `clock` takes the times of finding and checking its files."""
    clock = clock if clock is not None else StartClock()
    with clock.phase(Phase.VERIFY):
        located = locate(settings)
    settings = located.settings
    with clock.phase(Phase.RESOLVE):
        checkpoint = read_checkpoint(fetch_metadata(settings.source, settings.revision), settings)
    if located.compile_cache is not None and located.digest is not None and settings.engine.kind == "vllm":
        use_compile_cache(located.compile_cache, located.digest)
    return engine_of(settings, checkpoint)


def leave(reason: str) -> None:
    """Ends this replica's process at once.

    A replica whose engine has died stays in the routers' choice until Ray Serve's next health check, and looks idle: a
    request that is repeated elsewhere would come back to it. A process that is gone is left out by every router at the
    first call, and its callers' requests go elsewhere. The engine's own processes end with it (`vllm_plugin`).
    """
    logger.error("%s; this replica ends", reason)
    for handler in logger.handlers:
        handler.flush()
    os._exit(1)


class PoolingEngine:
    """Adds to an engine what Ray Serve asks of a deployment: a constructor, a health check, an end."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        self._version = settings.version
        clock = StartClock()
        self._engine = make_engine(settings, clock)
        self._meter = Meter(Measure.TOKENS, Measure.DOCUMENTS)
        clock.add({phase: s for phase, s in (await self._engine.start()).items() if phase != "total"})
        self._start_times = clock.times()
        logger.info("%s@%s: engine ready, seconds: %s", settings.name, settings.version, in_words(self._start_times))
        who = {"model": settings.name, "version": settings.version}
        self._reporting = Reporting(settings.observability, "PoolingEngine", **who)
        if settings.device == "cuda":
            self._reporting.add_gpus()
        replica = self._reporting.replica
        tracer = make_tracer(settings.observability.tracing, deployment="PoolingEngine", replica=replica, **who)
        self._metrics = EngineMetrics(self._reporting.registry, settings, self._engine, tracer)
        freeze()

    async def run(
        self, batch: EngineBatch, loaded: LoadedImages | None = None
    ) -> EngineOutput | MissingImages | PoolserveError:
        """See `Engine.run`; our errors are returned, not raised (see handles.py)."""
        began = time.time()
        try:
            with self._meter.work({Measure.TOKENS: int(batch.offsets[-1]), Measure.DOCUMENTS: len(batch)}):
                output = await self._engine.run(batch, loaded)
        except EngineDead as error:
            leave(str(error))
            return error
        except PoolserveError as error:
            return error
        self._metrics.ran(batch, output, began)
        return replace(output, version=self._version) if isinstance(output, EngineOutput) else output

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Ray Serve when the replicas follow their work: tokens and sequences in the engine."""
        return self._meter.figures()

    async def work_done(self) -> tuple[str, dict[Measure, int]]:
        """This replica's id, and its tokens and sequences since the start; for tests and diagnosis."""
        return serve.get_replica_context().replica_id.unique_id, dict(self._meter.done)

    async def load(self) -> EngineLoad:
        """Work in the engine now; for tests and diagnosis."""
        return self._engine.load()

    async def start_times(self) -> StartTimes:
        """Seconds that each phase of this replica's start took."""
        return self._start_times

    async def image_counts(self) -> dict[str, int]:
        """See `Engine.image_counts`."""
        return await self._engine.image_counts()

    async def check_health(self) -> None:
        """Called by Ray Serve every few seconds; an error takes the replica out and replaces it."""
        await self._engine.check_health()

    async def __del__(self) -> None:
        if (engine := getattr(self, "_engine", None)) is not None:
            if (reporting := getattr(self, "_reporting", None)) is not None:
                reporting.close()
                self._metrics.close()
            await asyncio.shield(engine.shutdown())
