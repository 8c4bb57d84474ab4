"""Logits to scores."""

from __future__ import annotations

from serve_app.errors import InternalError
from serve_app.messages import EngineOutput, FloatArray, ScoreRequest
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.chunks import best_of_chunks
from serve_app.tasks.model import ModelInput, TextModel


def postprocess(model: TextModel, request: ScoreRequest, built: ModelInput, output: EngineOutput) -> FloatArray:
    """Scores, float32 [documents]: logits, or activated unless the request asks for raw scores.

    Raises:
        InternalError: the model gave a value that is not a number.
    """
    if output.values.shape[1] != 1:
        raise InternalError(f"the reranker gave {output.values.shape[1]} values for a pair instead of one")
    logits = best_of_chunks(finite(output.values[:, 0]), built.owners, len(request.documents))
    return logits if request.raw_scores else activate(logits, model.checkpoint.activation)
