"""A deterministic engine without a model, whose output encodes its input."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from serve_app.engine.admission import Admission
from serve_app.engine.protocol import EngineLoad
from serve_app.errors import DeadlineExceeded, EngineDead
from serve_app.messages import EngineBatch, EngineOutput, FloatArray
from serve_app.settings import ModelSettings
from serve_app.vocabulary import PoolingTask


class FakeEngine:
    """Value of a sequence: a hash of its token ids, spread over `width` columns. Takes `delay_s` per batch.

    Args:
        settings: the model's settings; admission applies as in the real engine.
        width: labels or vector components.
        delay_s: seconds that a batch takes.
    """

    def __init__(self, settings: ModelSettings, width: int = 1, delay_s: float = 0.0) -> None:
        self._admission = Admission(settings.admission)
        self._width = width
        self.delay_s = delay_s
        self.dead = False
        self.cancelled = 0
        self._running = 0

    async def start(self) -> None:
        """Nothing to load."""

    async def run(self, batch: EngineBatch) -> EngineOutput:
        """See `Engine.run`."""
        if self.dead:
            raise EngineDead("the engine has died")
        started = time.perf_counter()
        with self._admission.take(len(batch), int(batch.offsets[-1])):
            self._running += len(batch)
            try:
                remaining = batch.deadline - time.time()
                await asyncio.sleep(max(0.0, min(self.delay_s, remaining)))
                if self.delay_s > remaining:
                    raise DeadlineExceeded("the deadline passed in the engine")
            except (asyncio.CancelledError, DeadlineExceeded):
                self.cancelled += 1
                raise
            finally:
                self._running -= len(batch)
        width = self._width if batch.task is PoolingTask.CLASSIFY else max(8, self._width)
        values = np.stack([fake_values(s, width) for s in np.split(batch.token_ids, batch.offsets[1:-1])])
        return EngineOutput(values, 0.0, (time.perf_counter() - started) * 1e3)

    async def check_health(self) -> None:
        """See `Engine.check_health`."""
        if self.dead:
            raise EngineDead("the engine has died")

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        return EngineLoad(self._admission.sequences, self._admission.tokens, self.cancelled, self._running)

    async def shutdown(self) -> None:
        """Nothing to end."""


def fake_values(ids: np.ndarray, width: int) -> FloatArray:
    """The fake's value of a sequence, float32 [width], between -4 and 4."""
    seed = int(np.uint32(np.dot(ids.astype(np.uint64), np.arange(1, len(ids) + 1, dtype=np.uint64)) % (1 << 32)))
    return (np.random.default_rng(seed).random(width) * 8 - 4).astype(np.float32)
