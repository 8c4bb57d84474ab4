"""Pieces that several answers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from serve_app.api.base import Meta
from serve_app.errors import InternalError
from serve_app.messages import FloatArray, IntArray, PipelineResult, Served

R = TypeVar("R")


def expect(result: PipelineResult, kind: type[R]) -> R:
    """The result as the kind its operation must have given; InternalError when the pipeline mixed them up."""
    if not isinstance(result, kind):
        raise InternalError(f"the pipeline answered {type(result).__name__} where {kind.__name__} was due")
    return result


def usage(served: Served) -> dict[str, int]:
    """Token counts as OpenAI, Jina and vLLM name them; nothing is generated, so both are the same."""
    return {"prompt_tokens": served.prompt_tokens, "total_tokens": served.prompt_tokens}


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
    }


def mark_truncated(items: Sequence[dict[str, Any]], truncated: Sequence[int]) -> None:
    """Add `"truncated": true` to the items whose input was cut; `truncated` holds their `index` values."""
    if truncated:
        cut = set(truncated)
        for item in items:
            if item["index"] in cut:
                item["truncated"] = True


def ranking(scores: FloatArray, top_n: int | None) -> IntArray:
    """Indexes of the best scores, best first, ties in the order of the documents; None: all of them."""
    order: IntArray = np.argsort(-scores, kind="stable").astype(np.int32)[:top_n]
    return order
