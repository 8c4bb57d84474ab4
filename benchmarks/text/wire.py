"""Requests and answers of each shape. Readers are plain functions: they travel to the load processes by name."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.wire import MalformedAnswer, dumps, loads, scores

Answer = Any
"""What one text got: a vector, label probabilities by name or in columns, token probabilities, `Spans`, or a score."""
Body = Callable[[Sequence[Any], "str | None"], bytes]
Read = Callable[[bytes, int], list[Answer]]


@dataclass(frozen=True, slots=True)
class Spans:
    """An aspect-based answer: (start, end, aspect, polarity) of each span, the scores beside them, and the sentiment of
    the whole text where the model has one."""

    places: tuple[tuple[int, int, str | None, str], ...]
    scores: tuple[float, ...]
    sentiment: str | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """How a server is asked and how it answers.

    Attributes:
        path: route, where a URL has none.
        body: makes the request of some texts.
        read: reads the answer to a request of so many texts.
    """

    path: str
    body: Body
    read: Read


def _fields(model: str | None, **fields: Any) -> bytes:
    return dumps(fields if model is None else {"model": model, **fields})


def _absa_body(texts: Sequence[str], model: str | None) -> bytes:
    return _fields(model, inputs=list(texts))


def _tokens_body(texts: Sequence[str], model: str | None) -> bytes:
    return _fields(model, input=list(texts), task="token_classify")


def _input_body(texts: Sequence[str], model: str | None) -> bytes:
    return _fields(model, input=list(texts))


def _embed_body(texts: Sequence[str], model: str | None) -> bytes:
    return _fields(model, input=list(texts), encoding_format="base64")


def _tei_body(texts: Sequence[str], model: str | None) -> bytes:
    return dumps({"inputs": list(texts)})


Pair = tuple[str, str]
"""A query and a document. All pairs of a request have one query, as rerankers are asked."""


def _rerank_body(pairs: Sequence[Any], model: str | None) -> bytes:
    return _fields(model, query=_query(pairs), documents=[document for _, document in pairs])


def _tei_rerank_body(pairs: Sequence[Any], model: str | None) -> bytes:
    return dumps({"query": _query(pairs), "texts": [document for _, document in pairs]})


def _query(pairs: Sequence[Any]) -> str:
    (query,) = {query for query, _ in pairs}
    return str(query)


def _predict_body(texts: Sequence[str], model: str | None) -> bytes:
    return dumps({"inputs": [[text] for text in texts]})


def _read(payload: bytes, count: int, items: Callable[[Any], Sequence[Any]], one: Callable[[Any], Answer]) -> list[Any]:
    """Answers in the order of the texts.

    Raises:
        MalformedAnswer: not of this shape, another number of answers, or a number that is none.
    """
    try:
        found = [one(item) for item in items(loads(payload))]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise MalformedAnswer(f"not an answer of this shape: {error!r}") from error
    if len(found) != count:
        raise MalformedAnswer(f"{len(found)} answers to {count} texts")
    return found


def _data(answer: Any) -> list[Any]:
    return sorted(answer["data"], key=lambda item: int(item["index"]))


def _bare(answer: Any) -> list[Any]:
    if not isinstance(answer, list):
        raise TypeError("no list")
    return answer


def _finite(values: Any) -> Any:
    array = np.asarray(values, dtype=np.float32)
    if not array.size or not np.isfinite(array).all():
        raise ValueError("empty, or a value that is not finite")
    return array


def read_spans(payload: bytes, count: int) -> list[Answer]:
    """Poolserve's /v1/absa."""

    def one(item: Any) -> Spans:
        spans = item["spans"]
        scores = tuple(float(span["score"]) for span in spans)
        if not all(map(math.isfinite, scores)):
            raise ValueError("a score is not finite")
        sentiment = item.get("sentiment")
        places = tuple((s["start"], s["end"], s["aspect"], s["polarity"]) for s in spans)
        return Spans(places, scores, sentiment and str(sentiment["label"]))

    return _read(payload, count, _data, one)


def read_tokens(payload: bytes, count: int) -> list[Answer]:
    """vLLM's /pooling: probabilities, float32 [tokens, labels]."""
    return _read(payload, count, _data, lambda item: _finite(item["data"]))


def read_vectors(payload: bytes, count: int) -> list[Answer]:
    """OpenAI's /v1/embeddings, as base64 or numbers."""

    def one(item: Any) -> Any:
        vector = item["embedding"]
        return _finite(np.frombuffer(base64.b64decode(vector), "<f4") if isinstance(vector, str) else vector)

    return _read(payload, count, _data, one)


def read_bare_vectors(payload: bytes, count: int) -> list[Answer]:
    """TEI's /embed."""
    return _read(payload, count, _bare, _finite)


def read_probabilities(payload: bytes, count: int) -> list[Answer]:
    """vLLM's /classify: probabilities in the order of the labels."""
    return _read(payload, count, _data, lambda item: _finite(item["probs"]))


def _by_label(entries: Any) -> dict[str, float]:
    if not isinstance(entries, list) or not entries:
        raise ValueError("no labels")
    return {str(entry["label"]): float(_finite([entry["score"]])[0]) for entry in entries}


def read_named(payload: bytes, count: int) -> list[Answer]:
    """TEI's /predict: probabilities by label."""
    return _read(payload, count, _bare, _by_label)


def read_infinity(payload: bytes, count: int) -> list[Answer]:
    """Infinity's /classify: probabilities by label."""
    return _read(payload, count, lambda answer: answer["data"], _by_label)


def read_tei_scores(payload: bytes, count: int) -> list[Answer]:
    """TEI's /rerank: scores in the order of the documents."""

    def items(answer: Any) -> list[Any]:
        return sorted(_bare(answer), key=lambda item: int(item["index"]))

    return _read(payload, count, items, lambda item: float(_finite([item["score"]])[0]))


def read_scores(payload: bytes, count: int) -> list[Answer]:
    """The rerank route of Jina, Cohere and vLLM: scores in the order of the documents."""
    return list(scores(payload, count))


SHAPES: dict[str, dict[str, Shape]] = {
    "absa": {
        "poolserve": Shape("/v1/absa", _absa_body, read_spans),
        "vllm": Shape("/pooling", _tokens_body, read_tokens),
    },
    "embed": {
        "openai": Shape("/v1/embeddings", _embed_body, read_vectors),
        "tei": Shape("/embed", _tei_body, read_bare_vectors),
    },
    "classify": {
        "vllm": Shape("/classify", _input_body, read_probabilities),
        "tei": Shape("/predict", _predict_body, read_named),
        "infinity": Shape("/classify", _input_body, read_infinity),
    },
    "documents": {
        "rerank": Shape("/rerank", _rerank_body, read_scores),
        "tei": Shape("/rerank", _tei_rerank_body, read_tei_scores),
    },
}
"""By command. The first of each is Poolserve's and the default."""
