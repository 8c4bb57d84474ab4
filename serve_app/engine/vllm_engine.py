"""vLLM's AsyncLLM behind our protocol. The only module that touches vLLM's moving parts.

Ready token ids go in (`{"type": "token", …}`), so renderer, tokenizer and hashing are skipped; every sequence of a
request is submitted before the first is awaited, and one task awaits them all: a task and an async generator per
sequence, as `AsyncLLM.encode` has them, cost more Python than a small model's forward pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from serve_app.checkpoint import Checkpoint
from serve_app.engine.admission import Admission
from serve_app.engine.canary import canary_batch, check_output
from serve_app.engine.fair_share import FairShare
from serve_app.engine.gpu_turn import gpu_turn
from serve_app.engine.protocol import EngineLoad
from serve_app.engine.pulse import Pulse
from serve_app.engine.vllm_options import engine_options, prepare_environment
from serve_app.errors import EngineDead, InternalError
from serve_app.messages import EngineBatch, EngineOutput, LoadedImages, MissingImages
from serve_app.plugin_host.registration import explain
from serve_app.settings import ModelSettings
from serve_app.startup import Phase, StartClock, StartTimes, uncollected
from serve_app.vllm_plugin.feeder import ImageFeeder, NotHeld, has_markers, require_plugin
from serve_app.vllm_plugin.gathering import sequence_id

logger = logging.getLogger(__name__)

_YIELD_EVERY = 32
"""Sequences submitted before other requests on the event loop get a turn; 32 take about 3 ms."""


class VllmEngine:
    """One vLLM engine.

    Args:
        settings: the model's settings.
        checkpoint: its facts.
    """

    def __init__(self, settings: ModelSettings, checkpoint: Checkpoint) -> None:
        self._settings = settings
        self._checkpoint = checkpoint
        self._admission = Admission(settings.admission)
        self._fair = FairShare()
        self._llm: Any = None
        self._pulse = Pulse()
        self._ids = itertools.count()
        self._params: Any = None
        self._shared_params: Any = None
        self._feeder: ImageFeeder | None = None

    async def start(self) -> StartTimes:
        """See `Engine.start`."""
        prepare_environment(self._settings, self._checkpoint)
        clock = StartClock()
        with clock.phase(Phase.IMPORT), uncollected():
            from vllm import PoolingParams, envs
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

        envs.disable_envs_cache()  # another engine of this process may have turned it on; ours has set new values
        self._params = PoolingParams
        self._shared_params = _shared(PoolingParams)
        if self._checkpoint.plugin_architecture is not None:
            require_plugin(self._checkpoint.plugin_architecture)
        options = engine_options(self._settings, self._checkpoint)
        logger.info("engine options of %s@%s: %s", self._settings.name, self._settings.version, options)
        async with contextlib.AsyncExitStack() as turn:
            if self._settings.device == "cuda" and self._settings.engine.kv_cache_gib is None:
                with clock.phase(Phase.TURN):
                    await turn.enter_async_context(gpu_turn())
            # Blocks the event loop: an engine that is not there yet has nothing else to do.
            try:
                with clock.phase(Phase.SETUP):
                    self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**options))
            except Exception as error:
                explain(error)
                raise
        workers: list[StartTimes] = await self._llm.collective_rpc("start_times")
        clock.add(workers[0])
        clock.add({Phase.SETUP: -sum(workers[0].values())})  # they ran inside it
        if self._checkpoint.images is not None:
            self._feeder = ImageFeeder(self._llm, self._settings)
        envs.enable_envs_cache()  # vLLM reads three variables per sequence
        with clock.phase(Phase.CANARY):
            await asyncio.wait_for(
                self.run(canary_batch(self._settings, self._checkpoint)), self._settings.engine.start_timeout_s
            )
        return clock.times()

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """See `Engine.run`."""
        arrived = time.monotonic()
        if self._llm is None or self._llm.errored:
            raise EngineDead("the engine has died")
        try:
            async with self._admission.until_deadline(batch):
                if self._admission.sequences == len(batch):
                    self._pulse.begin()
                with self._fair.request(batch.offsets) as tags:
                    values, shapes, first_scheduled = await self._run_all(batch, loaded, tags)
        except NotHeld as missing:
            return MissingImages(missing.keys)
        now = time.monotonic()
        queued = min(max(0.0, first_scheduled - arrived), now - arrived) if first_scheduled else 0.0
        return EngineOutput(values, queued * 1e3, (now - arrived - queued) * 1e3, shapes)

    async def _run_all(
        self, batch: EngineBatch, loaded: LoadedImages | None, tags: Sequence[int]
    ) -> tuple[Any, list[tuple[int, ...]] | None, float]:
        """(values, their shapes, monotonic time at which the first sequence entered a step).

        Aborts all sequences if one fails.
        """
        collectors: list[Any] = []
        states: list[Any] = []
        rows: list[Any] = []
        try:
            await self._submit(batch, loaded, tags, collectors, states)
            for collector, tag, tokens in zip(collectors, tags, np.diff(batch.offsets).tolist(), strict=True):
                output = collector.get_nowait() or await collector.get()
                error = getattr(output, "error", None)
                if error is not None:
                    raise InternalError("the engine could not run a sequence")
                rows.append(output.outputs.data)
                self._fair.served(tag, tokens)
                self._pulse.beat()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                self._pulse.give_up()
            if len(rows) < len(batch):
                await self._abort([c.request_id for c in collectors[len(rows) :]])
            raise self._translated(error) from error
        shapes = [tuple(row.shape) for row in rows] if batch.params is not None else None
        return _matrix(rows, batch), shapes, _first_scheduled(states)

    async def _submit(
        self,
        batch: EngineBatch,
        loaded: LoadedImages | None,
        tags: Sequence[int],
        collectors: list[Any],
        states: list[Any],
    ) -> None:
        prefix = f"{batch.request_id[:64]}-{next(self._ids)}"
        ids, offsets = batch.token_ids, batch.offsets.tolist()
        segments = None if batch.segment_starts is None else batch.segment_starts.tolist()
        request_states = self._llm.output_processor.request_states
        params: dict[int | None, Any] = {}
        for i in range(len(batch)):
            tokens = ids[offsets[i] : offsets[i + 1]].tolist()
            name = sequence_id(prefix, len(batch), i)
            if self._feeder is not None and batch.images is not None and has_markers(batch.images, i):
                collectors.append(await self._feeder.submit(name, tokens, batch, i, loaded, tags[i]))
                continue
            segment = None if segments is None else segments[i]
            if segment not in params:
                params[segment] = self._pooling_params(batch, segment)
            collector = await self._llm.add_request(
                name,
                {"type": "token", "prompt_token_ids": tokens},
                params[segment],
                priority=tags[i],
            )
            collectors.append(collector)
            if i == 0 and (state := request_states.get(collector.request_id)) is not None:
                states.append(state)
            if i % _YIELD_EVERY == _YIELD_EVERY - 1:
                await asyncio.sleep(0)

    def _pooling_params(self, batch: EngineBatch, segment_start: int | None) -> Any:
        if batch.params is not None:
            return self._params(**batch.params)
        extra = {"compressed_token_type_ids": segment_start} if segment_start is not None else None
        # Logits and unnormalised vectors: activation and normalisation depend on the request and cost microseconds.
        return self._shared_params(task=batch.task.value, use_activation=False, extra_kwargs=extra)

    async def _abort(self, request_ids: list[str]) -> None:
        if self._llm.errored:
            return
        # A second cancellation must not leave sequences behind: the abort runs to its end on its own.
        task = asyncio.ensure_future(self._llm.abort(request_ids, internal=True))
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)

    def _translated(self, error: BaseException) -> BaseException:
        """vLLM's exceptions as ours; cancellation and our own stay."""
        if isinstance(error, (asyncio.CancelledError, InternalError, NotHeld)):
            return error
        if self._llm.errored or type(error).__name__ in {"EngineDeadError", "EngineGenerateError"}:
            return EngineDead("the engine has died")
        logger.error("the engine refused a batch", exc_info=error)
        return InternalError("the engine refused the input")

    async def check_health(self) -> None:
        """See `Engine.check_health`."""
        limit = self._settings.health.canary_timeout_s
        if self._llm is None or self._llm.errored:
            raise EngineDead("the engine has died")
        canary = canary_batch(self._settings, self._checkpoint)
        await check_output(self, canary, self._pulse, limit)

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        unfinished = self._llm.output_processor.get_num_unfinished_requests() if self._llm is not None else 0
        return EngineLoad(self._admission.sequences, self._admission.tokens, self._admission.cancelled, unfinished)

    async def image_counts(self) -> dict[str, int]:
        """See `Engine.image_counts`."""
        counts: list[dict[str, int]] = await self._llm.collective_rpc("image_counts")
        return counts[0]

    async def shutdown(self) -> None:
        """See `Engine.shutdown`."""
        if self._llm is not None:
            llm, self._llm = self._llm, None
            await asyncio.to_thread(llm.shutdown)


def _matrix(rows: list[Any], batch: EngineBatch) -> Any:
    """Tensors of one width, stacked, as `EngineOutput.values` has them."""
    import torch

    per_marker = batch.score_per_marker
    if batch.values_per_token:
        return torch.cat(rows).float().numpy()
    flat = [row.reshape(-1) for row in rows]
    if batch.params is not None:
        return torch.cat(flat).float().numpy()
    return (torch.cat(flat)[:, None] if per_marker else torch.stack(flat)).float().numpy()


def _shared(params: Any) -> Any:
    """vLLM's PoolingParams for many sequences. It copies them deeply for each, and then only reads them."""

    class SharedPoolingParams(params):  # type: ignore[misc]
        def clone(self) -> Any:
            return self

    return SharedPoolingParams


def _first_scheduled(states: list[Any]) -> float:
    """When the first sequence entered a step (monotonic seconds); 0 if vLLM's statistics do not say."""
    stats = getattr(states[0], "stats", None) if states else None
    return float(getattr(stats, "scheduled_ts", 0.0) or 0.0)


def engine_process_ids() -> list[int]:
    """Processes that vLLM started from this one; for tests and diagnosis."""
    import psutil

    return [child.pid for child in psutil.Process(os.getpid()).children(recursive=True)]
