"""Aspect-based sentiment over HTTP, with the fake engine."""

from __future__ import annotations

import unicodedata

import pytest

from tests.absa_cases import absa_cases
from tests.app.conftest import App


async def test_texts_of_every_kind_are_answered_in_the_callers_own_code_points(app: App) -> None:
    inputs = absa_cases()[:50]
    found = 0
    response = await app.post("/v1/absa", {"inputs": inputs})
    assert response.status_code == 200
    body = response.json()
    assert (body["model"], body["model_version"], body["errors"]) == ("absa", "1", [])
    assert [item["index"] for item in body["data"]] == list(range(50))
    for text, item in zip(inputs, body["data"], strict=True):
        assert set(item["sentiment"]) == {"label", "score"}
        for span in item["spans"]:
            assert text[span["start"] : span["end"]] == span["text"] != ""
            assert 0 < span["score"] <= 1
            found += 1
    assert found > 50
    assert body["usage"]["prompt_tokens"] > 100
    assert "post;dur" in response.headers["server-timing"]


@pytest.mark.parametrize(
    "text", ["Hi", "", " ", "좋아요", "😀", "e\u0301", unicodedata.normalize("NFD", "각"), "\u0000", "[SEP]"]
)
async def test_very_short_texts_are_no_error(app: App, text: str) -> None:
    response = await app.post("/v1/absa", {"model": "absa@1", "inputs": [text]})
    assert response.status_code == 200
    (item,) = response.json()["data"]
    assert "truncated" not in item
    if not text.strip():
        assert item["spans"] == []


async def test_five_thousand_words_are_read_to_their_end(app: App) -> None:
    text = absa_cases()[-1]
    response = await app.post("/v1/absa", {"inputs": text, "threshold": 0})
    assert response.status_code == 200
    (item,) = response.json()["data"]
    assert item["truncated"] is True or item["spans"][-1]["end"] > len(text) - 60
    assert (response.headers.get("x-truncated") == "0") == ("truncated" in item)
    refused = await app.post("/v1/absa", {"inputs": ["a", "fox " * 40_000], "truncate": False})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "inputs[1]")
    assert refused.json()["error"]["code"] == "context_length_exceeded"


async def test_aspects_and_threshold(app: App) -> None:
    text = "The food was good 음식이 좋아요 " * 5
    everything = (await app.post("/v1/absa", {"inputs": text})).json()["data"][0]["spans"]
    food = (await app.post("/v1/absa", {"inputs": text, "aspects": ["food"]})).json()["data"][0]["spans"]
    assert food == [span for span in everything if span["aspect"] == "food"]
    assert (await app.post("/v1/absa", {"inputs": text, "threshold": 1})).json()["data"][0]["spans"] == []
    unknown = await app.post("/v1/absa", {"inputs": text, "aspects": ["food", "parking"]})
    assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "aspects[1]")
    assert "food, 음식#맛" in unknown.json()["error"]["message"]


async def test_other_models_and_other_routes_refuse(app: App) -> None:
    for path, body in (
        ("/v1/absa", {"model": "clf", "inputs": ["a"]}),
        ("/v1/classify", {"model": "absa", "input": ["a"]}),
        ("/v1/rerank", {"model": "absa", "query": "a", "documents": ["b"]}),
    ):
        response = await app.post(path, body)
        assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
    many = await app.post("/v1/absa", {"inputs": ["a"] * 51})
    assert many.status_code == 413
