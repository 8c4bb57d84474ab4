"""Whether an engine answers: the smallest batch that shows it, and what an engine with work shows by itself."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from serve_app.checkpoint import Checkpoint
from serve_app.engine.protocol import Engine
from serve_app.engine.pulse import Pulse
from serve_app.errors import EngineDead, Overloaded
from serve_app.messages import EngineBatch
from serve_app.settings import ModelSettings
from serve_app.vocabulary import PoolingTask, Task


def canary_batch(settings: ModelSettings, checkpoint: Checkpoint) -> EngineBatch:
    """One sequence of four tokens that every vocabulary has."""
    config = checkpoint.config
    vocabulary = int(config.get("vocab_size") or (config.get("text_config") or {}).get("vocab_size") or 101)
    ids = np.full(4, min(100, vocabulary - 1), dtype=np.int32)
    task = PoolingTask.EMBED if settings.task is Task.EMBED else PoolingTask.CLASSIFY
    if checkpoint.absa is not None:
        task = checkpoint.absa.task
    return EngineBatch(
        "canary",
        task,
        ids,
        np.array([0, len(ids)], np.int32),
        None,
        time.time() + settings.engine.start_timeout_s,
        values_per_token=task is PoolingTask.TOKEN_CLASSIFY,
    )


async def check_output(engine: Engine, canary: EngineBatch, pulse: Pulse, limit_s: float) -> None:
    """Under load the outputs themselves are the sign of life, and only silence is tested; an idle engine is asked, and
    one whose last work was given up without any output.

    Args:
        engine: that is asked.
        canary: what it is asked.
        pulse: its signs of life.
        limit_s: seconds.

    Raises:
        EngineDead: it has work and gave no output for the limit, or did not answer the canary within it.
    """
    if engine.load().sequences:
        if pulse.silent_s > limit_s:
            raise EngineDead(f"the engine has work and gave no output for {limit_s:.0f} s")
        if not pulse.unproven:
            return
    try:
        await asyncio.wait_for(engine.run(canary), limit_s)
    except Overloaded:
        return  # it has work, and its silence is tested at the next time
    except TimeoutError:
        raise EngineDead(f"the engine did not answer its canary within {limit_s:.0f} s") from None
