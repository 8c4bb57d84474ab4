"""Rules of every operation, through the whole application with fake engines."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from serve_app import readiness
from serve_app.api.routes import ROUTES
from serve_app.errors import DeadlineExceeded, EngineDead, Overloaded, ReplicaDied
from serve_app.routing import Target
from tests.app.conftest import App, large_vectors

RERANK = {"model": "ce", "query": "fox", "documents": ["a", "quick fox", "the lazy dog"]}


async def test_every_answer_names_its_version_its_id_and_its_stages(app: App) -> None:
    response = await app.post("/v1/rerank", RERANK, X_Request_Id="my-id")
    assert response.status_code == 200
    assert response.headers["x-request-id"] == "my-id"
    assert response.headers["x-model-version"] == "1"
    stages = [part.split(";")[0] for part in response.headers["server-timing"].split(", ")]
    assert stages == ["tokenize", "queue", "engine", "post", "total"]
    body = response.json()
    assert (body["model"], body["model_version"]) == ("ce", "1")


async def test_results_are_sorted_and_top_n_cuts(app: App) -> None:
    everything = (await app.post("/v1/rerank", RERANK)).json()["results"]
    scores = [result["relevance_score"] for result in everything]
    assert scores == sorted(scores, reverse=True)
    assert sorted(result["index"] for result in everything) == [0, 1, 2]
    for top_n, count in ((1, 1), (99, 3), (None, 3)):
        results = (await app.post("/v1/rerank", {**RERANK, "top_n": top_n})).json()["results"]
        assert results == everything[:count]
    for top_n in (0, -1):
        response = await app.post("/v1/rerank", {**RERANK, "top_n": top_n})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "top_n")


async def test_raw_scores_are_the_logits_of_the_activated_ones(app: App) -> None:
    import math

    raw = (await app.post("/v1/rerank", {**RERANK, "raw_scores": True})).json()["results"]
    activated = (await app.post("/v1/rerank", RERANK)).json()["results"]
    for a, b in zip(raw, activated, strict=True):
        assert b["relevance_score"] == pytest.approx(1 / (1 + math.exp(-a["relevance_score"])), abs=1e-6)


async def test_the_same_pair_scores_the_same_on_every_route(app: App) -> None:
    rerank = {r["index"]: r["relevance_score"] for r in (await app.post("/v2/rerank", RERANK)).json()["results"]}
    score = await app.post("/v1/score", {"model": "ce", "text_1": "fox", "text_2": RERANK["documents"]})
    tei = await app.post("/rerank", {"model": "ce", "query": "fox", "texts": RERANK["documents"]})
    assert [row["score"] for row in score.json()["data"]] == pytest.approx(list(dict(sorted(rerank.items())).values()))
    assert {row["index"]: row["score"] for row in tei.json()} == pytest.approx(rerank)


@pytest.mark.parametrize("name", ["nope", "ce@77", "", "@"])
async def test_an_unknown_model_is_404_and_lists_what_exists(app: App, name: str) -> None:
    response = await app.post("/v1/rerank", {**RERANK, "model": name})
    assert response.status_code == 404
    assert "1" in response.json()["error"]["message"]


async def test_model_may_be_left_out_where_one_serves_the_operation(app: App) -> None:
    response = await app.post("/v1/classify", {"input": ["a fox"]})
    assert response.json()["model"] == "clf"
    # an embedder serves rerank as well, the reranker is made for it
    assert (await app.post("/v1/rerank", {"query": "a", "documents": ["b"]})).json()["model"] == "ce"


async def test_a_model_of_another_task_is_refused(app: App) -> None:
    response = await app.post("/v1/embeddings", {"model": "ce", "input": "a"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_every_route_refuses_nonsense_by_name_and_goes_on(app: App, route: object) -> None:
    path = route.path  # type: ignore[attr-defined]
    for body in ({"frobnicate": 1}, {}, {"input": 5, "query": 5, "documents": 5, "inputs": 5, "text_1": 5}):
        response = await app.post(path, body)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert error["code"] in {"invalid_request", "unknown_field"}
        assert len(response.content) < 2_000
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"a":"\\ud800"}'])
async def test_a_body_that_is_no_json_object_is_400(app: App, content: bytes) -> None:
    response = await app.client.post("/v1/rerank", content=content)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


async def test_limits_name_the_cap(app: App) -> None:
    many = await app.post("/v1/rerank", {**RERANK, "documents": ["a"] * 51})
    assert many.status_code == 413
    assert "50" in many.json()["error"]["message"]
    assert (await app.post("/v1/rerank", {**RERANK, "documents": ["a"] * 50})).status_code == 200
    large = await app.post("/v1/rerank", {**RERANK, "documents": ["x" * 2_000_000]})
    assert large.status_code == 413
    assert "1 MiB" in large.json()["error"]["message"]


async def test_long_documents_are_cut_and_say_so_or_are_refused(app: App) -> None:
    documents = ["fox", "word " * 2_000]
    cut = (await app.post("/v1/rerank", {**RERANK, "documents": documents})).json()
    assert {r["index"]: r.get("truncated", False) for r in cut["results"]} == {0: False, 1: True}
    for off in ({"truncate": False}, {"truncate": "NONE"}):
        refused = await app.post("/v1/rerank", {**RERANK, "documents": documents, **off})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "context_length_exceeded"
        assert refused.json()["error"]["param"] == "documents[1]"


async def test_strange_texts_are_scored_and_an_empty_query_is_refused(app: App) -> None:
    documents = ["", " ", "\u0000", "\ufeff", "😀", "e\u0301", "\u202e", "卫生间在哪里？"]
    results = (await app.post("/v1/rerank", {**RERANK, "documents": documents})).json()["results"]
    assert len(results) == len(documents)
    assert (await app.post("/v1/rerank", {**RERANK, "query": ""})).status_code == 400
    assert (await app.post("/v1/classify", {"model": "clf", "input": ["Hi", "좋아요", "😀"]})).status_code == 200


async def test_after_twenty_errors_of_each_kind_twenty_good_ones_pass(app: App) -> None:
    for _ in range(20):
        assert (await app.post("/v1/rerank", {**RERANK, "model": "nope"})).status_code == 404
        assert (await app.post("/v1/rerank", {"query": 1})).status_code == 400
        app.backend.failures.append(RuntimeError("boom"))
        assert (await app.post("/v1/rerank", RERANK)).status_code == 500
    for _ in range(20):
        assert (await app.post("/v1/rerank", RERANK)).status_code == 200


async def test_our_own_fault_says_nothing_of_our_insides(app: App) -> None:
    app.backend.failures.append(RuntimeError("secret /etc/path at 0xdeadbeef"))
    response = await app.post("/v1/rerank", RERANK)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert response.json()["error"]["code"] == "internal_error"


@pytest.mark.parametrize("error", [ReplicaDied("died"), EngineDead("died")])
async def test_a_dead_replica_is_tried_once_more_and_once_only(app: App, error: Exception) -> None:
    app.backend.failures += [error]
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200
    app.backend.calls.clear()
    app.backend.failures += [error, error]
    assert (await app.post("/v1/rerank", RERANK)).status_code == 503
    assert len(app.backend.calls) == 2


async def test_past_its_deadline_a_request_is_504_and_its_work_has_ended(app: App) -> None:
    app.engines["ce"].delay_s = 30
    response = await app.post("/v1/rerank", RERANK, X_Request_Timeout_Ms="100")
    assert (response.status_code, response.json()["error"]["code"]) == (504, "deadline_exceeded")
    load = app.engines["ce"].load()
    assert (load.sequences, load.unfinished, load.cancelled) == (0, 0, 1)


async def test_overload_is_429_all_or_nothing(app: App) -> None:
    app.engines["ce"].delay_s = 0.3
    body = {**RERANK, "documents": ["a"] * 25}
    responses = await asyncio.gather(*(app.post("/v1/rerank", body) for _ in range(10)))
    statuses = [response.status_code for response in responses]
    assert statuses.count(200) == 2  # 60 documents fit twice 25
    assert statuses.count(429) == 8
    for response in responses:
        if response.status_code == 429:
            assert int(response.headers["retry-after"]) >= 1
            assert response.json()["error"]["code"] == "overloaded"
        else:
            assert len(response.json()["results"]) == 25
    assert (await app.post("/v1/rerank", body)).status_code == 200


@pytest.mark.parametrize("app", [{"api_keys": ["k1", "k2"]}], indirect=True)
async def test_keys(app: App) -> None:
    assert (await app.post("/v1/rerank", RERANK)).status_code == 401
    assert (await app.post("/v1/rerank", RERANK, Authorization="Bearer nope")).status_code == 401
    assert (await app.post("/v1/rerank", RERANK, Authorization="Bearer k2")).status_code == 200


@pytest.mark.parametrize("app", [{"api_keys": ["k1", "k2"]}], indirect=True)
async def test_what_tells_of_the_operators_models_asks_for_a_key(app: App) -> None:
    for path in ("/v1/models", "/v1/routing", "/version"):
        for headers in ({}, {"Authorization": "Bearer nope"}):
            refused = await app.client.get(path, headers={**headers, "X-Request-Id": "my-id"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
            assert (refused.headers["www-authenticate"], refused.headers["x-request-id"]) == ("Bearer", "my-id")
            assert "ce" not in refused.json()
        assert (await app.client.get(path, headers={"Authorization": "Bearer k2"})).status_code == 200
    for path in ("/health", "/ready", "/metrics", "/docs", "/openapi.json"):  # probes, and what is no operator's
        assert (await app.client.get(path)).status_code == 200


async def test_pages(app: App) -> None:
    assert (await app.client.get("/health")).json() == {"status": "ok"}
    ready = await app.client.get("/ready")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    models = (await app.client.get("/v1/models")).json()["data"]
    assert {(m["id"], m["version"], m["task"], m["state"]) for m in models} == {
        ("ce", "1", "rerank", "ready"),
        ("emb", "1", "embed", "ready"),
        ("clf", "1", "classify", "ready"),
        ("clip", "1", "embed", "ready"),
        ("siglip", "1", "embed", "ready"),
        ("absa", "1", "absa", "ready"),
        ("fusion", "1", "image_rank", "ready"),
    }
    spec = (await app.client.get("/openapi.json")).json()
    assert {route.path for route in ROUTES} <= set(spec["paths"])
    docs = (await app.client.get("/docs")).text
    assert "/v1/rerank" in docs
    assert 'src="http' not in docs
    assert 'href="http' not in docs
    assert (await app.client.get("/version")).json()["poolserve"]
    missing = await app.client.get("/nope")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (await app.client.get("/v1/rerank")).status_code == 405


async def test_readiness_notices_a_dead_engine(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    app.engines["clf"].dead = True
    ready = await app.client.get("/ready")
    assert ready.status_code == 503
    states = {m["model"]: m["state"] for m in ready.json()["models"]}
    assert states.pop("clf") == "not ready"
    assert set(states.values()) == {"ready"}


async def test_a_version_that_answers_is_ready_though_its_canary_is_refused(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else load balancers take a service out because it is busy."""
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)

    async def refuse(target: Target, deadline: float) -> None:
        raise Overloaded("no room now")

    monkeypatch.setattr(app.frontend.readiness, "_canary", refuse)
    states = {m["model"]: m["state"] for m in (await app.client.get("/ready")).json()["models"]}
    assert set(states.values()) == {"not ready"}
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200
    states = {m["model"]: m["state"] for m in (await app.client.get("/ready")).json()["models"]}
    assert {model for model, state in states.items() if state == "ready"} == {"ce"}
    monkeypatch.setattr(readiness, "RECENT_S", 0.0)  # as if that was long ago
    states = {m["model"]: m["state"] for m in (await app.client.get("/ready")).json()["models"]}
    assert set(states.values()) == {"not ready"}


async def test_a_version_that_answers_is_ready_though_its_canary_waits(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "FRESH_S", 0.0)
    monkeypatch.setattr(readiness, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(readiness, "RECENT_S", 0.0)
    cancelled = []

    async def wait(target: Target, deadline: float) -> None:
        try:
            await asyncio.sleep(1.0)
        except asyncio.CancelledError:
            cancelled.append(target.model)
            raise
        raise DeadlineExceeded("too late")

    monkeypatch.setattr(app.frontend.readiness, "_canary", wait)
    assert (await app.post("/v1/rerank", RERANK)).status_code == 200  # before the canary: no help
    asking = asyncio.ensure_future(app.client.get("/ready"))
    await asyncio.sleep(0.1)
    assert (await app.post("/v1/classify", {"model": "clf", "input": ["fine"]})).status_code == 200
    states = {m["model"]: m["state"] for m in (await asking).json()["models"]}
    assert {model for model, state in states.items() if state == "ready"} == {"clf"}
    assert cancelled == ["clf"]


async def test_null_means_unset(app: App) -> None:
    body = {**RERANK, "top_n": None, "max_tokens_per_doc": None, "return_documents": None, "truncate": None}
    assert (await app.post("/v2/rerank", body)).status_code == 200


async def test_documents_come_back_only_if_asked_for(app: App) -> None:
    documents = [{"text": "x" * 2_000}] * 40
    silent = await app.post("/v1/rerank", {**RERANK, "documents": documents, "return_documents": False})
    assert len(silent.content) < 10_000
    echo = (await app.post("/v1/rerank", {**RERANK, "documents": ["raw text"], "return_documents": True})).json()
    assert echo["results"][0]["document"]["text"] == "raw text"


async def test_a_client_that_leaves_cancels_its_work(app: App) -> None:
    app.engines["ce"].delay_s = 30
    task = asyncio.ensure_future(app.post("/v1/rerank", RERANK))
    await asyncio.sleep(0.2)
    assert app.engines["ce"].load().sequences == 3
    task.cancel()
    with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
        await task
    await asyncio.sleep(0.05)
    load = app.engines["ce"].load()
    assert (load.sequences, load.unfinished, load.cancelled) == (0, 0, 1)


async def test_vectors_that_do_not_fit_float16_are_refused(app: App) -> None:
    large_vectors(app)
    body = {"model": "emb", "input": ["a", "b"], "normalize": False, "encoding_format": "base64"}
    refused = await app.post("/v1/embeddings", {**body, "embed_dtype": "float16"})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "embed_dtype")
    assert error["message"] == "embed_dtype: 100000 does not fit float16; ask for float32, or normalize"
    for passes in ({}, {"embed_dtype": "float16", "normalize": True}):
        assert (await app.post("/v1/embeddings", {**body, **passes})).status_code == 200
