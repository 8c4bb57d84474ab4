"""The smallest batch that shows that an engine answers."""

from __future__ import annotations

import time

import numpy as np

from serve_app.checkpoint import Checkpoint
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
