"""Every route that does inference: path, adapter, bodies, and the example that the documentation and its tests use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serve_app.api.absa import AbsaBody, absa
from serve_app.api.base import Adapter, Body
from serve_app.api.classify import ClassifyBody, TeiPredictBody, classify, predict_tei
from serve_app.api.embeddings import EmbeddingsBody, TeiEmbedBody, embed_tei, embeddings
from serve_app.api.pooling import PoolingBody, pooling
from serve_app.api.rerank import RerankBody, TeiRerankBody, is_tei, rerank, rerank_any, rerank_v2
from serve_app.api.score import ScoreBody, score
from serve_app.vocabulary import Operation


@dataclass(frozen=True, slots=True)
class Route:
    """One POST route.

    Attributes:
        bodies: the accepted shapes, the first one the route's own.
        tei: errors carry TEI's `error_type`; see `answers_tei` for /rerank, where it depends on the body.
        summary: one line for the documentation.
        example: a request body that works, for `bodies[0]`.
        answer: an answer to it, numbers made up.
        image_example, image_answer: the same with images, of which one could not be used; None: texts only.
    """

    path: str
    operation: Operation
    adapter: Adapter
    bodies: tuple[type[Body], ...]
    tei: bool
    summary: str
    example: Mapping[str, Any]
    answer: Any
    image_example: Mapping[str, Any] | None = None
    image_answer: Any = None


def answers_tei(route: Route, body: Any) -> bool:
    """Whether an answer to this body, an error included, must be in TEI's shape; body: anything, even no object."""
    return route.tei or (TeiRerankBody in route.bodies and isinstance(body, Mapping) and is_tei(body))


_USAGE = {"prompt_tokens": 24, "total_tokens": 24}
_SERVED = {"model": "reranker", "model_version": "1"}
_LIST = {"id": "4f6c", "object": "list", "created": 1764000000}

_RERANK_EXAMPLE = {"model": "reranker", "query": "capital of France", "documents": ["Berlin", "Paris"], "top_n": 1}
_RERANK_ANSWER = {
    "id": "4f6c",
    **_SERVED,
    "results": [{"index": 1, "relevance_score": 0.97}],
    "usage": _USAGE,
    "meta": {"api_version": {"version": "1"}, "billed_units": {"search_units": 1}},
}
_RERANK_V2_ANSWER = {**_RERANK_ANSWER, "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}}
_SCORE_EXAMPLE = {"model": "reranker", "text_1": "capital of France", "text_2": ["Berlin", "Paris"]}
_SCORE_ANSWER = {
    **_LIST,
    **_SERVED,
    "data": [{"index": 0, "object": "score", "score": 0.03}, {"index": 1, "object": "score", "score": 0.97}],
    "usage": _USAGE,
}
_EMBED_EXAMPLE = {"model": "embedder", "input": ["Paris"], "input_type": "query"}
_EMBED_ANSWER = {
    **_LIST,
    "model": "embedder",
    "model_version": "1",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}],
    "usage": _USAGE,
}
_CLASSIFY_EXAMPLE = {"model": "sentiment", "input": ["What a wonderful day"]}
_CLASSIFY_ANSWER = {
    **_LIST,
    "model": "sentiment",
    "model_version": "1",
    "data": [{"index": 0, "label": "positive", "probs": [0.01, 0.99], "num_classes": 2}],
    "usage": _USAGE,
    "labels": ["negative", "positive"],
}
_PREDICT_ANSWER = [{"label": "positive", "score": 0.99}, {"label": "negative", "score": 0.01}]

_ABSA_EXAMPLE = {"model": "absa", "inputs": ["The pasta was great, the waiter rude."], "threshold": 0.5}
_ABSA_ANSWER = {
    "model": "absa",
    "model_version": "1",
    "data": [
        {
            "index": 0,
            "sentiment": {"label": "neutral", "score": 0.71},
            "spans": [
                {"start": 4, "end": 9, "text": "pasta", "aspect": "food", "polarity": "positive", "score": 0.98},
                {"start": 25, "end": 31, "text": "waiter", "aspect": "service", "polarity": "negative", "score": 0.97},
            ],
        }
    ],
    "usage": _USAGE,
    "errors": [],
}

_POOLING_EXAMPLE = {"model": "reranker", "data": {"query": "capital of France", "documents": ["Berlin", "Paris"]}}
_POOLING_ANSWER = {
    "request_id": "4f6c",
    "created_at": 1764000000,
    "model": "reranker",
    "model_version": "1",
    "data": {
        **_RERANK_ANSWER,
        "results": [{"index": 1, "relevance_score": 0.97}, {"index": 0, "relevance_score": 0.03}],
    },
}

_IMAGES = [{"image": "https://example.org/cat.jpg"}, {"image": "https://example.org/gone.jpg"}]
_ERRORS = [{"index": 1, "code": "media_unreachable", "message": "documents[1].image: the server answered 404"}]
_IMAGE_SERVED = {"model": "image-ranker", "model_version": "1"}
_RERANK_IMAGES = {"model": "image-ranker", "query": "a cat", "documents": _IMAGES}
_RERANKED_IMAGES = {
    **_RERANK_ANSWER,
    **_IMAGE_SERVED,
    "results": [{"index": 0, "relevance_score": 0.97}],
    "errors": _ERRORS,
}
_RERANKED_IMAGES_V2 = {**_RERANKED_IMAGES, "meta": _RERANK_V2_ANSWER["meta"]}
_POOL_IMAGES = {"model": "image-ranker", "data": {"query": "a cat", "documents": _IMAGES}}
_POOLED_IMAGES = {**_POOLING_ANSWER, **_IMAGE_SERVED, "data": _RERANKED_IMAGES}
_SCORE_IMAGES = {"model": "image-ranker", "queries": "a cat", "documents": _IMAGES}
_SCORED_IMAGES = {
    **_SCORE_ANSWER,
    **_IMAGE_SERVED,
    "data": [{"index": 0, "object": "score", "score": 0.97}],
    "errors": _ERRORS,
}
_EMBED_IMAGES = {"model": "clip", "input": _IMAGES}
_EMBEDDED_IMAGES = {
    **_EMBED_ANSWER,
    "model": "clip",
    "data": [
        {"object": "embedding", "index": 0, "embedding": [0.6, 0.8]},
        {"object": "embedding", "index": 1, "embedding": None},
    ],
    "errors": [{**_ERRORS[0], "message": "input[1].image: the server answered 404"}],
}

_RERANKS = "Order documents by their relevance to one query"
_SCORES = "Score pairs of texts or images 1:1, 1:N or N:N (vLLM)"
_EMBEDS = "Embed texts or images (OpenAI, Jina, vLLM)"
_CLASSIFIES = "Classify texts (vLLM)"

ROUTES: tuple[Route, ...] = (
    Route("/v1/rerank", Operation.RERANK, rerank, (RerankBody,), False, f"{_RERANKS} (Jina, Cohere v1, vLLM)",
          _RERANK_EXAMPLE, _RERANK_ANSWER, _RERANK_IMAGES, _RERANKED_IMAGES),
    Route("/v2/rerank", Operation.RERANK, rerank_v2, (RerankBody,), False, f"{_RERANKS} (Cohere v2)",
          _RERANK_EXAMPLE, _RERANK_V2_ANSWER, _RERANK_IMAGES, _RERANKED_IMAGES_V2),
    Route("/rerank", Operation.RERANK, rerank_any, (RerankBody, TeiRerankBody), False,
          f"{_RERANKS}; with `texts` instead of `documents` the TEI shape, answered by TEI's bare list",
          _RERANK_EXAMPLE, _RERANK_ANSWER, _RERANK_IMAGES, _RERANKED_IMAGES),
    Route("/v1/score", Operation.SCORE, score, (ScoreBody,), False, _SCORES, _SCORE_EXAMPLE, _SCORE_ANSWER,
          _SCORE_IMAGES, _SCORED_IMAGES),
    Route("/score", Operation.SCORE, score, (ScoreBody,), False, _SCORES, _SCORE_EXAMPLE, _SCORE_ANSWER,
          _SCORE_IMAGES, _SCORED_IMAGES),
    Route("/v1/embeddings", Operation.EMBED, embeddings, (EmbeddingsBody,), False, _EMBEDS,
          _EMBED_EXAMPLE, _EMBED_ANSWER, _EMBED_IMAGES, _EMBEDDED_IMAGES),
    Route("/embed", Operation.EMBED, embed_tei, (TeiEmbedBody,), True, "Embed texts (TEI), answered by bare vectors",
          {"inputs": ["Paris"]}, [[0.6, 0.8]]),
    Route("/v1/classify", Operation.CLASSIFY, classify, (ClassifyBody,), False, _CLASSIFIES,
          _CLASSIFY_EXAMPLE, _CLASSIFY_ANSWER),
    Route("/classify", Operation.CLASSIFY, classify, (ClassifyBody,), False, _CLASSIFIES,
          _CLASSIFY_EXAMPLE, _CLASSIFY_ANSWER),
    Route("/predict", Operation.CLASSIFY, predict_tei, (TeiPredictBody,), True, "Classify texts or pairs (TEI)",
          {"inputs": "What a wonderful day"}, _PREDICT_ANSWER),
    Route("/v1/absa", Operation.ABSA, absa, (AbsaBody,), False,
          "Aspect-based sentiment: spans in code points of the sent string, with aspect, polarity and score",
          _ABSA_EXAMPLE, _ABSA_ANSWER),
    Route("/pooling", Operation.POOLING, pooling, (PoolingBody,), False,
          "A model's IO processor (`data`), or its pooler's own numbers (`input`) (vLLM)",
          _POOLING_EXAMPLE, _POOLING_ANSWER, _POOL_IMAGES, _POOLED_IMAGES),
)  # fmt: skip
