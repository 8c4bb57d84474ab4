"""Requests by hand, for what users of such servers reported."""

from __future__ import annotations

import base64

import httpx
import numpy as np

from tests.clients.plain import DOCUMENTS, EMBEDDER, QUERY, assert_same_ranking, post, ranking, vectors
from tests.cluster import Server


def test_nulls_are_unset(server: Server, rerank_model: str) -> None:
    body = {"model": rerank_model, "query": QUERY, "documents": DOCUMENTS, "top_n": 3, "max_tokens_per_doc": None}
    results = post(server, "/v2/rerank", body)["results"]
    assert_same_ranking([(r["index"], r["relevance_score"]) for r in results], ranking(server, rerank_model)[:3])


def test_documents_are_not_echoed_unasked(server: Server, rerank_model: str) -> None:
    documents = [f"{index} {'shoes and laces ' * 125}" for index in range(100)]
    body = {"model": rerank_model, "query": QUERY, "documents": documents, "max_tokens_per_doc": 8}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        response = server.post(path, {**body, "return_documents": False})
        assert len(response.json()["results"]) == 100
        assert len(response.content) < 10_000
    echoed = post(server, "/v1/rerank", {**body, "return_documents": True})["results"]
    assert [result["document"]["text"] for result in echoed] == [documents[result["index"]] for result in echoed]


def test_every_path_of_rerank(server: Server, rerank_model: str) -> None:
    expected = ranking(server, rerank_model)
    body = {"model": rerank_model, "query": QUERY, "documents": DOCUMENTS}
    for path in ("/rerank", "/v1/rerank", "/v2/rerank"):
        results = post(server, path, body)["results"]
        assert_same_ranking([(r["index"], r["relevance_score"]) for r in results], expected)
    for path in ("/score", "/v1/score"):
        data = post(server, path, {"model": rerank_model, "text_1": QUERY, "text_2": DOCUMENTS})["data"]
        scores = {item["index"]: item["score"] for item in data}
        assert_same_ranking([(index, scores[index]) for index, _ in expected], expected)


def test_one_path_serves_jina_and_tei(server: Server, rerank_model: str) -> None:
    body = {"model": rerank_model, "query": QUERY}
    jina = post(server, "/rerank", {**body, "documents": DOCUMENTS})
    tei = post(server, "/rerank", {**body, "texts": DOCUMENTS})
    assert isinstance(tei, list)
    assert [set(rank) for rank in tei] == [{"index", "score"}] * len(DOCUMENTS)
    found = [(rank["index"], rank["score"]) for rank in tei]
    assert_same_ranking(found, [(r["index"], r["relevance_score"]) for r in jina["results"]])


def test_tei_embed(server: Server) -> None:
    found = np.array(post(server, "/embed", {"inputs": DOCUMENTS}))
    np.testing.assert_allclose(found, vectors(server, DOCUMENTS), atol=1e-6)


def test_float16_halves_the_bytes(server: Server) -> None:
    body = {"model": EMBEDDER, "input": DOCUMENTS, "encoding_format": "base64"}
    full = [base64.b64decode(item["embedding"]) for item in post(server, "/v1/embeddings", body)["data"]]
    body["embed_dtype"] = "float16"
    half = [base64.b64decode(item["embedding"]) for item in post(server, "/v1/embeddings", body)["data"]]
    expected = vectors(server, DOCUMENTS)
    assert [2 * len(vector) for vector in half] == [len(vector) for vector in full] == [expected.shape[1] * 4] * 5
    np.testing.assert_allclose([np.frombuffer(vector, "<f4") for vector in full], expected, atol=1e-6)
    np.testing.assert_allclose([np.frombuffer(vector, "<f2") for vector in half], expected, atol=1e-3)


def test_one_base_url_for_all(server: Server, rerank_model: str) -> None:
    """Embeddings, rerank and the list of models; here ranking by hand with vectors equals the embedder's rerank."""
    with httpx.Client(base_url=f"{server.url}/v1", headers={"Authorization": "Bearer test"}) as client:
        assert {EMBEDDER, rerank_model} <= {model["id"] for model in client.get("/models").json()["data"]}
        embedded = client.post("/embeddings", json={"model": EMBEDDER, "input": [QUERY, *DOCUMENTS]}).json()["data"]
        body = {"model": rerank_model, "query": QUERY, "documents": DOCUMENTS}
        ranked = client.post("/rerank", json=body).json()["results"]
    assert_same_ranking([(r["index"], r["relevance_score"]) for r in ranked], ranking(server, rerank_model))
    if rerank_model == EMBEDDER:
        query, *documents = np.array([item["embedding"] for item in embedded])
        cosines = np.array(documents) @ query
        assert_same_ranking([(r["index"], float(cosines[r["index"]])) for r in ranked], ranking(server, EMBEDDER))
