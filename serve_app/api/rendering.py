"""Pieces that several answers share."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from serve_app.api.base import Meta
from serve_app.errors import InternalError
from serve_app.messages import FloatArray, IntArray, ItemError, PipelineResult, Served

R = TypeVar("R")


def expect(result: PipelineResult, kind: type[R]) -> R:
    """The result as the kind its operation must have given; InternalError when the pipeline mixed them up."""
    if not isinstance(result, kind):
        raise InternalError(f"the pipeline answered {type(result).__name__} where {kind.__name__} was due")
    return result


def usage(served: Served) -> dict[str, int]:
    """Token counts as OpenAI, Jina and vLLM name them; nothing is generated, so both are the same."""
    return {"prompt_tokens": served.prompt_tokens, "total_tokens": served.prompt_tokens}


def answered(rows: FloatArray, errors: Sequence[ItemError]) -> npt.NDArray[np.bool_]:
    """Which rows have an answer: all but those of `errors`.

    Raises:
        InternalError: another row is no number; JSON would show it as null.
    """
    kept = np.ones(len(rows), dtype=np.bool_)
    kept[[error.index for error in errors]] = False
    if not np.isfinite(rows if not errors else rows[kept]).all():
        raise InternalError("the model gave a result that is no number")
    return kept


def failures(errors: Sequence[ItemError]) -> dict[str, Any]:
    """The answer's `errors`, which is there only when something failed."""
    listed = [{"index": error.index, "code": str(error.code), "message": error.message} for error in errors]
    return {"errors": sorted(listed, key=itemgetter("index"))} if listed else {}


def listing(data: Sequence[Any], served: Served, meta: Meta) -> dict[str, Any]:
    """The OpenAI list object that vLLM's score and classify answers and all embeddings come in."""
    return {
        "id": meta.request_id,
        "object": "list",
        "created": meta.created,
        "model": served.model,
        "model_version": served.version,
        "data": data,
        "usage": usage(served),
        **failures(served.errors),
    }


def mark_truncated(items: Sequence[dict[str, Any]], truncated: Sequence[int]) -> None:
    """Add `"truncated": true` to the items whose input was cut; `truncated` holds their `index` values."""
    if truncated:
        cut = set(truncated)
        for item in items:
            if item["index"] in cut:
                item["truncated"] = True


def ranking(scores: FloatArray, top_n: int | None, errors: Sequence[ItemError]) -> IntArray:
    """Indexes of the best scores, best first, ties in the order of the documents, without the failed ones.

    Args:
        top_n: None: all of them.
    """
    kept = answered(scores, errors)
    order: IntArray = np.argsort(-scores, kind="stable").astype(np.int32)
    return order[kept[order]][:top_n]
