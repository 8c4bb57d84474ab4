"""What holds for every route: nothing but our own errors comes out, they stay small, and bodies are read fast."""

from __future__ import annotations

import sys
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve_app.api.base import Limits, Meta, validate
from serve_app.api.rendering import expect
from serve_app.api.routes import ROUTES, Route
from serve_app.api.wording import brief, complaint, field_path, kind_of
from serve_app.errors import CallerError, InternalError, InvalidRequest, PoolserveError, error_body
from serve_app.messages import ScoreResult

BODY_CLASSES = list(dict.fromkeys(body for route in ROUTES for body in route.bodies))

BY_PATH = {route.path: route for route in ROUTES}
SHAPES = ("/rerank", "/v1/score", "/v1/embeddings", "/embed", "/v1/classify", "/predict")
"""One route for each way of reading a body; the others share an adapter with one of these."""
NAMES = sorted({name for route in ROUTES for body in route.bodies for name in body.model_fields})

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["", "float", "base64", "END", "START", "right", "query", "\ud800", 2**63, -1, "image_url", "data:;base64,QQ=="]
    )
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "content", "type", "image", "image_url", "url", "x"]) | st.text(max_size=5), inner
        )
    ),
    max_leaves=6,
)
BODIES = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=10), JSON, max_size=8)


def attempt(route: Route, body: Any) -> PoolserveError | None:
    """The route's refusal; anything else that is raised fails the test."""
    try:
        route.adapter(body, Limits(max_documents=3))
    except CallerError as error:
        return error
    return None


@pytest.mark.parametrize("path", SHAPES)
@given(body=BODIES)
@settings(max_examples=60, deadline=None)
def test_arbitrary_objects_raise_caller_errors_that_can_be_written(path, body):
    error = attempt(BY_PATH[path], body)
    if error is not None:
        assert error.message
        assert len(orjson.dumps(error_body(error, tei=True))) < 2000


@pytest.mark.parametrize("path", SHAPES)
@given(extra=st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3))
@settings(max_examples=60, deadline=None)
def test_a_good_body_with_arbitrary_fields_is_taken_or_refused(path, extra):
    route = BY_PATH[path]
    error = attempt(route, {**route.example, **extra})
    if error is not None:
        assert len(orjson.dumps(error_body(error, tei=True))) < 2000


@pytest.mark.parametrize("path", BY_PATH)
@pytest.mark.parametrize("body", [None, [], "x", 3, [{"query": "q"}]], ids=str)
def test_what_is_no_object_is_refused(path, body):
    assert isinstance(attempt(BY_PATH[path], body), InvalidRequest)


LONG = "가" * 100_000
HOSTILE = {
    "a long unknown name": {LONG: 1},
    "an unknown name full of controls": {"\x00" * 10_000: 1},
    "an unknown name full of quotes": {"\"'\\" * 10_000: 1},
    "unknown names by the thousand": {f"field{i}": i for i in range(10_000)},
    "long values everywhere": dict.fromkeys(NAMES, LONG),
    "controls everywhere": dict.fromkeys(NAMES, "\x01" * 10000),
    "wrong lists everywhere": {name: [[LONG] * 10] * 10 for name in NAMES},
    "long keys inside": {name: [{LONG: LONG}] for name in NAMES},
    "long images inside": {name: [{"image": LONG}] for name in NAMES},
    "long base64 with one wrong character": {name: [{"image": "A" * 100_000 + "!"}] for name in NAMES},
    "long media types": {name: [{"image_url": f"data:{LONG};base64,QQ=="}] for name in NAMES},
    "long part types inside": {name: [{"content": [{"type": LONG}]}] for name in NAMES},
    "integers too long to print": dict.fromkeys(NAMES, 10**5000),
    "such integers inside": {name: [1, -(10**5000)] for name in NAMES},
    "lone surrogates": {"\ud800": "\ud800", "query": "\ud800"},
}


@pytest.mark.parametrize("path", BY_PATH)
@pytest.mark.parametrize("case", HOSTILE)
def test_error_answers_stay_small_whatever_was_sent(path, case):
    route = BY_PATH[path]
    known = {name for body in route.bodies for name in body.model_fields}
    for name, value in HOSTILE[case].items():
        body = {**route.example, name: value} if name in known else {name: value}
        error = attempt(route, body)
        if error is not None:
            assert len(orjson.dumps(error_body(error, tei=True))) < 2000
            assert "pydantic" not in error.message
            assert "http" not in error.message
        if name not in known:
            assert error is not None
            break


def test_no_message_repeats_more_than_a_few_dozen_characters():
    secret = "".join(chr(0x4E00 + i) for i in range(1000))
    for route in ROUTES:
        for name in NAMES:
            error = attempt(route, {**route.example, name: secret})
            if error is not None:
                assert secret[:41] not in error.message


def test_wording():
    assert [kind_of(v) for v in (None, True, False, 1, 1.5, "a", [], {})] == [
        "null", "true", "false", "a number", "a number", "a string", "a list", "an object",
    ]  # fmt: skip
    assert brief("a" * 41) == "'" + "a" * 40 + "…'"
    assert brief("a" * 40) == "'" + "a" * 40 + "'"
    assert (brief(3), brief(10**20), brief(True), brief([1])) == ("3", "a number", "true", "a list")
    assert brief("a\nb\ud800") == "'a\\nb\\ud800'"
    assert field_path(("documents", 3, "text")) == "documents[3].text"
    assert complaint("something_new", "Input should be finite", {}, "x") == "must be finite; got 'x'"


def test_a_result_of_the_wrong_kind_is_our_fault(wire):
    with pytest.raises(InternalError, match="answered EmbedResult where ScoreResult was due"):
        expect(wire.vectors([[1]]), ScoreResult)


@pytest.mark.parametrize("body_class", BODY_CLASSES, ids=lambda b: b.__name__)
def test_every_field_of_a_body_has_exactly_one_fate(body_class):
    fates = [set(body_class.honoured()), set(body_class.ignored_fields), set(body_class.refused_fields)]
    assert set.union(*fates) == set(body_class.model_fields)
    assert sum(map(len, fates)) == len(body_class.model_fields)
    for name in body_class.honoured():
        assert body_class.model_fields[name].description, name


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_refused_field_is_refused_and_every_harmless_value_is_taken(route):
    body_class = route.bodies[0]
    for name, mark in body_class.refused_fields.items():
        with pytest.raises(CallerError, match=name):
            validate(body_class, {**route.example, name: "something else"}, "POST /x")
        for value in mark.harmless:
            assert name in validate(body_class, {**route.example, name: value}, "POST /x").ignored


def python_calls(work: Any) -> int:
    """Python functions that `work` enters: what it costs, whatever else the machine does."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("document", "reading"), [("x" * 500, 100), ({"text": "x" * 500}, 4_000)], ids=["strings", "objects"]
)
def test_500_documents_cost_little_python(wire, document, reading):
    route = BY_PATH["/v1/rerank"]
    body = {"query": "q", "documents": [document] * 500}
    assert python_calls(lambda: route.adapter(body, wire.limits)) < reading
    call = route.adapter(body, wire.limits)
    result = wire.scores(*[i / 500 for i in range(500)])

    def render() -> bytes:
        return orjson.dumps(call.render(result, Meta("r", 1)), option=orjson.OPT_SERIALIZE_NUMPY)

    assert python_calls(render) < 100
