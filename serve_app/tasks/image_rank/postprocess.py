"""Logits of markers to scores of documents."""

from __future__ import annotations

import numpy as np

from serve_app.errors import InternalError
from serve_app.messages import EngineOutput, FloatArray, ScoreRequest
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.model import ModelInput, TextModel


def postprocess(model: TextModel, request: ScoreRequest, built: ModelInput, output: EngineOutput) -> FloatArray:
    """Scores, float32 [documents]: logits, or activated unless the request asks for raw scores; NaN for failed images.

    Raises:
        InternalError: the model gave a value that is not a number, or not one for every image.
    """
    owners = built.marker_owners or ()
    if output.values.shape != (len(owners), 1):
        raise InternalError(f"the engine gave {output.values.shape} values for {len(owners)} images")
    logits = finite(output.values[:, 0])
    values = logits if request.raw_scores else activate(logits, model.checkpoint.activation)
    scores = np.full(len(request.documents), np.nan, dtype=np.float32)
    for value, documents in zip(values, owners, strict=True):
        scores[list(documents)] = value
    return scores
