"""Logits to one probability per label."""

from __future__ import annotations

from serve_app.errors import InternalError
from serve_app.messages import ClassifyRequest, EngineOutput, FloatArray
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.model import ModelInput, TextModel


def postprocess(model: TextModel, request: ClassifyRequest, built: ModelInput, output: EngineOutput) -> FloatArray:
    """Probabilities (or logits, if the request asks for raw scores), float32 [inputs, labels].

    Raises:
        InternalError: the engine's width is not the checkpoint's number of labels.
    """
    if output.values.shape[1] != len(model.checkpoint.labels):
        raise InternalError(
            f"the engine gave {output.values.shape[1]} values, the checkpoint has {len(model.checkpoint.labels)} labels"
        )
    logits = finite(output.values)
    return logits if request.raw_scores else activate(logits, model.checkpoint.activation)
