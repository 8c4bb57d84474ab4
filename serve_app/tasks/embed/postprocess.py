"""Pooled states to vectors, and vectors to scores."""

from __future__ import annotations

import numpy as np

from serve_app.errors import InvalidRequest
from serve_app.messages import EmbedRequest, EngineOutput, FloatArray, IntArray, ScoreRequest
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.chunks import best_of_chunks
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import ModelInput, TextModel


def postprocess(
    model: TextModel,
    request: EmbedRequest,
    built: ModelInput,
    output: EngineOutput,
    images: RequestImages | None = None,
) -> FloatArray:
    """Vectors, float32 [inputs, dimensions]; NaN for images that failed. Matryoshka: cut first, then unit length.

    Raises:
        InvalidRequest: more dimensions asked for than the model has.
    """
    rows, owners = item_rows(built, output, images)
    if request.dimensions is not None:
        if request.dimensions > rows.shape[1]:
            raise InvalidRequest(
                f"dimensions: {request.dimensions} is more than the model's {rows.shape[1]}", "dimensions"
            )
        rows = rows[:, : request.dimensions]
    normalize = model.checkpoint.normalize if request.normalize is None else request.normalize
    rows = unit(rows) if normalize else np.ascontiguousarray(rows)
    if owners is None:
        return rows
    vectors = np.full((len(request.inputs), rows.shape[1]), np.nan, dtype=np.float32)
    vectors[owners] = rows
    return vectors


def pair_scores(
    model: TextModel,
    request: ScoreRequest,
    built: ModelInput,
    output: EngineOutput,
    images: RequestImages | None = None,
) -> FloatArray:
    """Score of each pair, float32 [documents]; NaN where an image failed; the best of a document's pieces.

    A text encoder's score is the cosine. A dual encoder's logit is scale x cosine + bias, activated (SigLIP) unless the
    request asks for raw scores.
    """
    cosines = _cosines(request, built, output, images)
    facts = model.checkpoint.images
    if facts is None:
        return cosines
    logits = np.asarray(facts.logit_scale * cosines + facts.logit_bias, dtype=np.float32)
    return logits if request.raw_scores else activate(logits, model.checkpoint.activation)


def _cosines(
    request: ScoreRequest, built: ModelInput, output: EngineOutput, images: RequestImages | None
) -> FloatArray:
    rows, owners = item_rows(built, output, images)
    vectors = unit(rows)
    n_queries = len(request.queries)
    if owners is not None:
        order = np.argsort(owners, kind="stable")
        vectors, owners = vectors[order], owners[order]
    first = n_queries if owners is None else int(np.searchsorted(owners, n_queries))
    queries, documents = vectors[:first], vectors[first:]
    document_owners = None if owners is None else owners[first:] - n_queries
    if n_queries == 1:
        scores = documents @ queries[0]
    else:
        if owners is not None:
            by_query = np.full((n_queries, vectors.shape[1]), np.nan, dtype=np.float32)
            by_query[owners[:first]] = queries
            queries = by_query[document_owners]
        scores = np.einsum("ij,ij->i", queries, documents)
    if images is None:
        return best_of_chunks(scores.astype(np.float32), document_owners, len(request.documents))
    known = np.where(np.isnan(scores), -np.inf, scores).astype(np.float32)  # NaN: the pair's query failed
    best = best_of_chunks(known, document_owners, len(request.documents))
    return np.where(np.isneginf(best), np.float32(np.nan), best)


def item_rows(
    built: ModelInput, output: EngineOutput, images: RequestImages | None
) -> tuple[FloatArray, IntArray | None]:
    """Vectors float32 [rows, width], and the item that each belongs to; None: one each, in order."""
    values = finite(output.values)
    if images is None:
        return values, built.owners
    encoded = () if built.images is None else built.images.keys
    texts = len(values) - len(encoded)
    vectors = dict(zip(encoded, values[texts:], strict=True)) | images.vectors
    text_owners = np.arange(texts, dtype=np.int32) if built.owners is None else built.owners[:texts]
    if not images.keys:
        return values[:texts], text_owners
    owners = np.concatenate([text_owners, np.fromiter(images.keys, np.int32)]).astype(np.int32)
    pictures = np.stack([vectors[key] for key in images.keys.values()])
    return np.concatenate([values[:texts].reshape(texts, pictures.shape[1]), pictures]), owners


def new_vectors(built: ModelInput, output: EngineOutput) -> dict[str, FloatArray]:
    """Vectors of the images that the engine has just encoded, by key."""
    if built.images is None:
        return {}
    rows = output.values[len(output.values) - len(built.images.keys) :]
    return {key: row.copy() for key, row in zip(built.images.keys, rows, strict=True) if np.isfinite(row).all()}


def unit(vectors: FloatArray) -> FloatArray:
    """Rows brought to unit length, with the floor that torch.nn.functional.normalize has."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
