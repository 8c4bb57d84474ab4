"""POST /pooling over HTTP: our tasks' own processors, the pooler's own numbers, and models that cannot."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from serve_app.engine.fake_engine import fake_values
from tests.app.conftest import App
from tests.parity import images

RERANK = {"query": "fox", "documents": ["the quick fox", "a dog", ""], "top_n": 2}
PICTURES = [{"image": base64.b64encode(images.picture(seed)).decode()} for seed in range(2)]


def _bare(answer: Any) -> Any:
    return {key: value for key, value in answer.items() if key not in {"id", "created"}}


@pytest.mark.parametrize(
    ("model", "route", "data"),
    [
        ("ce", "/v1/rerank", RERANK),
        ("ce", "/v1/rerank", {**RERANK, "raw_scores": True, "return_documents": True}),
        ("fusion", "/v1/rerank", {"query": "a dog", "documents": PICTURES}),
        ("absa", "/v1/absa", {"inputs": ["The pasta was great, the waiter rude."]}),
    ],
)
async def test_data_is_answered_as_the_tasks_own_route(app: App, model: str, route: str, data: Any) -> None:
    response = await app.post("/pooling", {"model": model, "data": data}, X_Request_Id="r1")
    assert response.status_code == 200
    body = response.json()
    assert (body["request_id"], body["model"], body["model_version"]) == ("r1", model, "1")
    assert body["created_at"] > 0
    own = (await app.post(route, {"model": model, **data})).json()
    assert _bare(body["data"]) == _bare(own)
    assert "engine;dur" in response.headers["server-timing"]
    assert response.headers["x-model-version"] == "1"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({"model": "clf", "data": {"input": "a"}}, 400, "invalid_request", "data"),
        ({"model": "emb", "data": 1}, 400, "invalid_request", "data"),
        ({"model": "ce", "data": [1]}, 400, "invalid_request", "data"),
        ({"model": "ce", "data": {"query": "a"}}, 400, "invalid_request", "documents"),
        ({"model": "ce", "data": {**RERANK, "nope": 1}}, 400, "unknown_field", "nope"),
        ({"model": "ce", "data": {**RERANK, "documents": ["a"] * 51}}, 413, "payload_too_large", "data"),
        ({"model": "ce", "data": {**RERANK, "model": "emb"}}, 400, "invalid_request", "data"),
        ({"model": "fusion", "input": "a"}, 400, "invalid_request", "input"),
        ({"model": "ce", "input": "a", "task": "embed"}, 400, "invalid_request", "task"),
        ({"model": "clip", "input": "a", "task": "token_embed"}, 400, "invalid_request", "task"),
        ({"model": "nope", "input": "a"}, 404, "model_not_found", "model"),
        ({"input": "a"}, 400, "invalid_request", "model"),
    ],
)
async def test_what_a_model_cannot_do(app: App, body: Any, status: int, code: str, param: str) -> None:
    response = await app.post("/pooling", body)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)


def _ids(app: App, model: str, text: str) -> np.ndarray:
    tokenizer = app.backend.pipelines[f"{model}-1"].model.tokenizer
    ids = [*tokenizer.single.before, *tokenizer.encode([text])[0], *tokenizer.single.after]
    return np.array(ids, np.int32)


async def test_input_is_answered_by_the_poolers_numbers(app: App) -> None:
    raw = await app.post("/pooling", {"model": "clf", "input": ["fox", "dog"], "use_activation": False})
    values = [item["data"] for item in raw.json()["data"]]
    np.testing.assert_allclose(values, [fake_values(_ids(app, "clf", t), 3) for t in ("fox", "dog")], rtol=1e-6)
    softmax = (await app.post("/pooling", {"model": "clf", "input": ["fox"], "task": "classify"})).json()["data"]
    assert sum(softmax[0]["data"]) == pytest.approx(1, abs=1e-6)
    ids = [int(i) for i in _ids(app, "clf", "fox")]
    ready = (await app.post("/pooling", {"model": "clf", "input": ids, "use_activation": False})).json()["data"]
    assert ready[0]["data"] == values[0]


async def test_tokens_have_values_of_their_own(app: App) -> None:
    vectors = (await app.post("/pooling", {"model": "emb", "input": "the fox", "task": "token_embed"})).json()["data"]
    ids = _ids(app, "emb", "the fox")
    assert np.shape(vectors[0]["data"]) == (len(ids), 8)
    np.testing.assert_allclose(np.linalg.norm(vectors[0]["data"], axis=1), 1, atol=1e-6)
    labels = (await app.post("/pooling", {"model": "absa", "input": ["the fox", "a"]})).json()["data"]
    ids = _ids(app, "absa", "the fox")
    scheme = app.backend.pipelines["absa-1"].model.checkpoint
    assert np.shape(labels[0]["data"]) == (len(ids), len(scheme.labels))
    np.testing.assert_allclose(np.sum(labels[0]["data"], axis=1), 1, atol=1e-5)
    raw = (await app.post("/pooling", {"model": "absa", "input": "the fox", "use_activation": False})).json()["data"]
    width = app.engines["absa"].width
    np.testing.assert_allclose(raw[0]["data"][1], fake_values(ids[1:2], width)[: len(scheme.labels)], rtol=1e-6)


LONG = {"query": "fox", "documents": ["word " * 30, "fox"]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"truncate": False},
        {"truncate": "NONE"},
        {"truncate": True},
        {"truncate_prompt_tokens": 12},
        {"truncate_prompt_tokens": -1},
        {"truncate_prompt_tokens": 12, "truncate": False},
    ],
)
async def test_truncation_beside_data_is_truncation_in_it(app: App, fields: Any) -> None:
    for data in (LONG, {**LONG, "documents": ["word " * 500]}):
        beside = await app.post("/pooling", {"model": "ce", "data": data, **fields})
        inside = await app.post("/pooling", {"model": "ce", "data": {**data, **fields}})
        null = dict.fromkeys(fields)
        both = await app.post("/pooling", {"model": "ce", "data": {**data, **null}, **fields})
        assert beside.status_code == inside.status_code == both.status_code
        if inside.status_code == 200:
            assert _bare(beside.json()["data"]) == _bare(inside.json()["data"]) == _bare(both.json()["data"])
            assert beside.headers.get("x-truncated") == inside.headers.get("x-truncated")
        else:
            assert beside.json() == inside.json()
    refused = await app.post("/pooling", {"model": "ce", "data": {"query": "a", "documents": ["b " * 500]}, **fields})
    assert refused.status_code == (400 if fields.get("truncate") in (False, "NONE") else 200)


@pytest.mark.parametrize(
    ("fields", "data", "param"),
    [
        ({"truncate": False}, {"truncate": True}, "truncate"),
        ({"truncate": True}, {"truncate": "NONE"}, "truncate"),
        ({"truncate_prompt_tokens": 12}, {"truncate_prompt_tokens": 13}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -1}, {"truncate_prompt_tokens": 13}, "truncate_prompt_tokens"),
    ],
)
async def test_truncation_beside_data_that_contradicts_it(app: App, fields: Any, data: Any, param: str) -> None:
    response = await app.post("/pooling", {"model": "ce", "data": {**RERANK, **data}, **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert error["message"] == f"{param} and data.{param} contradict each other"
    agreed = {"truncate": "NONE", "truncate_prompt_tokens": 12}
    response = await app.post("/pooling", {"model": "ce", "data": {**RERANK, **agreed}, **agreed, "truncate": False})
    assert response.status_code == 200


async def test_truncation_that_the_tasks_route_does_not_have_is_refused(app: App) -> None:
    data = {"inputs": ["The pasta was great"]}
    assert (await app.post("/pooling", {"model": "absa", "data": data, "truncate": False})).status_code == 200
    response = await app.post("/pooling", {"model": "absa", "data": data, "truncate_prompt_tokens": 12})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unknown_field")
    response = await app.post("/pooling", {"model": "ce", "data": {**RERANK, "truncate": 1}, "truncate": True})
    assert response.json()["error"]["message"] == "truncate: must be true, false, 'NONE' or 'END'; got 1"


async def test_fields_of_data_without_effect_are_named(app: App) -> None:
    data = {**RERANK, "user": "u", "instruction": "rank by cats"}
    response = await app.post("/pooling", {"model": "ce", "data": data, "user": "u"})
    assert response.headers["x-ignored-fields"] == "data.instruction, data.user, user"


async def test_a_long_input_is_cut_and_says_so_or_is_refused(app: App) -> None:
    cut = (await app.post("/pooling", {"model": "clf", "input": ["a", "word " * 500]})).json()["data"]
    assert [item.get("truncated", False) for item in cut] == [False, True]
    refused = await app.post("/pooling", {"model": "clf", "input": ["word " * 500], "truncate": False})
    assert refused.json()["error"]["code"] == "context_length_exceeded"
