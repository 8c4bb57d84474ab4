"""PoolingEngine: the inference engine in a replica of its own. Token ids and pixels in, numpy float32 out."""

from __future__ import annotations

import asyncio
import logging

from ray import serve

from serve_app.checkpoint import read_checkpoint
from serve_app.engine.fake_engine import FakeEngine
from serve_app.engine.protocol import Engine, EngineLoad
from serve_app.engine.vllm_engine import VllmEngine
from serve_app.errors import PoolserveError
from serve_app.messages import EngineBatch, EngineOutput, LoadedImages, MissingImages
from serve_app.scaling.meter import Meter
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_metadata
from serve_app.vocabulary import Measure

logger = logging.getLogger("ray.serve")


def make_engine(settings: ModelSettings) -> Engine:
    """The engine that the settings name, not started."""
    checkpoint = read_checkpoint(fetch_metadata(settings.source, settings.revision), settings)
    if settings.engine.kind == "fake":
        return FakeEngine(settings, width=max(1, checkpoint.width))
    return VllmEngine(settings, checkpoint)


class PoolingEngine:
    """Adds to an engine what Ray Serve asks of a deployment: a constructor, a health check, an end."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]  # Ray Serve awaits it
        self._engine = make_engine(settings)
        self._meter = Meter(Measure.TOKENS, Measure.DOCUMENTS)
        await self._engine.start()

    async def run(
        self, batch: EngineBatch, loaded: LoadedImages | None = None
    ) -> EngineOutput | MissingImages | PoolserveError:
        """See `Engine.run`; our errors are returned, not raised (see handles.py)."""
        try:
            with self._meter.work({Measure.TOKENS: int(batch.offsets[-1]), Measure.DOCUMENTS: len(batch)}):
                return await self._engine.run(batch, loaded)
        except PoolserveError as error:
            return error

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Ray Serve when the replicas follow their work: tokens and sequences in the engine."""
        return self._meter.figures()

    async def work_done(self) -> tuple[str, dict[Measure, int]]:
        """This replica's id, and its tokens and sequences since the start; for tests and diagnosis."""
        return serve.get_replica_context().replica_id.unique_id, dict(self._meter.done)

    async def load(self) -> EngineLoad:
        """Work in the engine now; for tests and diagnosis."""
        return self._engine.load()

    async def image_counts(self) -> dict[str, int]:
        """See `Engine.image_counts`."""
        return await self._engine.image_counts()

    async def check_health(self) -> None:
        """Called by Ray Serve every few seconds; an error takes the replica out and replaces it."""
        await self._engine.check_health()

    async def __del__(self) -> None:
        if (engine := getattr(self, "_engine", None)) is not None:
            await asyncio.shield(engine.shutdown())
