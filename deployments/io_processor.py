"""IOProcessor: builds the engine's input and post-processes its output, on CPUs. Owns the request."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.handles import ask, ask_by_reference
from deployments.metrics import Reporting
from serve_app.errors import PoolserveError
from serve_app.messages import (
    Context,
    EngineBatch,
    EngineOutput,
    LoadedImages,
    LoadRequest,
    MissingImages,
    PipelineRequest,
    PipelineResult,
)
from serve_app.observability.sources import vector_cache_source
from serve_app.observability.tracing import make_tracer
from serve_app.pipeline import Pipeline, canary_request
from serve_app.settings import ModelSettings
from serve_app.splitting import SplittingEngine
from serve_app.startup import StartClock, StartTimes, freeze, in_words
from serve_app.vocabulary import Task

logger = logging.getLogger("ray.serve")

IMAGE_LOADER = "ImageLoader"
"""Name of the deployment in the images' application."""
BY_REFERENCE = 5
"""Images from which pixels go through Ray's object store: 8-14 ms for up to 40; by value 40 take 50-76."""
START_TIMES_S = 60.0
"""Seconds after which the engine's start times are asked for again: its replica may have been replaced."""


class HandleEngine:
    """The PoolingEngine's replicas as the pipeline's engine."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """See `EngineClient.run`."""
        if loaded is None:
            output = await ask(self._handle, "run", batch, deadline=batch.deadline)
        else:
            pixels = loaded if loaded.reference is None else loaded.reference
            output = await ask(self._handle, "run", batch, pixels, deadline=batch.deadline)
        assert isinstance(output, (EngineOutput, MissingImages))
        return output

    async def start_times(self, deadline: float) -> StartTimes:
        """Seconds by phase that one of the engine's replicas took to start."""
        return await ask(self._handle, "start_times", deadline=deadline)  # type: ignore[no-any-return]


class HandleLoader:
    """The ImageLoader's replicas as the pipeline's loader.

    Args:
        application: the images' application; it may be deployed later than the model.
    """

    def __init__(self, application: str) -> None:
        self._handle = serve.get_deployment_handle(IMAGE_LOADER, application, _check_exists=False)

    async def load(self, request: LoadRequest) -> LoadedImages:
        """See `LoaderClient.load`."""
        if len(request.images) < BY_REFERENCE:
            loaded = await ask(self._handle, "load", request, deadline=request.deadline)
            assert isinstance(loaded, LoadedImages)
            return loaded
        loaded, reference = await ask_by_reference(self._handle, "load", request, deadline=request.deadline)
        assert isinstance(loaded, LoadedImages)
        return replace(loaded, reference=reference)


class IOProcessor:
    """Wires a model's pipeline to its engine's handle, and to the ImageLoader's if it takes images."""

    def __init__(self, settings: ModelSettings, engine: DeploymentHandle) -> None:
        threads = settings.io_processor.threads
        # The tokenizer's own threads; read at its first use.
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        from serve_app.plugin_host.host import plugin_host
        from serve_app.tasks.model import load_text_model

        clock = StartClock()
        model = load_text_model(settings, clock)
        plugin = plugin_host(model)
        loader = HandleLoader(settings.images.loader) if model.checkpoint.images is not None else None
        executor = ThreadPoolExecutor(threads, "tokenize")
        self._who = {"model": settings.name, "version": settings.version}
        self._reporting = Reporting(settings.observability, "IOProcessor", **self._who)
        replica = self._reporting.replica
        self._tracer = make_tracer(
            settings.observability.tracing, deployment="IOProcessor", replica=replica, **self._who
        )
        self._engine = HandleEngine(engine)
        engines = SplittingEngine(self._engine, settings.pooling_engine)
        self._pipeline = Pipeline(model, engines, executor, loader, plugin, self._tracer)
        if self._pipeline.images is not None and settings.task is Task.EMBED:
            self._reporting.registry.add_source(vector_cache_source(self._pipeline.images, **self._who))
        self._start_times: dict[str, StartTimes] = {"io_processor": clock.times()}
        self._engine_asked = float("-inf")
        words = in_words(self._start_times["io_processor"])
        logger.info("%s@%s: input processor ready, seconds: %s", settings.name, settings.version, words)
        freeze()

    async def run(self, context: Context, request: PipelineRequest) -> PipelineResult | PoolserveError:
        """See `Pipeline.run`; our errors are returned, not raised (see handles.py)."""
        try:
            if not context.trace:
                return await self._pipeline.run(context, request)
            with self._tracer.span("io_processor", context.trace, **self._who) as trace:
                return await self._pipeline.run(replace(context, trace=trace), request)
        except PoolserveError as error:
            return error

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Ray Serve when the replicas follow their work: documents that wait for tokenizing or are in it."""
        return self._pipeline.meter.figures()

    async def canary(self, deadline: float) -> PoolserveError | Mapping[str, StartTimes]:
        """One small request through this model's whole path; how long this replica and its engine took to start."""
        context = Context("canary", deadline, "canary")
        model = self._pipeline.model
        result = await self.run(context, canary_request(model.settings.task, model.checkpoint.absa))
        if isinstance(result, PoolserveError):
            return result
        if time.monotonic() - self._engine_asked > START_TIMES_S:
            with contextlib.suppress(PoolserveError):
                self._start_times["pooling_engine"] = await self._engine.start_times(deadline)
                self._engine_asked = time.monotonic()
        return self._start_times

    def __del__(self) -> None:
        if (reporting := getattr(self, "_reporting", None)) is not None:
            reporting.close()
            self._tracer.close()
