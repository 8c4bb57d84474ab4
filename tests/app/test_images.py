"""Image documents through the whole application with fake engines and a loader without a network."""

from __future__ import annotations

import base64
import math

import pytest

from tests.app.conftest import App
from tests.parity.images import picture

URLS = [f"http://host/{i}.png" for i in range(6)]


@pytest.fixture(autouse=True)
def reachable(app: App) -> None:
    app.loader.urls = {url: picture(i) for i, url in enumerate(URLS)}


def documents(*urls: str) -> list[dict[str, str]]:
    return [{"image": url} for url in urls]


@pytest.mark.parametrize("model", ["clip", "siglip", "fusion"])
async def test_images_are_ranked_and_the_stages_say_so(app: App, model: str) -> None:
    body = {"model": model, "query": "a red circle", "documents": documents(*URLS)}
    cold = await app.post("/v1/rerank", body)
    assert cold.status_code == 200, cold.text
    assert sorted(result["index"] for result in cold.json()["results"]) == list(range(6))
    assert "errors" not in cold.json()
    stages = [part.split(";")[0] for part in cold.headers["server-timing"].split(", ")]
    assert stages == ["fetch", "decode", "tokenize", "queue", "engine", "post", "total"]
    warm = await app.post("/v1/rerank", body)
    assert warm.json()["results"] == cold.json()["results"]
    assert "fetch" not in warm.headers["server-timing"]  # nothing was loaded


async def test_a_data_url_base64_and_a_url_are_the_same_image(app: App) -> None:
    before = app.engines["fusion"].images_encoded
    encoded = base64.b64encode(picture(1)).decode()
    part = {"type": "image_url", "image_url": {"url": URLS[1]}}
    same = documents(URLS[1], f"data:image/png;base64,{encoded}", encoded)
    same += [{"image_url": {"url": URLS[1]}}, {"content": [part]}]
    response = await app.post("/v1/rerank", {"model": "fusion", "query": "red", "documents": same})
    assert response.status_code == 200, response.text
    assert len({result["relevance_score"] for result in response.json()["results"]}) == 1
    assert app.engines["fusion"].images_encoded == before + 1


async def test_one_bad_image_costs_only_itself(app: App) -> None:
    body = {"model": "fusion", "query": "red", "documents": documents(URLS[0], "http://host/dead", URLS[1]), "top_n": 2}
    answer = (await app.post("/v1/rerank", body)).json()
    assert sorted(result["index"] for result in answer["results"]) == [0, 2]
    (error,) = answer["errors"]
    assert (error["index"], error["code"]) == (1, "media_unreachable")
    assert "documents[1]" in error["message"]
    alone = (await app.post("/v1/rerank", {**body, "documents": documents(URLS[0], URLS[1])})).json()["results"]
    assert [r["relevance_score"] for r in alone] == [r["relevance_score"] for r in answer["results"]]


CUT = base64.b64encode(picture(0)).decode()[:-7]
NO_IMAGES = {CUT: "got neither", "@@@@": "got neither", "data:text/html;base64,QUJD": "text/html", "": "empty"}


@pytest.mark.parametrize("model", ["clip", "fusion"])
async def test_what_is_no_image_costs_only_itself(app: App, model: str) -> None:
    good, bad = documents(URLS[0], URLS[1]), documents(*NO_IMAGES)
    body = {"model": model, "query": "red", "documents": [good[0], *bad, good[1]]}
    before = app.loader.loaded
    response = await app.post("/v1/rerank", body)
    assert response.status_code == 200, response.text
    assert sorted(result["index"] for result in response.json()["results"]) == [0, 5]
    errors = response.json()["errors"]
    assert [(error["index"], error["code"]) for error in errors] == [(i, "media_undecodable") for i in range(1, 5)]
    for error, complaint in zip(errors, NO_IMAGES.values(), strict=True):
        assert error["message"].startswith(f"documents[{error['index']}].image: ")
        assert complaint in error["message"]
    assert app.loader.loaded == before + 2
    again = (await app.post("/v1/rerank", body)).json()
    assert (again["results"], again["errors"]) == (response.json()["results"], errors)
    data = {key: value for key, value in body.items() if key != "model"}
    if model == "fusion":
        assert (await app.post("/pooling", {"model": model, "data": data})).json()["data"]["errors"] == errors

    none = await app.post("/v1/rerank", {**body, "documents": bad})
    assert (none.status_code, none.json()["error"]["code"]) == (422, "media_undecodable")
    assert none.json()["error"]["param"] == "documents[0].image"
    wrong = await app.post("/v1/rerank", {**body, "documents": [*good, {"image": 5}]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "documents[2].image")


async def test_of_inputs_and_pairs_too(app: App) -> None:
    body = {"model": "clip", "input": ["red", {"image": "@@@@"}, {"image": URLS[0]}]}
    answer = (await app.post("/v1/embeddings", body)).json()
    assert [item["embedding"] is None for item in answer["data"]] == [False, True, False]
    assert [(error["index"], error["code"]) for error in answer["errors"]] == [(1, "media_undecodable")]
    body = {"model": "clip", "text_1": "red", "text_2": [{"image_url": {"url": ""}}, "text"]}
    answer = (await app.post("/v1/score", body)).json()
    assert [row["index"] for row in answer["data"]] == [1]
    assert answer["errors"][0]["message"] == "text_2[0].image_url.url: must not be empty"


async def test_a_query_that_is_no_image_refuses_the_request(app: App) -> None:
    body = {"model": "clip", "query": {"image": "@@@@"}, "documents": documents(URLS[0])}
    response = await app.post("/v1/rerank", body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "query.image")
    body = {"model": "clip", "text_1": ["a", {"image": ""}], "text_2": ["b", "c"]}
    response = await app.post("/v1/score", body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "text_1[1].image")


async def test_only_when_none_is_left_the_answer_is_an_error(app: App) -> None:
    body = {"model": "clip", "query": "red", "documents": documents("http://host/dead", "http://host/gone")}
    response = await app.post("/v1/rerank", body)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "media_unreachable")
    assert response.json()["error"]["param"].startswith("documents[0]")
    query = await app.post("/v1/rerank", {**body, "query": {"image": "http://host/dead"}, "documents": ["a"]})
    assert (query.status_code, query.json()["error"]["param"]) == (422, "query.image")


async def test_embeddings_of_texts_and_images_keep_their_places(app: App) -> None:
    body = {"model": "clip", "input": ["red", {"image": URLS[0]}, {"image": "http://host/dead"}, {"text": "blue"}]}
    answer = (await app.post("/v1/embeddings", body)).json()
    assert [item["index"] for item in answer["data"]] == [0, 1, 2, 3]
    assert [item["embedding"] is None for item in answer["data"]] == [False, False, True, False]
    assert math.hypot(*answer["data"][1]["embedding"]) == pytest.approx(1, abs=1e-4)
    assert answer["errors"][0]["index"] == 2


async def test_score_leaves_failed_pairs_out(app: App) -> None:
    body = {"model": "clip", "text_1": "red", "text_2": [{"image": URLS[0]}, {"image": "http://host/dead"}, "text"]}
    answer = (await app.post("/v1/score", body)).json()
    assert [row["index"] for row in answer["data"]] == [0, 2]
    assert answer["errors"][0]["index"] == 1


@pytest.mark.parametrize("model", ["ce", "emb"])
async def test_a_text_model_says_that_it_takes_no_images(app: App, model: str) -> None:
    response = await app.post("/v1/rerank", {"model": model, "query": "red", "documents": ["a", {"image": URLS[0]}]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "documents[1].image")
    assert "reads text only" in response.json()["error"]["message"]


@pytest.mark.parametrize("app", [{"max_images": 4}], indirect=True)
async def test_more_images_than_allowed(app: App) -> None:
    response = await app.post("/v1/rerank", {"model": "clip", "query": "red", "documents": documents(*URLS)})
    assert response.status_code == 413
    assert "4" in response.json()["error"]["message"]


async def test_the_default_reranker_is_not_an_image_model(app: App) -> None:
    assert (await app.post("/v1/rerank", {"query": "red", "documents": ["a"]})).json()["model"] == "ce"
    listed = (await app.client.get("/v1/models")).json()["data"]
    assert {model["id"]: model["task"] for model in listed}["fusion"] == "image_rank"
