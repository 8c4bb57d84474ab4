"""The HTTP routes' answers as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from serve_app.api.packing import WIRE_TYPES, as_wire
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.messages import FloatArray

Answer = Mapping[str, Any]

_WIRE_TYPES: dict[int, np.dtype[Any]] = {
    pb.FLOAT_FORMAT_FLOAT32: WIRE_TYPES["float32"],
    pb.FLOAT_FORMAT_FLOAT16: WIRE_TYPES["float16"],
}


def rerank(request: pb.RerankRequest, answer: Answer) -> pb.RerankResponse:
    """Best first; documents repeated if asked for."""
    results = []
    for row in answer["results"]:
        result = pb.RankedDocument(
            index=row["index"], relevance_score=float(row["relevance_score"]), truncated="truncated" in row
        )
        if request.return_documents:
            result.document.CopyFrom(request.documents[row["index"]])
        results.append(result)
    return pb.RerankResponse(results=results, **_served(answer))


def score(request: pb.ScoreRequest, answer: Answer) -> pb.ScoreResponse:
    """In the order of the documents."""
    data = [
        pb.PairScore(index=row["index"], score=float(row["score"]), truncated="truncated" in row)
        for row in answer["data"]
    ]
    return pb.ScoreResponse(data=data, **_served(answer))


def embed(request: pb.EmbedRequest, answer: Answer) -> pb.EmbedResponse:
    """One vector per input, as bytes; empty where `errors` says why."""
    number_format = request.format or pb.FLOAT_FORMAT_FLOAT32
    rows: list[FloatArray | None] = [row["embedding"] for row in answer["data"]]
    return pb.EmbedResponse(
        vectors=packed(rows, number_format),
        dimensions=next((len(row) for row in rows if row is not None), 0),
        format=number_format,
        truncated=[row["index"] for row in answer["data"] if "truncated" in row],
        **_served(answer),
    )


def packed(rows: Sequence[FloatArray | None], number_format: pb.FloatFormat) -> list[bytes]:
    """Each row's little-endian bytes, b"" for None.

    Args:
        rows: float32 [dimensions] each.
        number_format: FLOAT32 or FLOAT16.

    Raises:
        InvalidRequest: a value does not fit float16.
    """
    dtype = _WIRE_TYPES[number_format]
    return [b"" if row is None else as_wire(row, dtype, "format").tobytes() for row in rows]


def classify(request: pb.ClassifyRequest, answer: Answer) -> pb.ClassifyResponse:
    """In the order of the inputs."""
    data = [
        pb.Classification(
            index=row["index"], label=row["label"], probs=row["probs"].tolist(), truncated="truncated" in row
        )
        for row in answer["data"]
    ]
    return pb.ClassifyResponse(data=data, labels=answer["labels"], **_served(answer))


def absa(request: pb.AbsaRequest, answer: Answer) -> pb.AbsaResponse:
    """In the order of the inputs."""
    data = []
    for row in answer["data"]:
        spans = [pb.Span(**{**span, "score": float(span["score"])}) for span in row["spans"]]
        item = pb.Opinions(index=row["index"], spans=spans, truncated="truncated" in row)
        if row["sentiment"] is not None:
            item.sentiment.label, item.sentiment.score = row["sentiment"]["label"], float(row["sentiment"]["score"])
        data.append(item)
    return pb.AbsaResponse(data=data, **_served(answer))


def models(listed: Sequence[Answer]) -> pb.ModelsResponse:
    """The routing table."""
    names = ("id", "version", "task", "state", "weight", "application")
    return pb.ModelsResponse(models=[pb.Model(**{name: row[name] for name in names}) for row in listed])


def _served(answer: Answer) -> dict[str, Any]:
    return {
        "model": answer["model"],
        "model_version": answer["model_version"],
        "prompt_tokens": answer["usage"]["prompt_tokens"],
        "errors": [pb.ItemError(**error) for error in answer.get("errors", ())],
    }
