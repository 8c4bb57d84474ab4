"""Score: pairs of texts or images 1:1, 1:N or N:N, in vLLM's shape, under each pair of names that vLLM accepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from serve_app.api.base import Call, Limits, Meta, validate
from serve_app.api.fields import IMAGE_FORMS, OptionalItemsField, OptionalQueriesField, PairFields, RawScoresFields
from serve_app.api.rendering import answered, expect, listing, mark_truncated
from serve_app.errors import InvalidRequest
from serve_app.messages import ImageRef, PipelineResult, ScoreRequest, ScoreResult
from serve_app.vocabulary import Operation

ROUTE = "POST /v1/score"

PAIRS = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))
"""Names of the two sides; one pair per request."""

_ONE_OF = "send one pair of text_1/text_2, queries/documents, queries/items or data_1/data_2"


class ScoreBody(PairFields, RawScoresFields):
    """Body of /v1/score and /score. One first side goes with all second ones; otherwise they go together in order."""

    text_1: OptionalQueriesField = Field(
        default=None,
        description="First sides (queries): one, or as many as text_2; texts or images, as the model takes them. "
        + IMAGE_FORMS,
    )
    text_2: OptionalItemsField = Field(default=None, description="Second sides (documents): texts or images.")
    queries: OptionalQueriesField = Field(default=None, description="The same as `text_1`.")
    documents: OptionalItemsField = Field(default=None, description="The same as `text_2`.")
    items: OptionalItemsField = Field(default=None, description="The same as `text_2`.")
    data_1: OptionalQueriesField = Field(default=None, description="The same as `text_1`.")
    data_2: OptionalItemsField = Field(default=None, description="The same as `text_2`.")

    def sides(self) -> tuple[str, str]:
        """Names of the two fields that were sent; InvalidRequest when it is not exactly one pair."""
        names = {name for pair in PAIRS for name in pair}
        sent = names & self.model_fields_set
        for pair in PAIRS:
            if sent == set(pair):
                return pair
        if not sent:
            raise InvalidRequest(f"text_1 and text_2 are required: {_ONE_OF}", "text_1")
        found = " and ".join(name for name in self.__class__.model_fields if name in sent)
        raise InvalidRequest(f"{found}: no pair; {_ONE_OF}", min(sent))


def score(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v1/score and /score."""
    parsed = validate(ScoreBody, body, ROUTE)
    first, second = parsed.sides()
    queries: list[str | ImageRef] = getattr(parsed, first)
    documents: list[str | ImageRef] = getattr(parsed, second)
    limits.check(len(queries), first)
    limits.check(len(documents), second)
    limits.check_images(**{first: queries, second: documents})
    if len(queries) not in (1, len(documents)):
        raise InvalidRequest(
            f"{first} has {len(queries)} entries and {second} has {len(documents)}; "
            f"{first} must hold one, or as many as {second}",
            first,
        )

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        scored = expect(result, ScoreResult)
        kept = np.flatnonzero(answered(scored.scores, scored.served.errors))
        data: list[dict[str, Any]] = [
            {"index": index, "object": "score", "score": value}
            for index, value in zip(kept.tolist(), scored.scores[kept], strict=True)
        ]
        mark_truncated(data, scored.served.truncated)
        return listing(data, scored.served, meta)

    request = ScoreRequest(
        queries=queries,
        documents=documents,
        query_field=first,
        document_field=second,
        raw_scores=parsed.wants_raw_scores(),
        truncation=parsed.truncation(),
        **parsed.instructed(),
    )
    return Call(Operation.SCORE, parsed.model, request, len(documents), render, parsed.ignored)
