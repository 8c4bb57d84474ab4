"""The rerank route as a client sees it: request body, answer, `Server-Timing`."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

dumps: Callable[[Any], bytes]
loads: Callable[[bytes], Any]
try:
    import orjson

    dumps, loads = orjson.dumps, orjson.loads
except ImportError:  # a GPU host may lack it; bodies are built outside the timed region, so figures do not change

    def dumps(value: Any) -> bytes:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    loads = json.loads


class MalformedAnswer(Exception):
    """Status 200, but not one finite score for each document."""


@dataclass(frozen=True, slots=True)
class RerankCase:
    """One query and the documents to score for it."""

    query: str
    documents: tuple[str, ...]


def body(case: RerankCase, model: str | None, return_documents: bool = False) -> bytes:
    """The request in the shape that Jina, Cohere, vLLM and Poolserve share; absent fields stay absent."""
    fields: dict[str, Any] = {"query": case.query, "documents": list(case.documents)}
    if model is not None:
        fields = {"model": model, **fields}
    if return_documents:
        fields["return_documents"] = True
    return dumps(fields)


def scores(payload: bytes, documents: int) -> list[float]:
    """Scores in the order of the request's documents; the answer is sorted by score.

    Raises:
        MalformedAnswer: a document has no score, two scores, or one that is not a finite number.
    """
    try:
        found = {int(r["index"]): float(r["relevance_score"]) for r in loads(payload)["results"]}
    except (ValueError, KeyError, TypeError) as error:
        raise MalformedAnswer(f"not a rerank answer: {error!r}") from error
    if sorted(found) != list(range(documents)):
        raise MalformedAnswer(f"{len(found)} of {documents} documents have a score")
    ordered = [found[i] for i in range(documents)]
    if not all(map(math.isfinite, ordered)):
        raise MalformedAnswer("a score is not finite")
    return ordered


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|[^",;\s]*)'
_METRIC = re.compile(rf"({_TOKEN})((?:\s*;\s*{_TOKEN}(?:\s*=\s*{_VALUE})?)*)\s*(?:,|$)")
_PARAM = re.compile(rf"({_TOKEN})\s*=\s*({_VALUE})")


def server_timing(header: str) -> dict[str, float]:
    """Milliseconds by metric name from a `Server-Timing` header; metrics without a usable `dur` are left out.

    A name that occurs twice (a stage that ran twice) counts with its sum.
    """
    stages: dict[str, float] = {}
    for name, params in _METRIC.findall(header):
        for key, value in _PARAM.findall(params):
            if key.lower() != "dur":
                continue
            with contextlib.suppress(ValueError):
                stages[name] = stages.get(name, 0.0) + float(value.strip('"'))
            break
    return stages
