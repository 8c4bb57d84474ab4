"""Images on the wire: every way to name one, and what is refused and where."""

from __future__ import annotations

import base64
import statistics
import time

import orjson
import pytest

from serve_app.api.base import Limits
from serve_app.api.classify import classify, predict_tei
from serve_app.api.embeddings import embed_tei, embeddings
from serve_app.api.images import read_image
from serve_app.api.openapi import openapi
from serve_app.api.rerank import rerank, rerank_any, rerank_v2
from serve_app.api.routes import ROUTES
from serve_app.api.score import PAIRS, score
from serve_app.errors import InvalidRequest, TooLarge, UnknownField, error_body
from serve_app.messages import EmbedRequest, ImageRef, ScoreRequest
from serve_app.vocabulary import MediaErrorCode

URL = "https://example.org/a.png"
BYTES = bytes(range(256)) + b"\xfb\xff\xfe"  # its base64 has +, / and = in it
BASE64 = base64.b64encode(BYTES).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"

AT_URL, INLINE = ImageRef(url=URL), ImageRef(data=BYTES)
STRINGS = {URL: AT_URL, DATA_URL: INLINE, BASE64: INLINE}

FORMS = {
    "image, URL": ({"image": URL}, AT_URL),
    "image, data URL": ({"image": DATA_URL}, INLINE),
    "image, base64": ({"image": BASE64}, INLINE),
    "image_url": ({"image_url": URL}, AT_URL),
    "image_url, object": ({"image_url": {"url": DATA_URL}}, INLINE),
    "image_url, detail": ({"image_url": {"url": URL, "detail": "low"}}, AT_URL),
    "part": ({"type": "image_url", "image_url": {"url": URL}}, AT_URL),
    "part, detail": ({"type": "image_url", "image_url": {"url": BASE64, "detail": "auto"}}, INLINE),
    "part, string": ({"type": "image_url", "image_url": URL}, AT_URL),
    "content": ({"content": [{"type": "image_url", "image_url": {"url": URL}}]}, AT_URL),
    "content, string": ({"content": [{"type": "image_url", "image_url": DATA_URL}]}, INLINE),
    "nulls": ({"text": None, "image": URL, "image_url": None, "content": None}, AT_URL),
    "nulls inside": (
        {"content": [{"type": "image_url", "text": None, "image_url": {"url": URL, "detail": None}, "uuid": None}]},
        AT_URL,
    ),
}


# --- every way to name an image --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_taken_wherever_images_are(wire, form):
    sent, image = FORMS[form]
    for adapter in (rerank, rerank_v2, rerank_any):
        call = wire.call(adapter, {"query": sent, "documents": ["a", sent]})
        assert call.request == ScoreRequest(queries=[image], documents=["a", image])
        assert call.documents == 2
        assert wire.call(adapter, {"query": "q", "documents": sent}).request.documents == [image]
    for first, second in PAIRS:
        request = wire.call(score, {first: ["q", sent], second: [sent, "a"]}).request
        assert (request.queries, request.documents) == (["q", image], [image, "a"])
        request = wire.call(score, {first: sent, second: sent}).request
        assert (request.queries, request.documents) == ([image], [image])
    assert wire.call(embeddings, {"input": sent}).request == EmbedRequest(inputs=[image])
    mixed = wire.call(embeddings, {"input": ["a", sent, {"text": "b"}, [5, 6]]})
    assert (mixed.request.inputs, mixed.documents) == (["a", image, "b", [5, 6]], 4)


@pytest.mark.parametrize("string", STRINGS)
def test_a_plain_string_is_always_a_text(wire, string):
    assert wire.call(rerank, {"query": string, "documents": [string]}).request == ScoreRequest([string], [string])
    assert wire.call(score, {"text_1": string, "text_2": string}).request.documents == [string]
    assert wire.call(embeddings, {"input": [string]}).request.inputs == [string]
    assert wire.call(rerank, {"query": "q", "documents": [{"text": string}]}).request.documents == [string]


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "http://10.0.0.1:81/x?y=ä#z",
        "HTTPS://EXAMPLE.ORG",
        # Refused by the loader, for their document alone.
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "gopher://example.org",
        "C:\\a.png",
        "localhost:8000/a.png",
        "blob:https://example.org/1",
        "https:",
    ],
)
def test_whatever_has_a_scheme_is_a_url(url):
    assert read_image(url, "x") == read_image(f" {url}\n", "x") == ImageRef(url=url)


@pytest.mark.parametrize(
    "header",
    [
        "data:image/png;base64,",
        "DATA:IMAGE/PNG;BASE64,",
        "data:;base64,",
        "data:image/svg+xml;charset=utf-8;base64,",
        "data:image/jpeg; base64,",
    ],
)
def test_data_urls(header):
    assert read_image(header + BASE64, "x") == INLINE


@pytest.mark.parametrize(
    "text",
    [
        BASE64,
        BASE64.rstrip("="),
        base64.encodebytes(BYTES).decode(),
        base64.encodebytes(BYTES).decode().replace("\n", "\r\n"),
        f"\n  {BASE64}  ",
        base64.urlsafe_b64encode(BYTES).decode(),
        base64.urlsafe_b64encode(BYTES).decode().rstrip("="),
    ],
    ids=["plain", "unpadded", "lines", "mime lines", "spaces around", "urlsafe", "urlsafe unpadded"],
)
def test_base64_as_encoders_write_it(text):
    assert read_image(text, "x") == read_image(f"data:image/png;base64,{text}", "x") == INLINE


@pytest.mark.parametrize("length", range(1, 7))
def test_base64_of_every_remainder(length):
    data = BYTES[-length:]
    for text in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode().rstrip("=")):
        assert read_image(text, "x").data == data


@pytest.mark.parametrize(
    "text",
    ["A", "QUJDR", "QQ=", "Q===", "=", "====", "QQ==QQ==", "Q=Q=", "QQ=====", "QUJD!", "QUJD\x00", "é", "\ud800",
     "example.org/a.png", "<svg/>", "[1,2]", "QUJD,QUJD", "QUJDÄ", "QU\u00a0JD", "1:QQ=="],
)  # fmt: skip
def test_what_is_no_base64_costs_its_document_and_is_not_skipped(wire, text):
    complaint = "must be a URL with its scheme, a data: URL or base64; got neither"
    request = wire.call(rerank, {"query": "q", "documents": ["a", {"image": text}]}).request
    assert request.documents == ["a", ImageRef(data=b"", complaint=f"documents[1].image: {complaint}")]
    error = wire.refusal(rerank, {"query": {"image": text}, "documents": ["a"]})
    assert (type(error), error.message, error.param) == (InvalidRequest, f"query.image: {complaint}", "query.image")
    sent = {"image_url": {"url": f"data:image/png;base64,{text}"}}
    (image,) = wire.call(embeddings, {"input": [sent]}).request.inputs
    assert image.complaint == "input[0].image_url.url: what follows the comma of the data: URL must be base64"
    orjson.dumps(error_body(error))


# --- what is refused, and where it says it is ------------------------------------------------------------------------

_FORM = "must be a URL, a data: URL or base64; got"
UNUSABLE = [
    ({"image": ""}, ".image", "must not be empty"),
    ({"image": " \n"}, ".image", "must not be empty"),
    ({"image": "data:image/png;base64,"}, ".image", "must not be empty"),
    ({"image": "data:image/png;base64, \n"}, ".image", "must not be empty"),
    ({"image_url": ""}, ".image_url", "must not be empty"),
    ({"image": "data:image/png,%89PNG"}, ".image", "a data: URL must read data:image/…;base64,…"),
    ({"image": "data:base64,QUJD"}, ".image", "a data: URL must read data:image/…;base64,…"),
    ({"image": "data:image/png;base64"}, ".image", "a data: URL must read data:image/…;base64,…"),
    ({"image": f"data:image/png;x={'y' * 300};base64,QUJD"}, ".image", "a data: URL must read data:image/…;base64,…"),
    ({"image": "data:"}, ".image", "a data: URL must read data:image/…;base64,…"),
    (
        {"image": "data:text/html;base64,QUJD"},
        ".image",
        "a data: URL must be of an image; its media type is 'text/html'",
    ),
    (
        {"content": [{"type": "image_url", "image_url": {"url": ""}}]},
        ".content[0].image_url.url",
        "must not be empty",
    ),
]
"""Strings that are no image: a document's own fault."""
BAD = [
    ({"image": 5}, ".image", f"{_FORM} a number"),
    ({"image": True}, ".image", f"{_FORM} true"),
    ({"image": {"url": URL}}, ".image", f"{_FORM} an object"),
    ({"image": [URL]}, ".image", f"{_FORM} a list"),
    # img.tolist(): megabytes of JSON that no one reads fast.
    ({"image": [[[0, 1, 2]]]}, ".image", f"{_FORM} a list"),
    ({"image_url": [[0]]}, ".image_url", f"{_FORM} a list"),
    ({"image_url": {}}, ".image_url.url", "is required"),
    ({"image_url": {"url": None}}, ".image_url.url", "is required"),
    ({"image_url": {"url": 3}}, ".image_url.url", f"{_FORM} a number"),
    ({"image_url": {"url": URL, "size": 3}}, ".image_url", "unknown field 'size' beside 'url'"),
    ({"text": "a", "image": URL}, "", "text or image, not both"),
    ({"text": "", "image": URL}, "", "text or image, not both"),
    ({"text": "a", "image_url": {"url": URL}}, "", "text or image_url, not both"),
    ({"image": URL, "image_url": URL}, "", "image or image_url, not both"),
    ({"image": URL, "content": [{"type": "text", "text": "a"}]}, "", "content or image, not both"),
    ({"video": URL}, ".video", "only 'image' and 'image_url' are served"),
    ({"images": [URL]}, ".images", "only 'image' and 'image_url' are served"),
    ({"text": "a", "audio_url": URL}, ".audio_url", "only 'image' and 'image_url' are served"),
    ({"img": URL}, "", 'must be a string, {"text": …} or {"image": …}; got an object without "text" or "image"'),
    ({"image": None}, "", 'must be a string, {"text": …} or {"image": …}; got an object without "text" or "image"'),
    (
        {"content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": URL}}]},
        ".content",
        "text or image, not both: an image must be the only part; got 2",
    ),
    (
        {"content": [{"type": "image_url", "image_url": {"url": URL}}] * 2},
        ".content",
        "text or image, not both: an image must be the only part; got 2",
    ),
    ({"content": [{"type": "image_url"}]}, ".content[0].image_url", "is required"),
    (
        {"content": [{"type": "image_url", "image_url": URL, "alt": "x"}]},
        ".content[0]",
        "unknown field 'alt' beside 'image_url'",
    ),
    ({"content": [{"type": "text", "text": "a", "image": URL}]}, ".content[0]", "unknown field 'image' beside 'text'"),
]


@pytest.mark.parametrize(("sent", "where", "complaint"), BAD)
def test_bad_images_name_field_and_index(wire, sent, where, complaint):
    error = wire.refusal(rerank, {"query": "q", "documents": ["a", "b", "c", sent]})
    expected = (InvalidRequest, f"documents[3]{where}: {complaint}", f"documents[3]{where}")
    assert (type(error), error.message, error.param) == expected
    assert wire.refusal(rerank, {"query": sent, "documents": ["a"]}).message == f"query{where}: {complaint}"
    assert wire.refusal(rerank, {"query": "q", "documents": sent}).message == f"documents{where}: {complaint}"
    assert wire.refusal(score, {"data_1": ["q", sent], "data_2": ["a", "b"]}).param == f"data_1[1]{where}"
    assert wire.refusal(score, {"queries": "q", "items": [sent]}).message == f"items[0]{where}: {complaint}"
    assert wire.refusal(embeddings, {"input": ["a", sent]}).message == f"input[1]{where}: {complaint}"


@pytest.mark.parametrize(("sent", "where", "complaint"), UNUSABLE)
def test_strings_that_are_no_image_keep_their_place_and_say_why(wire, sent, where, complaint):
    def found(adapter, body, field):
        (image,) = [item for item in getattr(wire.call(adapter, body).request, field) if isinstance(item, ImageRef)]
        assert (image.url, image.data) == (None, b"")
        return image.complaint

    assert found(rerank, {"query": "q", "documents": ["a", sent]}, "documents") == f"documents[1]{where}: {complaint}"
    assert found(rerank, {"query": "q", "documents": sent}, "documents") == f"documents{where}: {complaint}"
    assert found(score, {"queries": "q", "items": ["a", sent]}, "documents") == f"items[1]{where}: {complaint}"
    assert found(embeddings, {"input": ["a", sent]}, "inputs") == f"input[1]{where}: {complaint}"
    for adapter, body, field in (
        (rerank, {"query": sent, "documents": ["a"]}, "query"),
        (score, {"data_1": ["q", sent], "data_2": ["a", "b"]}, "data_1[1]"),
    ):
        error = wire.refusal(adapter, body)
        expected = (InvalidRequest, f"{field}{where}: {complaint}", f"{field}{where}")
        assert (type(error), error.message, error.param) == expected


def test_an_unusable_image_counts_as_one():
    with pytest.raises(TooLarge, match="documents: 3 images"):
        rerank({"query": "q", "documents": [{"image": ""}] * 3}, Limits(max_documents=10, max_images=2))


@pytest.mark.parametrize("kind", ["video_url", "input_image", "image", None, 3, [1]])
def test_parts_of_other_kinds_are_refused(wire, kind):
    error = wire.refusal(rerank, {"query": "q", "documents": [{"content": [{"type": kind, "image_url": URL}]}]})
    assert error.message.startswith("documents[0].content[0].type: must be 'text' or 'image_url'; got ")


def test_a_part_outside_of_a_content_list_says_what_it_is(wire):
    error = wire.refusal(embeddings, {"input": [{"type": "text", "image_url": URL}]})
    assert error.message == "input[0].type: must be 'image_url'; got 'text'"


def test_no_message_repeats_an_image(wire):
    for sent in (BASE64 + "!", f"data:image/png;base64,{BASE64}!", f"data:image/png,{BASE64}"):
        (image,) = wire.call(rerank, {"query": "q", "documents": [{"image": sent}]}).request.documents
        assert image.complaint
        assert BASE64[:12] not in image.complaint + repr(image)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("adapter", "field", "rest"),
    [
        (classify, "input", {}),
        (embed_tei, "inputs", {}),
        (rerank_any, "texts", {"query": "q"}),
        (rerank_any, "query", {"texts": ["a"]}),
    ],
)
def test_routes_for_texts_say_so(wire, adapter, field, rest, form):
    sent, _ = FORMS[form]
    error = wire.refusal(adapter, {**rest, field: sent})
    assert type(error) is InvalidRequest
    assert error.message.startswith(f"{field}")
    assert error.message.endswith(": images are not served by this route")
    if field != "query":
        assert wire.refusal(adapter, {**rest, field: ["a", sent]}).message.startswith(f"{field}[1].")


def test_other_media_are_refused_by_name_where_texts_are_served(wire):
    error = wire.refusal(classify, {"input": [{"audio": "x"}]})
    assert error.message == "input[0].audio: 'audio' is not served by this route"


def test_tei_pairs_have_no_images(wire):
    error = wire.refusal(predict_tei, {"inputs": [{"image": URL}]})
    assert error.message == "inputs[0]: must be a string; got an object"


def test_a_null_image_beside_a_text_is_nothing(wire):
    for sent in ({"text": "a", "image": None}, {"content": [{"type": "text", "text": "a", "image_url": None}]}):
        assert wire.call(rerank, {"query": sent, "documents": [sent]}).request == ScoreRequest(["a"], ["a"])
        assert wire.call(classify, {"input": [sent]}).request.inputs == ["a"]


@pytest.mark.parametrize(
    ("adapter", "body"),
    [
        (rerank, {"query": "q", "documents": [{"image": URL}]}),
        (score, {"text_1": "q", "text_2": [{"image": URL}]}),
        (embeddings, {"input": [{"image": URL}]}),
        (classify, {"input": ["a"]}),
    ],
)
def test_the_preparation_of_images_is_the_checkpoints(wire, adapter, body):
    error = wire.refusal(adapter, {**body, "mm_processor_kwargs": {"max_pixels": 1}})
    assert (type(error), error.param) == (UnknownField, "mm_processor_kwargs")
    assert "images are prepared as the model's checkpoint says; only an object is accepted" in error.message
    assert wire.call(adapter, {**body, "mm_processor_kwargs": {}}).ignored == ("mm_processor_kwargs",)


# --- the callers' own keys, and what comes back ----------------------------------------------------------------------


def test_documents_carry_the_callers_own_keys_and_come_back_as_sent(wire):
    documents = [
        {"image": DATA_URL, "title": "t", "type": "product", "note": None},
        {"image_url": {"url": URL, "detail": "low"}, "id": 4},
        {"content": [{"type": "image_url", "image_url": {"url": URL}}]},
        {"text": "a", "content": "own"},
        "b",
    ]
    body = {"query": "q", "documents": documents, "return_documents": True}
    call = wire.call(rerank, body)
    assert call.request.documents == [INLINE, AT_URL, AT_URL, "a", "b"]
    echoed = [item["document"] for item in wire.answer(call, wire.scores(5, 4, 3, 2, 1))["results"]]
    assert echoed == [{"image": DATA_URL, "title": "t", "type": "product"}, *documents[1:4], {"text": "b"}]
    quiet = wire.answer(wire.call(rerank, {**body, "return_documents": None}), wire.scores(5, 4, 3, 2, 1))
    assert all("document" not in item for item in quiet["results"])


def test_a_single_image_without_a_list_comes_back(wire):
    call = wire.call(rerank, {"query": "q", "documents": {"image": URL}, "return_documents": True})
    assert wire.answer(call, wire.scores(1))["results"][0]["document"] == {"image": URL}


@pytest.mark.parametrize(
    ("adapter", "name"), [(score, "text_2"), (score, "text_1"), (embeddings, "input"), (rerank, "query")]
)
def test_elsewhere_other_keys_are_unknown(wire, adapter, name):
    body = {score: {"text_1": "q", "text_2": "a"}, embeddings: {}, rerank: {"query": "q", "documents": ["a"]}}[adapter]
    error = wire.refusal(adapter, {**body, name: {"image": URL, "title": "t"}})
    assert error.message == f"{name}: unknown field 'title' beside 'image'"


# --- limits ----------------------------------------------------------------------------------------------------------

_IMAGE = {"image": URL}


@pytest.mark.parametrize(
    ("adapter", "body", "message", "param"),
    [
        (rerank, {"query": "q", "documents": [_IMAGE, "a", _IMAGE, _IMAGE]}, "documents: 3 images", "documents"),
        (rerank, {"query": _IMAGE, "documents": [_IMAGE] * 2}, "query and documents: 3 images", "query"),
        (score, {"text_1": "q", "text_2": [_IMAGE] * 3}, "text_2: 3 images", "text_2"),
        (score, {"queries": [_IMAGE, _IMAGE], "items": ["a", _IMAGE]}, "queries and items: 3 images", "queries"),
        (embeddings, {"input": [_IMAGE] * 3}, "input: 3 images", "input"),
    ],
)
def test_too_many_images_name_the_cap_and_the_count(adapter, body, message, param):
    with pytest.raises(TooLarge) as caught:
        adapter(body, Limits(max_documents=10, max_images=2))
    assert caught.value.message == f"{message}; a request may hold 2 at most"
    assert caught.value.param == param
    adapter(body, Limits(max_documents=10, max_images=3))


def test_images_can_be_turned_off_and_are_limited_by_default():
    with pytest.raises(TooLarge, match="documents: 1 image; a request may hold 0 at most"):
        rerank({"query": "q", "documents": [_IMAGE]}, Limits(max_documents=10, max_images=0))
    with pytest.raises(TooLarge, match="documents: 201 images; a request may hold 200 at most"):
        rerank({"query": "q", "documents": [_IMAGE] * 201}, Limits(max_documents=1000))
    rerank({"query": "q", "documents": ["a"] * 500}, Limits(max_documents=1000, max_images=0))


# --- documentation and speed -----------------------------------------------------------------------------------------


def test_the_description_knows_images():
    spec = openapi("1.0")
    schemas = spec["components"]["schemas"]
    for body, fields in {
        "RerankBody": ["query", "documents"],
        "ScoreBody": ["text_1", "text_2", "queries", "documents", "items", "data_1", "data_2"],
        "EmbeddingsBody": ["input"],
    }.items():
        for field in fields:
            schema = orjson.dumps(schemas[body]["properties"][field])
            assert b'"required":["image"]' in schema
            assert b'"required":["image_url"]' in schema
            assert b'{"const":"image_url"}' in schema
    for body in ("TeiRerankBody", "TeiEmbedBody", "ClassifyBody", "TeiPredictBody"):
        assert b'"required":["image' not in orjson.dumps(schemas[body])
    for body, field in (("RerankBody", "documents"), ("ScoreBody", "text_1"), ("EmbeddingsBody", "input")):
        description = schemas[body]["properties"][field]["description"]
        assert "bare base64" in description
        assert "A plain string is always a text" in description
    statuses = spec["components"]["responses"]
    assert all(code in statuses["422"]["description"] for code in MediaErrorCode)
    assert "images" in statuses["413"]["description"]
    examples = {route.path for route in ROUTES if route.image_example}
    assert examples == {"/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/v1/embeddings", "/pooling"}


def cpu_ratio(work, plain):
    """Median of neighbours: what one costs in the other's CPU time, on a busy machine too."""

    def seconds(what):
        start = time.thread_time()
        what()
        return time.thread_time() - start

    return statistics.median(seconds(work) / seconds(plain) for _ in range(40))


@pytest.mark.gate
def test_images_are_read_in_one_pass():
    limits = Limits(max_documents=1000, max_images=500)
    urls = {"query": "q", "documents": [{"image": URL}] * 500}
    texts = {"query": "q", "documents": [{"text": URL}] * 500}
    assert cpu_ratio(lambda: rerank(urls, limits), lambda: rerank(texts, limits)) < 4  # 2.4 when it was set

    megabyte = "A" * 2**20

    def decode():
        base64.b64decode(megabyte, validate=True)

    large = {"query": "q", "documents": [{"image": megabyte}]}
    assert cpu_ratio(lambda: rerank(large, limits), decode) < 1.8  # 1.0
    # No scheme is looked for in a megabyte of letters, and a wrong character ends it.
    wrong = {"query": "q", "documents": [{"image": megabyte.lower() + ":"}]}
    (image,) = rerank(wrong, limits).request.documents
    assert image.complaint
    assert cpu_ratio(lambda: rerank(wrong, limits), decode) < 4  # 2.1
