"""Small encoders without vLLM: Transformers' model classes, with dynamic batching across requests.

vLLM spends some 0.3 ms of Python on every sequence, in two processes. A model of a few million weights is done sooner
than that. Here a sequence has no Python of its own: requests are arrays, a step is a range of each, and a step's
sequences run in padded groups of similar length.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from serve_app.checkpoint import Checkpoint
from serve_app.engine.admission import Admission
from serve_app.engine.canary import canary_batch, check_output
from serve_app.engine.fair_share import FairShare
from serve_app.engine.protocol import EngineLoad
from serve_app.engine.pulse import Pulse
from serve_app.engine.torch_forward import LoadedModel, LongArray, StepInputs, forward, import_libraries, load
from serve_app.errors import EngineDead, InternalError, InvalidRequest
from serve_app.messages import EngineBatch, EngineOutput, FloatArray, LoadedImages, MissingImages
from serve_app.settings import ModelSettings
from serve_app.startup import Phase, StartClock, StartTimes, uncollected
from serve_app.vocabulary import PoolingTask, Task

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Job:
    """A request in the engine.

    Attributes:
        batch: what was asked.
        tags: int64 [sequences], ascending; see FairShare.
        lengths: int64 [sequences].
        done: resolves to None when all values are there.
        taken: sequences that have entered a step, the first ones.
        answered: sequences whose values are there.
        values: float32 [sequences, width]; None before the first ones.
        began: monotonic time of the first step; 0 before it.
    """

    batch: EngineBatch
    tags: LongArray
    lengths: LongArray
    done: asyncio.Future[None]
    taken: int = 0
    answered: int = 0
    values: FloatArray | None = None
    began: float = 0.0


@dataclass(frozen=True, slots=True)
class _Step:
    """Sequences that run together: of each job those from `starts` on, `counts` of them."""

    jobs: Sequence[_Job]
    starts: Sequence[int]
    counts: Sequence[int]


class TorchEngine:
    """One model in this process. The forward pass has a thread of its own, so that the event loop stays free.

    Args:
        settings: the model's settings.
        checkpoint: its facts.

    Raises:
        ValueError: what the settings or the checkpoint ask for needs vLLM.
    """

    def __init__(self, settings: ModelSettings, checkpoint: Checkpoint) -> None:
        if checkpoint.images is not None or "classifier_from_token" in checkpoint.config:
            raise ValueError("engine.kind: this checkpoint needs vllm")
        if settings.task is Task.EMBED and checkpoint.pooling is None:
            raise ValueError("pooling: the checkpoint does not say how it pools; set it")
        self._settings = settings
        self._checkpoint = checkpoint
        self._task = PoolingTask.EMBED if settings.task is Task.EMBED else PoolingTask.CLASSIFY
        self._admission = Admission(settings.admission)
        self._fair = FairShare()
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "forward")
        self._model: LoadedModel | None = None
        self._worker: asyncio.Task[None] | None = None
        self._dead = ""
        self._pulse = Pulse()

    async def start(self) -> StartTimes:
        """See `Engine.start`."""
        clock = StartClock()
        loop = asyncio.get_running_loop()
        with clock.phase(Phase.IMPORT), uncollected():
            await loop.run_in_executor(self._thread, import_libraries)
        with clock.phase(Phase.WEIGHTS):
            self._model = await loop.run_in_executor(self._thread, load, self._settings, self._checkpoint)
        self._worker = loop.create_task(self._work(self._model))
        with clock.phase(Phase.CANARY):
            batch = canary_batch(self._settings, self._checkpoint)
            await asyncio.wait_for(self.run(batch), self._settings.engine.start_timeout_s)
        return clock.times()

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """See `Engine.run`."""
        arrived = time.monotonic()
        if self._worker is None or self._dead:
            raise EngineDead(self._dead or "the engine is not running")
        if batch.task is not self._task or batch.params is not None or batch.values_per_token:
            raise InvalidRequest(f"task: this model's engine (torch) has one answer to a text, by task {self._task}")
        async with self._admission.until_deadline(batch):
            if self._admission.sequences == len(batch):
                self._pulse.begin()
            with self._fair.request(batch.offsets) as tags:
                job = _Job(
                    batch,
                    np.asarray(tags),
                    np.diff(batch.offsets).astype(np.int64),
                    asyncio.get_running_loop().create_future(),
                )
                self._jobs.append(job)
                self._wake.set()
                try:
                    await job.done
                except asyncio.CancelledError:
                    self._pulse.give_up()
                    raise
                finally:
                    self._jobs.remove(job)
        assert job.values is not None
        now = time.monotonic()
        return EngineOutput(job.values, (job.began - arrived) * 1e3, (now - job.began) * 1e3)

    async def _work(self, model: LoadedModel) -> None:
        loop = asyncio.get_running_loop()
        while not self._dead:
            self._wake.clear()
            step = self._next_step()
            if step is None:
                await self._wake.wait()
                continue
            await self._run_step(loop, model, step)

    async def _run_step(self, loop: asyncio.AbstractEventLoop, model: LoadedModel, step: _Step) -> None:
        """Runs a step. Of one that fails each request runs alone once more, so that only the one at fault fails."""
        try:
            values = await loop.run_in_executor(self._thread, forward, model, self._inputs(step))
        except Exception as error:
            if len(step.jobs) == 1 or self._is_device_fault(error):
                self._fail(step, error)
                return
            logger.warning("a step of %d requests failed; each runs alone: %s", len(step.jobs), error)
            for job, start, count in zip(step.jobs, step.starts, step.counts, strict=True):
                if not job.done.done():
                    await self._run_step(loop, model, _Step([job], [start], [count]))
        else:
            self._deliver(step, values)

    def _next_step(self) -> _Step | None:
        """The sequences whose turn it is, within the limits of a step."""
        jobs = [job for job in self._jobs if job.taken < len(job.tags) and not job.done.done()]
        if not jobs:
            return None
        tags = np.concatenate([job.tags[job.taken :] for job in jobs])
        lengths = np.concatenate([job.lengths[job.taken :] for job in jobs])
        owners = np.repeat(np.arange(len(jobs)), [len(job.tags) - job.taken for job in jobs])
        # A job's own tags ascend, so that what is taken of it is its next ones.
        order = np.argsort(tags, kind="stable")[: self._settings.max_num_seqs]
        fits = int(np.searchsorted(np.cumsum(lengths[order]), self._settings.max_num_batched_tokens, side="right"))
        counts = np.bincount(owners[order[: max(1, fits)]], minlength=len(jobs)).tolist()
        chosen = [(job, count) for job, count in zip(jobs, counts, strict=True) if count]
        step = _Step([job for job, _ in chosen], [job.taken for job, _ in chosen], [count for _, count in chosen])
        now = time.monotonic()
        for job, count in chosen:
            job.began = job.began or now
            job.taken += count
        return step

    def _inputs(self, step: _Step) -> StepInputs:
        ids, lengths, segments = [], [], []
        for job, start, count in zip(step.jobs, step.starts, step.counts, strict=True):
            batch = job.batch
            ids.append(batch.token_ids[batch.offsets[start] : batch.offsets[start + count]])
            lengths.append(job.lengths[start : start + count])
            own = batch.segment_starts
            segments.append(own[start : start + count] if own is not None else np.full(count, -1, np.int32))
        all_lengths = np.concatenate(lengths)
        return StepInputs(
            np.concatenate(ids),
            np.cumsum(all_lengths) - all_lengths,
            all_lengths,
            np.concatenate(segments) if self._checkpoint.has_token_types else None,
        )

    def _deliver(self, step: _Step, values: FloatArray) -> None:
        self._pulse.beat()
        ends = np.cumsum(step.counts).tolist()
        for job, start, count, end in zip(step.jobs, step.starts, step.counts, ends, strict=True):
            if job.values is None:
                job.values = np.empty((len(job.tags), values.shape[1]), np.float32)
            job.values[start : start + count] = values[end - count : end]
            job.answered += count
            self._fair.served(int(job.tags[start + count - 1]), int(job.lengths[start : start + count].sum()))
            if job.answered == len(job.tags) and not job.done.done():
                job.done.set_result(None)

    def _fail(self, step: _Step, error: Exception) -> None:
        """A step that failed takes its requests with it; a device that failed takes the engine."""
        logger.error("a step of %d sequences failed", sum(step.counts), exc_info=error)
        failed: Sequence[_Job] = step.jobs
        reason: Exception = InternalError("the engine could not run the input")
        if self._is_device_fault(error):
            self._dead = "the engine's device has failed"
            failed, reason = self._jobs, EngineDead(self._dead)
        for job in failed:
            if not job.done.done():
                job.done.set_exception(reason)

    def _is_device_fault(self, error: Exception) -> bool:
        """Whether nothing will run any more."""
        import torch

        return self._settings.device == "cuda" and not isinstance(error, torch.OutOfMemoryError)

    async def check_health(self) -> None:
        """See `Engine.check_health`."""
        limit = self._settings.health.canary_timeout_s
        if self._dead or self._worker is None or self._worker.done():
            raise EngineDead(self._dead or "the engine is not running")
        canary = canary_batch(self._settings, self._checkpoint)
        await check_output(self, canary, self._pulse, limit)

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        waiting = sum(len(job.tags) - job.answered for job in self._jobs)
        return EngineLoad(self._admission.sequences, self._admission.tokens, self._admission.cancelled, waiting)

    async def image_counts(self) -> dict[str, int]:
        """See `Engine.image_counts`: it takes none."""
        return {"encoded": 0, "held": 0}

    async def shutdown(self) -> None:
        """See `Engine.shutdown`."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        for job in self._jobs:
            if not job.done.done():
                job.done.set_exception(EngineDead("the engine has ended"))
        await asyncio.to_thread(self._thread.shutdown)
