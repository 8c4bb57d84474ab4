"""IOProcessor: builds the engine's input and post-processes its output, on CPUs. Owns the request."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from ray.serve.handle import DeploymentHandle

from deployments.handles import ask
from serve_app.errors import PoolserveError
from serve_app.messages import Context, EngineBatch, EngineOutput, PipelineRequest, PipelineResult
from serve_app.pipeline import Pipeline, canary_request
from serve_app.settings import ModelSettings


class HandleEngine:
    """The PoolingEngine's replicas as the pipeline's engine."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle

    async def run(self, batch: EngineBatch) -> EngineOutput:
        """See `EngineClient.run`."""
        output = await ask(self._handle, "run", batch, deadline=batch.deadline)
        assert isinstance(output, EngineOutput)
        return output


class IOProcessor:
    """Wires a model's pipeline to its engine's handle."""

    def __init__(self, settings: ModelSettings, engine: DeploymentHandle) -> None:
        threads = settings.io_processor.threads
        # The tokenizer's own threads; read at its first use.
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
        from serve_app.tasks.model import load_text_model

        self._pipeline = Pipeline(
            load_text_model(settings), HandleEngine(engine), ThreadPoolExecutor(threads, "tokenize")
        )

    async def run(self, context: Context, request: PipelineRequest) -> PipelineResult | PoolserveError:
        """See `Pipeline.run`; our errors are returned, not raised (see handles.py)."""
        try:
            return await self._pipeline.run(context, request)
        except PoolserveError as error:
            return error

    async def canary(self, deadline: float) -> PoolserveError | None:
        """One small request through this model's whole path."""
        context = Context("canary", deadline, "canary")
        result = await self.run(context, canary_request(self._pipeline.model.settings.task))
        return result if isinstance(result, PoolserveError) else None
