"""Pooled states to vectors, and vectors to cosine scores."""

from __future__ import annotations

import numpy as np

from serve_app.errors import InvalidRequest
from serve_app.messages import EmbedRequest, EngineOutput, FloatArray, ScoreRequest
from serve_app.tasks.activation import finite
from serve_app.tasks.chunks import best_of_chunks
from serve_app.tasks.model import ModelInput, TextModel


def postprocess(model: TextModel, request: EmbedRequest, built: ModelInput, output: EngineOutput) -> FloatArray:
    """Vectors, float32 [inputs, dimensions]. Matryoshka: cut first, then brought to unit length.

    Raises:
        InvalidRequest: more dimensions asked for than the model has.
    """
    vectors = finite(output.values)
    if request.dimensions is not None:
        if request.dimensions > vectors.shape[1]:
            raise InvalidRequest(
                f"dimensions: {request.dimensions} is more than the model's {vectors.shape[1]}", "dimensions"
            )
        vectors = vectors[:, : request.dimensions]
    normalize = model.checkpoint.normalize if request.normalize is None else request.normalize
    return unit(vectors) if normalize else np.ascontiguousarray(vectors)


def cosine_scores(request: ScoreRequest, built: ModelInput, output: EngineOutput) -> FloatArray:
    """Cosine of each pair, float32 [documents]; the best of a document's pieces if it was cut into some."""
    vectors = unit(finite(output.values))
    n_queries = len(request.queries)
    queries, documents = vectors[:n_queries], vectors[n_queries:]
    owners = None if built.owners is None else built.owners[n_queries:] - n_queries
    if n_queries == 1:
        scores = documents @ queries[0]
    else:
        rows = queries if owners is None else queries[owners]
        scores = np.einsum("ij,ij->i", rows, documents)
    return best_of_chunks(scores.astype(np.float32), owners, len(request.documents))


def unit(vectors: FloatArray) -> FloatArray:
    """Rows brought to unit length, with the floor that torch.nn.functional.normalize has."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
