"""Routing through the whole application: headers, pages, table changes, copies."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import ModelUnavailable
from serve_app.frontend import Frontend
from serve_app.pipeline import Pipeline
from serve_app.settings import GatewaySettings, RoutingSettings
from tests.app.conftest import App, LocalBackend
from tests.checkpoints import Checkpoints
from tests.parity import images
from tests.unit.models import text_model

BODY = {"model": "ce", "query": "fox", "documents": ["a", "quick fox", "the lazy dog"]}
Table = dict[str, Any]


def table(weights: dict[str, float], **model: Any) -> Table:
    versions = {v: {"application": f"ce-{v}", "task": "rerank", "weight": w} for v, w in weights.items()}
    return {"models": {"ce": {"versions": versions, **model}}}


def _take(app: App, content: Table) -> None:
    app.frontend.reconfigure(RoutingSettings.model_validate(content))


@pytest.fixture
async def versions(checkpoints: Checkpoints) -> AsyncIterator[App]:
    """Versions 1 and 2 of the reranker ce, with other scores; version 1 takes all traffic."""
    backend, engines = LocalBackend(), {}
    with ThreadPoolExecutor(1) as executor:
        for version in ("1", "2"):
            engine = {"kind": "fake", "fake": {"salt": int(version)}}
            model = text_model(checkpoints.bert(1), "rerank", name="ce", version=version, engine=engine)
            engines[version] = FakeEngine(model.settings)
            backend.pipelines[f"ce-{version}"] = Pipeline(model, engines[version], executor)
        frontend = Frontend(GatewaySettings(), backend)
        frontend.reconfigure(RoutingSettings.model_validate(table({"1": 1, "2": 0})))
        transport = httpx.ASGITransport(frontend.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            await client.get("/ready")
            backend.calls.clear()
            yield App(client, frontend, backend, engines, images.DecodingLoader())
            await frontend.close()


async def _copies_done(app: App) -> None:
    while app.frontend._shadows.in_flight:
        await asyncio.sleep(0.001)


async def test_answers_say_who_served_them_and_why(versions: App) -> None:
    async def routed(model: str | None, **headers: str) -> tuple[str, str]:
        response = await versions.post("/v1/rerank", {**BODY, "model": model}, **headers)
        assert response.json()["model_version"] == response.headers["x-model-version"]
        return response.headers["x-model-version"], response.headers["x-routing"]

    assert await routed("ce") == ("1", "default")
    assert await routed(None) == ("1", "default")
    assert await routed("ce@2") == ("2", "pinned")
    assert await routed("ce@latest") == ("2", "latest")
    _take(versions, table({"1": 1, "2": 1}, sticky={}, latest="1"))
    assert (await routed("ce"))[1] == "weighted"
    assert (await routed("ce", X_Sticky_Key="a"))[1] == "sticky"
    assert await routed("ce@latest") == ("1", "latest")


async def test_a_canary_of_ten_per_cent(versions: App) -> None:
    _take(versions, table({"1": 90, "2": 10}))
    counts = Counter([(await versions.post("/v1/rerank", BODY)).headers["x-model-version"] for _ in range(600)])
    assert 30 <= counts["2"] <= 95


async def test_a_key_stays_with_its_version(versions: App) -> None:
    _take(versions, table({"1": 1, "2": 1}, sticky={"field": "user"}))
    seen = set()
    for user in (f"user-{i}" for i in range(30)):
        answers = [await versions.post("/v1/rerank", {**BODY, "user": user}) for _ in range(5)]
        answers.append(await versions.post("/v1/rerank", BODY, X_Sticky_Key=user))
        assert len({answer.headers["x-model-version"] for answer in answers}) == 1
        assert "x-ignored-fields" not in answers[0].headers  # it has an effect here
        seen.add(answers[0].headers["x-model-version"])
    assert seen == {"1", "2"}
    bad = await versions.post("/v1/rerank", {**BODY, "user": 5})
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "user")


async def test_a_copy_is_compared_and_its_answer_dropped(versions: App) -> None:
    plain = (await versions.post("/v1/rerank", BODY)).json()["results"]
    _take(versions, table({"1": 1, "2": 0}, shadow={"version": "2"}))
    response = await versions.post("/v1/rerank", BODY)
    assert response.headers["x-routing"] == "default; shadow=2"
    assert response.headers["x-model-version"] == "1"
    assert response.json()["results"] == plain
    await _copies_done(versions)
    other = {r["index"]: r["relevance_score"] for r in
             (await versions.post("/v1/rerank", {**BODY, "model": "ce@2"})).json()["results"]}  # fmt: skip
    gaps = [abs(r["relevance_score"] - other[r["index"]]) for r in plain]
    (row,) = (await versions.client.get("/v1/routing")).json()["shadows"]
    assert row["max_abs"] == pytest.approx(max(gaps), abs=1e-6)
    assert row["mean_abs"] == pytest.approx(sum(gaps) / 3, abs=1e-6)
    assert (row["compared"], row["tops"]) == (1, 1)


async def test_a_stuck_or_failing_shadow_is_nothing_to_the_caller(versions: App) -> None:
    _take(versions, table({"1": 1, "2": 0}, shadow={"version": "2", "max_in_flight": 2}))
    await versions.client.get("/ready")  # the canary of the new table
    versions.engines["2"].delay_s = 3_600
    routed = Counter([(await versions.post("/v1/rerank", BODY)).headers["x-routing"] for _ in range(10)])
    assert routed == {"default; shadow=2": 2, "default": 8}
    await versions.frontend.close()
    load = versions.engines["2"].load()
    assert (load.sequences, load.unfinished) == (0, 0)
    del versions.backend.pipelines["ce-2"]
    for _ in range(5):
        assert (await versions.post("/v1/rerank", BODY)).status_code == 200
        await _copies_done(versions)
    (row,) = (await versions.client.get("/v1/routing")).json()["shadows"]
    assert (row["dropped"], row["cancelled"], row["failed"]) == (8, 2, 5)


async def test_what_failed_is_not_copied(versions: App) -> None:
    _take(versions, table({"1": 1, "2": 0}, shadow={"version": "2"}))
    versions.backend.failures.append(ModelUnavailable("gone"))
    response = await versions.post("/v1/rerank", BODY)
    assert (response.status_code, response.headers["x-routing"]) == (503, "default")
    assert len(versions.backend.calls) == 1


async def test_a_wrong_table_is_refused_and_the_old_one_kept(versions: App) -> None:
    before = (await versions.client.get("/v1/models")).json()
    versions.frontend.refuse("models.ce.versions: at least one needs a weight above 0")
    after = (await versions.client.get("/v1/models")).json()
    assert (after["table"], after["data"]) == (before["table"], before["data"])
    assert before["refused"] is None
    assert "at least one" in after["refused"]
    assert (await versions.post("/v1/rerank", BODY)).status_code == 200
    _take(versions, table({"1": 0, "2": 1}))
    last = (await versions.client.get("/v1/models")).json()
    assert last["refused"] is None
    assert last["table"] != before["table"]
    with pytest.raises(ValueError, match="the routing table is wrong: x"):
        Frontend(GatewaySettings(), versions.backend).refuse("x")


async def test_the_models_page_shows_the_table_and_who_was_asked(versions: App) -> None:
    _take(versions, table({"1": 3, "2": 1}, sticky={}, shadow={"version": "2", "share": 0.5}))
    await versions.client.get("/ready")
    await versions.post("/v1/rerank", {**BODY, "model": "ce@1"})
    await versions.post("/v1/rerank", {**BODY, "model": "ce@2"}, X_Probe="1")
    page = (await versions.client.get("/v1/models")).json()
    rows = {row["version"]: row for row in page["data"]}
    assert {v: (row["share"], row["latest"], row["state"]) for v, row in rows.items()} == {
        "1": (0.75, False, "ready"),
        "2": (0.25, True, "ready"),
    }
    assert rows["1"]["sticky"]["header"] == "X-Sticky-Key"
    assert rows["1"]["shadow"]["share"] == 0.5
    assert rows["1"]["last_asked"] >= page["since"]
    assert rows["2"]["last_asked"] is None


async def test_stages_of_two_versions_make_no_answer(versions: App) -> None:
    from dataclasses import replace

    engine = versions.engines["1"]
    run = engine.run

    async def other_version(*arguments: Any) -> Any:
        return replace(await run(*arguments), version="2")

    engine.run = other_version  # type: ignore[method-assign]
    response = await versions.post("/v1/rerank", BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "model_unavailable")
