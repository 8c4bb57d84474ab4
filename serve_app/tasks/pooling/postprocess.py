"""Pooled values to one array per input."""

from __future__ import annotations

import numpy as np

from serve_app.messages import EngineOutput, FloatArray, PoolRequest
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.embed.postprocess import unit
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.tasks.pooling.build_input import PER_TOKEN
from serve_app.vocabulary import PoolingTask


def postprocess(
    model: TextModel, request: PoolRequest, built: ModelInput, output: EngineOutput
) -> tuple[FloatArray, ...]:
    """float32 [width] per input, or [tokens, width]; activated, or of unit length, unless the request says not to.

    A two-head model's row for the whole text is left out.

    Raises:
        InternalError: the model gave a value that is not a number.
    """
    values = finite(output.values)
    if built.task not in PER_TOKEN:
        return tuple(_activated(model, request, built, values))
    before, rows = built.rows_before, []
    for i in range(len(built.offsets) - 1):
        start = int(built.offsets[i]) + (i + 1) * before
        labels = len(model.checkpoint.labels) or values.shape[1]
        rows.append(values[start : int(built.offsets[i + 1]) + (i + 1) * before, :labels])
    return tuple(np.ascontiguousarray(_activated(model, request, built, row)) for row in rows)


def _activated(model: TextModel, request: PoolRequest, built: ModelInput, values: FloatArray) -> FloatArray:
    if built.task in {PoolingTask.CLASSIFY, PoolingTask.TOKEN_CLASSIFY}:
        return activate(values, model.checkpoint.activation) if request.use_activation else values
    # Vectors of tokens are brought to unit length whatever the checkpoint's modules say of whole texts, as in vLLM.
    normalize = built.task is PoolingTask.TOKEN_EMBED or model.checkpoint.normalize
    return unit(values) if normalize and request.use_activation else values
