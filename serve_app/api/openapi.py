"""The OpenAPI 3.1 description of the routes, made from the bodies that check the requests."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from serve_app.api.docs_page import docs_page
from serve_app.api.routes import ROUTES, Route

__all__ = ["docs_page", "openapi", "operation_id"]

JSON = "application/json"

_STATUS_TEXTS = {
    "400": "The request is wrong (`invalid_request`, `unknown_field`, `context_length_exceeded`).",
    "401": "Keys are configured and none, or a wrong one, was sent (`unauthenticated`).",
    "404": "Unknown model, version or route (`model_not_found`, `not_found`); lists what exists.",
    "413": "The body, or the number of documents or images, is over a configured limit (`payload_too_large`).",
    "422": "No image of the request could be used, or not the query's (`media_unreachable`, `media_forbidden`, "
    "`media_too_large`, `media_undecodable`). While one can, the answer is 200 and its `errors` names the others.",
    "429": "No room for the request now (`overloaded`); see `Retry-After`.",
    "500": "Our fault (`internal_error`); logged with the request id.",
    "503": "The model is not ready (`model_unavailable`, `engine_dead`).",
    "504": "The deadline passed; the work was cancelled (`deadline_exceeded`).",
}

_IMAGE_ANSWER = "The answer; `errors`, where there is one, names the images that could not be used, by their index."

_REQUEST_HEADERS = {
    "RequestId": ("X-Request-Id", "string", "Comes back with the answer; made up when left out."),
    "TimeoutMs": ("X-Request-Timeout-Ms", "integer", "Deadline in milliseconds; past it the answer is 504."),
    "StickyKey": (
        "X-Sticky-Key",
        "string",
        "Requests with the same key get the same version, where the routing table says so; it may name another header.",
    ),
}

_ANSWER_HEADERS = {
    "X-Request-Id": "The caller's request id, or a new one.",
    "Server-Timing": "Milliseconds by stage: fetch, decode, tokenize, queue, engine, post, total.",
    "X-Model-Version": "Version of the model that served the request.",
    "X-Routing": "How the version was chosen: pinned, latest, sticky, weighted or default; `shadow=VERSION` where a "
    "copy of the request went to another one.",
    "X-Ignored-Fields": "Names of sent fields that have no effect, separated by commas; absent when there are none.",
}

_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error", "detail"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string", "description": "Names the field and the index."},
                "type": {"type": "string"},
                "code": {"type": "string", "description": "Stable word for programs."},
                "param": {"type": ["string", "null"], "description": "The field at fault, e.g. `documents[3]`."},
            },
        },
        "detail": {"type": "string", "description": "The message again, where Jina's clients look for it."},
        "error_type": {"type": "string", "description": "On TEI-shaped routes only."},
    },
}

_GETS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/models": ("Models, versions, tasks, state and routing weights", {"object": "list", "data": []}),
    "/v1/routing": ("What the gateway replica that answers has counted", {"table": "…", "versions": [], "shadows": []}),
    "/health": ("The process is alive", {"status": "ok"}),
    "/ready": ("Every routed model answers; 503 when one does not", {"status": "ready"}),
    "/version": ("Build and library versions", {"version": "0.0.0"}),
}


def openapi(version: str) -> dict[str, Any]:
    """The whole description as a JSON-able object.

    Args:
        version: of this package, for `info.version`.
    """
    _, schemas = models_json_schema(
        sorted({(body, "validation") for route in ROUTES for body in route.bodies}, key=lambda pair: pair[0].__name__),
        ref_template="#/components/schemas/{model}",
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Poolserve",
            "version": version,
            "description": "Rerank, score and embed texts and images, classify texts, find opinions in them. A null is "
            "the same as leaving a field out; an unknown field is refused by name.",
        },
        "paths": {
            **{route.path: {"post": _operation(route)} for route in ROUTES},
            **{path: {"get": _get(path, summary, example)} for path, (summary, example) in _GETS.items()},
        },
        "components": {
            "schemas": {**schemas["$defs"], "Error": _ERROR_SCHEMA},
            "parameters": {
                key: {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": kind}}
                for key, (name, kind, text) in _REQUEST_HEADERS.items()
            },
            "headers": {
                name: {"description": text, "schema": {"type": "string"}} for name, text in _ANSWER_HEADERS.items()
            },
            "responses": {status: _error(status, text) for status, text in _STATUS_TEXTS.items()},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def operation_id(method: str, path: str) -> str:
    return method + path.replace("/", "_")


def _operation(route: Route) -> dict[str, Any]:
    statuses = [status for status in _STATUS_TEXTS if status != "422" or route.image_example]
    shapes = [{"$ref": f"#/components/schemas/{body.__name__}"} for body in route.bodies]
    return {
        "operationId": operation_id("post", route.path),
        "summary": route.summary,
        "tags": [route.operation.value],
        "parameters": [{"$ref": f"#/components/parameters/{key}"} for key in _REQUEST_HEADERS],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes},
                    **_examples(route.example, route.image_example),
                }
            },
        },
        "responses": {
            "200": {
                "description": _IMAGE_ANSWER if route.image_example else "The answer.",
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in _ANSWER_HEADERS},
                "content": {JSON: _examples(route.answer, route.image_answer)},
            },
            **{status: {"$ref": f"#/components/responses/{status}"} for status in statuses},
        },
    }


def _examples(plain: Any, images: Any) -> dict[str, Any]:
    return {"examples": {"plain": {"value": plain}, **({"images": {"value": images}} if images else {})}}


def _get(path: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": summary + ".", "content": {JSON: _examples(example, None)}}}
    if path == "/ready":
        responses["503"] = {"$ref": "#/components/responses/503"}
    return {
        "operationId": operation_id("get", path),
        "summary": summary,
        "tags": ["operations"],
        "responses": responses,
    }


def _error(status: str, text: str) -> dict[str, Any]:
    headers: dict[str, Any] = {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
    if status == "429":
        headers["Retry-After"] = {"description": "Seconds to wait.", "schema": {"type": "integer"}}
    return {
        "description": text,
        "headers": headers,
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
