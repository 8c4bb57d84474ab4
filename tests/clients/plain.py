"""What every client is compared with: the same request, sent by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.cluster import Server

QUERY = "how do I send back shoes that do not fit?"
DOCUMENTS = [
    "Opening hours: Monday to Friday, 9 to 18.",
    "Returns are free within 30 days: put the shoes back in their box and print the return label.",
    "Gift cards can be bought in every shop.",
    "If the size is wrong we exchange it; start an exchange in your account.",
    "The capital of France is Paris.",
]
EMBEDDER = "minilm"

Ranking = list[tuple[int, float]]
"""(index of the document, its score), best first."""


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    """The decoded answer, which must be a 200."""
    response = server.post(path, body)
    assert response.status_code == 200, response.text
    return response.json()


def ranking(server: Server, model: str | None, documents: Sequence[Any] = DOCUMENTS, **fields: Any) -> Ranking:
    """The ranking of `documents` for QUERY by `POST /v1/rerank`; None leaves the model out."""
    body = {"model": model, "query": QUERY, "documents": list(documents), **fields}
    results = post(server, "/v1/rerank", body)["results"]
    ranked = [(result["index"], result["relevance_score"]) for result in results]
    assert len({score for _, score in ranked}) == len(ranked), "equal scores would hide a wrong order"
    return ranked


def vectors(server: Server, texts: Sequence[str], **fields: Any) -> np.ndarray:
    """The embeddings of `texts` by `POST /v1/embeddings`, as floats."""
    body = {"model": EMBEDDER, "input": list(texts), "encoding_format": "float", **fields}
    return np.array([item["embedding"] for item in post(server, "/v1/embeddings", body)["data"]])


def assert_same_ranking(found: Iterable[tuple[int, float]], expected: Ranking) -> None:
    """The same documents in the same order with the same scores."""
    got = list(found)
    assert [index for index, _ in got] == [index for index, _ in expected]
    assert [score for _, score in got] == pytest.approx([score for _, score in expected], abs=1e-6)


def assert_same_vectors(found: Any, expected: np.ndarray) -> None:
    """The same vectors, of length 1."""
    got = np.asarray(found)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, atol=1e-5)
