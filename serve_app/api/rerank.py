"""Rerank: one query, many documents. Jina v1, Cohere v1 and v2 and vLLM share a body; TEI has its own.

The one answer serves the clients of all four: Cohere's SDKs read `id`, `results` and `meta`, Jina's and Haystack read
`model` and `usage`, vLLM's read all but `meta`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from serve_app.api.base import Call, Limits, Meta, Refused, validate
from serve_app.api.fields import (
    IMAGE_FORMS,
    MAX_COUNT,
    DocumentsField,
    PairFields,
    QueryField,
    RawScoresFields,
    TeiFields,
    TextDocumentsField,
    TextQueryField,
)
from serve_app.api.rendering import expect, failures, mark_truncated, ranking, usage
from serve_app.errors import UnknownField
from serve_app.messages import ImageRef, PipelineResult, ScoreRequest, ScoreResult, Truncation
from serve_app.vocabulary import Operation

MAX_CHUNKS = 64
"""Each piece costs as much as a document."""


class RerankBody(PairFields, RawScoresFields):
    """Body of /v1/rerank, /v2/rerank and /rerank."""

    query: QueryField = Field(
        description="What the documents are ranked by: a text that is not blank or, where the model takes it, an image."
    )
    documents: DocumentsField = Field(
        description='Texts or images to rank, as the model takes them. A text is a string, `{"text": …}` or vLLM\'s '
        f'`{{"content": [text parts]}}`. {IMAGE_FORMS} Other keys beside `text`, `image` or `image_url` are the '
        "caller's own and come back with the document when `return_documents` is set."
    )
    top_n: int | None = Field(
        default=None, ge=1, le=MAX_COUNT, description="Best results to return; left out, or more than there are: all."
    )
    return_documents: bool = Field(default=False, description="Repeat each document in its result.")
    rank_fields: list[str] | None = Field(default=None, description='Only `["text"]`: documents are ranked by `text`.')
    max_chunks_per_doc: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHUNKS,
        description="Pieces of a document that does not fit which are scored, of which the best counts; left out: 1, "
        "the document is cut.",
    )
    return_embeddings: Annotated[Any, Refused("a reranker has no embeddings to return", (False,))] = None

    def truncation(self, max_document_tokens: int | None = None) -> Truncation:
        return replace(super().truncation(max_document_tokens), max_chunks=self.max_chunks_per_doc or 1)


class TeiRerankBody(TeiFields):
    """Body of /rerank in the shape of text-embeddings-inference: what has `texts` instead of `documents`."""

    query: TextQueryField = Field(description="What the texts are ranked by; must not be blank.")
    texts: TextDocumentsField = Field(description="Texts to rank.")
    raw_scores: bool = Field(default=False, description="Logits instead of scores after the model's activation.")
    return_text: bool = Field(default=False, description="Repeat each text in its result.")
    top_n: int | None = Field(
        default=None, ge=1, le=MAX_COUNT, description="Best results to return; LiteLLM adds it to TEI's shape."
    )


def rerank(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v1/rerank."""
    return _rerank(body, limits, "POST /v1/rerank", "1")


def rerank_v2(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v2/rerank: the same body, answered as Cohere's API version 2."""
    return _rerank(body, limits, "POST /v2/rerank", "2")


def rerank_any(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /rerank, which vLLM's, Jina's and TEI's clients share."""
    if is_tei(body):
        return _rerank_tei(body, limits)
    return _rerank(body, limits, "POST /rerank", "1")


def is_tei(body: Mapping[str, Any]) -> bool:
    """Whether a body sent to /rerank is TEI's shape; its errors carry `error_type` then."""
    return isinstance(body, Mapping) and body.get("texts") is not None


def _rerank(body: Mapping[str, Any], limits: Limits, route: str, api_version: str) -> Call:
    parsed = validate(RerankBody, body, route)
    limits.check(len(parsed.documents), "documents")
    limits.check_images(query=[parsed.query], documents=parsed.documents)
    if parsed.rank_fields not in (None, [], ["text"]):
        raise UnknownField(f"field 'rank_fields' of {route} is not honoured: only ['text'] is accepted", "rank_fields")
    documents = body["documents"] if isinstance(body["documents"], list) else [body["documents"]]
    sent = documents if parsed.return_documents else None  # else not kept: images are large

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        scored = expect(result, ScoreResult)
        served = scored.served
        order = ranking(scored.scores, parsed.top_n, scored.served.errors)
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score}
            for index, score in zip(order.tolist(), scored.scores[order], strict=True)
        ]
        if sent is not None:
            for item in results:
                item["document"] = _echo(sent[item["index"]], parsed.documents[item["index"]])
        mark_truncated(results, served.truncated)
        return {
            "id": meta.request_id,
            "model": served.model,
            "model_version": served.version,
            "results": results,
            "usage": usage(served),
            "meta": {"api_version": {"version": api_version}, "billed_units": {"search_units": 1}},
            **failures(served.errors),
        }

    request = ScoreRequest(
        queries=[parsed.query],
        documents=parsed.documents,
        raw_scores=parsed.wants_raw_scores(),
        truncation=parsed.truncation(),
        **parsed.instructed(),
    )
    return Call(Operation.RERANK, parsed.model, request, len(parsed.documents), render, parsed.ignored)


def _echo(sent: Any, document: str | ImageRef) -> dict[str, Any]:
    """A document as Cohere v1 answers it: an object with its text or image and whatever else the caller had in it."""
    if isinstance(sent, Mapping) and (isinstance(document, ImageRef) or sent.get("text") is not None):
        return {name: value for name, value in sent.items() if value is not None}
    return {"text": document}


def _rerank_tei(body: Mapping[str, Any], limits: Limits) -> Call:
    parsed = validate(TeiRerankBody, body, "POST /rerank (with 'texts')")
    limits.check(len(parsed.texts), "texts")

    def render(result: PipelineResult, meta: Meta) -> list[dict[str, Any]]:
        scored = expect(result, ScoreResult)
        order = ranking(scored.scores, parsed.top_n, scored.served.errors)
        ranks: list[dict[str, Any]] = [
            {"index": index, "score": score} for index, score in zip(order.tolist(), scored.scores[order], strict=True)
        ]
        if parsed.return_text:
            for rank in ranks:
                rank["text"] = parsed.texts[rank["index"]]
        mark_truncated(ranks, scored.served.truncated)
        return ranks

    request = ScoreRequest(
        queries=[parsed.query],
        documents=parsed.texts,
        document_field="texts",
        raw_scores=parsed.raw_scores,
        truncation=parsed.truncation(),
    )
    return Call(Operation.RERANK, parsed.model, request, len(parsed.texts), render, parsed.ignored)
