from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from serve_app.api.openapi import docs_page, openapi
from serve_app.api.routes import ROUTES, answers_tei
from serve_app.messages import (
    AbsaItem,
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    DataRequest,
    DataResult,
    EmbedRequest,
    EmbedResult,
    ItemError,
    ScoreResult,
    Span,
)
from serve_app.vocabulary import MediaErrorCode, Operation

BODY_CLASSES = list(dict.fromkeys(body for route in ROUTES for body in route.bodies))

SPEC = openapi("1.2.3")
PAGE = docs_page(SPEC)

PATHS = {
    "/v1/rerank": Operation.RERANK,
    "/rerank": Operation.RERANK,
    "/v2/rerank": Operation.RERANK,
    "/v1/score": Operation.SCORE,
    "/score": Operation.SCORE,
    "/v1/embeddings": Operation.EMBED,
    "/embed": Operation.EMBED,
    "/v1/classify": Operation.CLASSIFY,
    "/classify": Operation.CLASSIFY,
    "/predict": Operation.CLASSIFY,
    "/v1/absa": Operation.ABSA,
    "/pooling": Operation.POOLING,
}


def test_every_route_of_the_contract_is_there():
    assert {route.path: route.operation for route in ROUTES} == PATHS
    assert {route.path for route in ROUTES if route.tei} == {"/embed", "/predict"}


@pytest.mark.parametrize(
    ("path", "body", "tei"),
    [
        ("/rerank", {"texts": ["a"]}, True),
        ("/rerank", {"documents": ["a"]}, False),
        ("/rerank", None, False),
        ("/v1/rerank", {"texts": ["a"]}, False),
        ("/embed", None, True),
    ],
)
def test_which_answers_are_in_the_tei_shape(path, body, tei):
    route = next(route for route in ROUTES if route.path == path)
    assert answers_tei(route, body) is tei


@pytest.mark.parametrize("route", [route for route in ROUTES if route.image_example], ids=lambda route: route.path)
def test_the_documented_image_example_gives_an_answer_of_the_documented_shape(wire, route):
    call = wire.call(route.adapter, route.image_example)
    served = replace(wire.served(), errors=[ItemError(1, MediaErrorCode.UNREACHABLE, "gone")])
    if isinstance(call.request, EmbedRequest):
        result = EmbedResult(np.array([[0.6, 0.8], [np.nan, np.nan]], np.float32), served)
    elif isinstance(call.request, DataRequest):
        result = DataResult(json.dumps(route.image_answer["data"]).encode(), served)
    else:
        result = ScoreResult(np.array([0.97, np.nan], np.float32), served)
    assert outline(wire.answer(call, result)) == outline(route.image_answer)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_the_documented_example_gives_an_answer_of_the_documented_shape(wire, route):
    call = wire.call(route.adapter, route.example)
    served = wire.served()
    if isinstance(call.request, EmbedRequest):
        result = EmbedResult(np.array([[0.6, 0.8]], np.float32), served)
    elif isinstance(call.request, ClassifyRequest):
        result = ClassifyResult(np.array([[0.01, 0.99]], np.float32), ("negative", "positive"), served)
    elif isinstance(call.request, AbsaRequest):
        spans = [Span(4, 9, "pasta", "food", "positive", 0.98), Span(25, 31, "waiter", "service", "negative", 0.97)]
        result = AbsaResult([AbsaItem(("neutral", 0.71), spans)], served)
        for span in route.answer["data"][0]["spans"]:
            assert call.request.inputs[0][span["start"] : span["end"]] == span["text"]
    elif isinstance(call.request, DataRequest):
        result = DataResult(json.dumps(route.answer["data"]).encode(), served)
    else:
        result = ScoreResult(np.array([0.03, 0.97], np.float32), served)
    assert outline(wire.answer(call, result)) == outline(route.answer)


def outline(value):
    """Keys and kinds of an answer, and its order, without the values."""
    if isinstance(value, dict):
        return {key: outline(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [outline(inner) for inner in value]
    return type(value).__name__


def test_the_description_is_json_and_whole():
    spec = json.loads(json.dumps(SPEC))
    assert spec["openapi"] == "3.1.0"
    assert spec["info"]["version"] == "1.2.3"
    assert set(spec["paths"]) == {*PATHS, "/v1/models", "/v1/routing", "/health", "/ready", "/version"}
    for path in PATHS:
        responses = spec["paths"][path]["post"]["responses"]
        # 422 is about images: not on routes that take texts only.
        texts_only = PATHS[path] in {Operation.CLASSIFY, Operation.ABSA} or path == "/embed"
        images = set() if texts_only else {"422"}
        assert set(responses) == {"200", "400", "401", "404", "413", "429", "500", "503", "504"} | images
    assert set(spec["components"]["headers"]) >= {"X-Request-Id", "Server-Timing", "X-Model-Version"}
    names = {item["name"] for item in spec["components"]["parameters"].values()}
    assert names == {"X-Request-Id", "X-Request-Timeout-Ms", "X-Sticky-Key"}


def test_every_reference_leads_somewhere():
    def walk(value):
        if isinstance(value, dict):
            if "$ref" in value:
                target = SPEC
                for step in value["$ref"].removeprefix("#/").split("/"):
                    target = target[step]
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(SPEC)


def test_operation_ids_are_unique():
    ids = [operation["operationId"] for item in SPEC["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("body", BODY_CLASSES, ids=lambda body: body.__name__)
def test_every_field_is_described_with_its_fate(body):
    fields = SPEC["components"]["schemas"][body.__name__]["properties"]
    assert set(fields) == set(body.model_fields)
    for name in body.honoured():
        assert fields[name]["description"]
        assert "x-accepted-without-effect" not in fields[name]
    for name in body.ignored_fields:
        assert fields[name]["description"] == "Accepted without effect."
        assert fields[name]["x-accepted-without-effect"] is True
    for name, mark in body.refused_fields.items():
        assert fields[name]["description"].startswith("Not honoured: ")
        assert fields[name].get("enum", []) == list(mark.harmless)


def test_schemas_agree_with_the_checks():
    fields = SPEC["components"]["schemas"]["RerankBody"]
    assert set(fields["required"]) == {"query", "documents"}
    assert fields["additionalProperties"] is False
    assert fields["properties"]["return_documents"]["default"] is False
    assert SPEC["components"]["schemas"]["TeiEmbedBody"]["properties"]["normalize"]["default"] is True
    assert SPEC["components"]["schemas"]["TeiEmbedBody"]["properties"]["truncate"]["default"] is False


class Tags(HTMLParser):
    """Collects tags, checks that each one is closed, and keeps attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.loads += [f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href", "action")]
        assert tag not in ("script", "link", "img", "iframe")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_loads_nothing():
    tags = Tags()
    tags.feed(PAGE)
    assert tags.open == []
    assert all(item.startswith("a href=#") for item in tags.loads)
    assert "url(" not in PAGE
    assert "@import" not in PAGE
    assert "http" not in PAGE.split("</style>")[0].replace("http-equiv", "")


def test_the_page_lists_routes_fields_and_commands():
    for path in SPEC["paths"]:
        assert f"<code>{path}</code>" in PAGE
        assert f"curl localhost:8000{path}" in PAGE
    for route in ROUTES:
        for body in route.bodies:
            for name in body.model_fields:
                assert f"<td><code>{name}</code></td>" in PAGE


def test_the_page_escapes_what_it_is_given():
    page = docs_page({**SPEC, "info": {"title": "<b>", "version": "&", "description": "`<i>`"}})
    assert "<h1>&lt;b&gt; &amp;</h1><p><code>&lt;i&gt;</code></p>" in page
