"""Requests and answers of each shape. Readers are plain functions: they travel to the load processes by name."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.wire import MalformedAnswer, dumps, loads

Answer = Any
"""What one text got: a vector, label probabilities by name or in columns, token probabilities, or `Spans`."""
Body = Callable[[Sequence[str], "str | None"], bytes]
Read = Callable[[bytes, int], list[Answer]]


@dataclass(frozen=True, slots=True)
class Spans:
    """An aspect-based answer: (start, end, aspect, polarity) of each span, and the scores beside them."""

    places: tuple[tuple[int, int, str | None, str], ...]
    scores: tuple[float, ...]


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
        return Spans(tuple((s["start"], s["end"], s["aspect"], s["polarity"]) for s in spans), scores)

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
    return {str(entry["label"]): float(_finite([entry["score"]])[0]) for entry in entries}


def read_named(payload: bytes, count: int) -> list[Answer]:
    """TEI's /predict: probabilities by label."""
    return _read(payload, count, _bare, _by_label)


def read_infinity(payload: bytes, count: int) -> list[Answer]:
    """Infinity's /classify: probabilities by label."""
    return _read(payload, count, lambda answer: answer["data"], _by_label)


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
}
"""By command. The first of each is Poolserve's and the default."""
