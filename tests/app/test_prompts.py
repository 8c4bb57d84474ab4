"""Prompts and instructions over HTTP: whatever a model does not have, the answer says so."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from serve_app.pipeline import Pipeline
from tests.app.conftest import App
from tests.checkpoints import Checkpoints
from tests.parity import images
from tests.unit.models import text_model

RERANK = {"query": "fox", "documents": ["the quick fox", "a dog"]}
QUERY_ONLY = {"query": "Instruct: find\nQuery:"}


def _serve(app: App, name: str, model: Any) -> None:
    """Puts `model` in the place of the app's own of that name."""
    app.backend.pipelines[f"{name}-1"] = Pipeline(model, app.engines[name], ThreadPoolExecutor(1))


@pytest.mark.parametrize("route", ["/v1/rerank", "/v1/score"])
@pytest.mark.parametrize("model", ["ce", "emb", "clip"])
async def test_an_instruction_without_effect_is_named(app: App, model: str, route: str) -> None:
    body = RERANK if route == "/v1/rerank" else {"queries": RERANK["query"], "documents": RERANK["documents"]}
    key = "results" if route == "/v1/rerank" else "data"
    without = await app.post(route, {"model": model, **body})
    assert "x-ignored-fields" not in without.headers
    for sent in (
        {"instruction": "rank by cats"},
        {"chat_template_kwargs": {"instruction": "rank by cats"}},
        {"instruction": "rank by cats", "chat_template_kwargs": {"instruction": "rank by cats"}, "user": "u"},
    ):
        response = await app.post(route, {"model": model, **body, **sent})
        assert response.headers["x-ignored-fields"] == ", ".join(sorted(sent))
        assert response.json()[key] == without.json()[key]


async def test_an_instruction_for_a_model_that_ranks_images_is_named(app: App) -> None:
    picture = {"image": base64.b64encode(images.picture(0)).decode()}
    body = {"model": "fusion", "query": "a dog", "documents": [picture], "instruction": "rank by cats"}
    assert (await app.post("/v1/rerank", body)).headers["x-ignored-fields"] == "instruction"


async def test_an_instruction_with_effect_is_not_named(app: App, checkpoints: Checkpoints) -> None:
    model = text_model(checkpoints.qwen3(), "rerank", name="ce", max_model_len=512, template="qwen3-reranker")
    _serve(app, "ce", model)
    response = await app.post("/v1/rerank", {"model": "ce", **RERANK, "instruction": "rank by cats"})
    assert response.status_code == 200
    assert "x-ignored-fields" not in response.headers


@pytest.mark.parametrize(
    "asked",
    [
        {"input_type": "document"},
        {"input_type": "search_document"},
        {"input_type": "passage"},
        {"task": "retrieval.passage"},
        {"prompt_name": "document"},
        {"prompt_name": "passage"},
    ],
)
async def test_a_model_with_a_querys_prompt_only_takes_documents(
    app: App, checkpoints: Checkpoints, asked: dict[str, str]
) -> None:
    _serve(app, "emb", text_model(checkpoints.bert(0), "embed", name="emb", prompts=QUERY_ONLY))
    plain = (await app.post("/v1/embeddings", {"model": "emb", "input": "a"})).json()["data"]
    response = await app.post("/v1/embeddings", {"model": "emb", "input": "a", **asked})
    assert response.status_code == 200, response.text
    assert response.json()["data"] == plain
    query = await app.post("/v1/embeddings", {"model": "emb", "input": "a", "input_type": "search_query"})
    assert query.json()["data"] != plain


@pytest.mark.parametrize(
    ("route", "field", "word"),
    [
        ("/v1/embeddings", "input_type", "classification"),
        ("/v1/embeddings", "task", "text-matching"),
        ("/v1/embeddings", "prompt_name", "search_query"),
        ("/embed", "prompt_name", "nope"),
    ],
)
async def test_an_unknown_prompt_is_refused_in_the_callers_words(app: App, route: str, field: str, word: str) -> None:
    body = {"inputs" if route == "/embed" else "input": "a", "model": "emb", field: word}
    response = await app.post(route, body)
    error = response.json()["error"]
    message = error["message"] if isinstance(error, dict) else error
    assert response.status_code == 400
    assert message == f"{field}: this model has no prompt '{word}'; it has: none"
    if isinstance(error, dict):
        assert error["param"] == field
