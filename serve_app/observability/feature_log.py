"""The feature log: requests and their scores as JSON lines, for offline work. Opt-in.

JSON lines, which `parquet.py` turns into Parquet when nobody writes them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from blake3 import blake3

from serve_app.messages import (
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    EmbedRequest,
    ImageRef,
    PipelineRequest,
    PipelineResult,
    PoolRequest,
    ScoreRequest,
    ScoreResult,
)
from serve_app.observability.lines import LineWriter
from serve_app.observability.note import Note
from serve_app.observability.registry import Reading


def record(note: Note, *, texts: bool) -> tuple[Callable[[], Any], int]:
    """A request's record, to be made later, and about how many bytes it holds until then."""
    request, result = note.request, note.result
    assert request is not None
    assert result is not None
    head = {
        "time": round(note.time, 3),
        "id": note.request_id,
        "route": note.route,
        "model": note.model,
        "version": note.version,
        "routing": note.routing,
    }
    answer = _result(result)  # and not the result itself, which may hold vectors
    return lambda: {**head, **_request(request, texts=texts), **answer}, 1_000 + _size(request)


def source(writer: LineWriter) -> Callable[[], Sequence[Reading]]:
    """The log's metrics."""

    def read() -> Sequence[Reading]:
        name = "poolserve_feature_log_records_total"
        counts = {"written": writer.written, "dropped": writer.dropped, "failed": writer.failed}
        records = [Reading(name, count, (outcome,)) for outcome, count in counts.items()]
        return [*records, Reading("poolserve_feature_log_queued", writer.queued)]

    return read


def _request(request: PipelineRequest, *, texts: bool) -> dict[str, Any]:
    """What was asked: texts, URLs and bytes as hashes unless texts are asked for; bytes of images always."""
    match request:
        case ScoreRequest():
            return {
                "queries": [_item(item, texts) for item in request.queries],
                "documents": [_item(item, texts) for item in request.documents],
            }
        case EmbedRequest() | ClassifyRequest() | AbsaRequest() | PoolRequest():
            return {"inputs": [_item(item, texts) for item in request.inputs]}
        case _:
            return {}


def _result(result: PipelineResult) -> dict[str, Any]:
    """Scores. Vectors are left out: 20 of them are 60 kB, and the model makes them again."""
    match result:
        case ScoreResult():
            return {"scores": np.ascontiguousarray(result.scores)}
        case ClassifyResult():
            return {"labels": list(result.labels), "scores": np.ascontiguousarray(result.scores)}
        case AbsaResult():
            spans = [[(s.start, s.end, s.aspect, s.polarity, s.score) for s in item.spans] for item in result.items]
            return {"spans": spans, "sentiments": [item.sentiment for item in result.items]}
        case _:
            return {}


def _item(item: Any, texts: bool) -> Any:
    match item:
        case str():
            return item if texts else _hash(item.encode("utf-8", "surrogatepass"))
        case ImageRef(data=bytes() as data):
            return {"image": _hash(data)}
        case ImageRef():
            return {"url": _item(item.url, texts)}
        case [str(), *_]:
            return [_item(part, texts) for part in item]
        case _:
            return list(item)  # token ids


def _hash(data: bytes) -> str:
    return blake3(data).hexdigest(length=16)


def _size(request: PipelineRequest) -> int:
    items: list[Any]
    match request:
        case ScoreRequest():
            items = [*request.queries, *request.documents]
        case EmbedRequest() | ClassifyRequest() | AbsaRequest() | PoolRequest():
            items = list(request.inputs)
        case _:
            items = []
    return sum(len(item.data or item.url or "") if isinstance(item, ImageRef) else 4 * len(item) for item in items)
