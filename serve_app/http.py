"""HTTP details of the gateway: bodies, keys, deadlines, headers. Plain Starlette, no Ray."""

from __future__ import annotations

import hmac
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from serve_app.errors import InvalidRequest, PoolserveError, TooLarge, Unauthenticated, error_body, status_of
from serve_app.vocabulary import Stage

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class Keys:
    """Accepted Bearer keys.

    Args:
        keys: plain keys, or `env:NAME` for one that a variable holds; empty: everybody may call.

    Raises:
        ValueError: a named variable is not set.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key_of(key).encode() for key in keys]

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises Unauthenticated unless the request brings one of the keys."""
        if not self._keys:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip().encode()
        # Every key is compared, in constant time, so that the time says nothing about which one was nearly right.
        matches = [hmac.compare_digest(given, known) for known in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise Unauthenticated("a valid key is required: Authorization: Bearer KEY")


def key_of(key: str) -> str:
    """A key of the settings, read from its variable if it names one. Raises ValueError when that is not set."""
    if not key.startswith("env:"):
        return key
    value = os.environ.get(key.removeprefix("env:"), "")
    if not value:
        raise ValueError(f"api_keys: the variable {key.removeprefix('env:')} is not set")
    return value


async def read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """The request's JSON object.

    Raises:
        TooLarge: the body passes `max_bytes`; noticed while reading, or before from Content-Length.
        InvalidRequest: not a JSON object in UTF-8.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large(max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        chunks.append(chunk)
    try:
        body = orjson.loads(b"".join(chunks))
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {error.msg[:100]} at character {error.pos}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("the body must be a JSON object")
    return body


def too_large(max_bytes: int) -> TooLarge:
    """The error of a body, or a gRPC message, of more bytes."""
    return TooLarge(f"the body is over the limit of {max_bytes / 2**20:g} MiB")


def request_id(headers: Mapping[str, str]) -> str:
    """The caller's `X-Request-Id` if it is fit for logs and headers, else a new one."""
    given = headers.get("x-request-id", "")
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def deadline(headers: Mapping[str, str], default_ms: int, max_ms: int, remaining_s: float | None = None) -> float:
    """Wall-clock seconds at which the request's time is over.

    Args:
        headers: names in lower case, or of any case if the mapping does not care.
        remaining_s: what the transport's own deadline leaves (gRPC); None: it has none.

    Raises:
        InvalidRequest: `X-Request-Timeout-Ms` is not a positive number.
    """
    given = headers.get("x-request-timeout-ms")
    if given is None:
        wanted_ms: float = default_ms if remaining_s is None else remaining_s * 1e3
    elif not given.isascii() or not given.isdigit() or int(given) == 0 or len(given) > 12:
        raise InvalidRequest("X-Request-Timeout-Ms: must be a positive number of milliseconds", "X-Request-Timeout-Ms")
    else:
        wanted_ms = int(given) if remaining_s is None else min(int(given), remaining_s * 1e3)
    return time.time() + min(wanted_ms, max_ms) / 1e3


def server_timing(timings: Mapping[str, float], total_ms: float) -> str:
    """The `Server-Timing` header: stages in the order in which they run, milliseconds."""
    parts = [f"{stage};dur={timings[stage]:.2f}" for stage in Stage if stage in timings]
    return ", ".join([*parts, f"{Stage.TOTAL};dur={total_ms:.2f}"])


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer; numpy arrays are written as they are."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(body, status, dict(headers or {}), media_type="application/json")


def error_response(error: PoolserveError, headers: Mapping[str, str], *, tei: bool = False) -> Response:
    """The answer to a request that failed."""
    extra = dict(headers)
    retry_after = getattr(error, "retry_after_s", None)
    if retry_after is not None:
        extra["Retry-After"] = str(max(1, round(retry_after)))
    status = status_of(error).http
    if status == 401:
        extra["WWW-Authenticate"] = "Bearer"
    return json_response(error_body(error, tei=tei), status, extra)


__all__ = [
    "ClientDisconnect",
    "Keys",
    "deadline",
    "error_response",
    "json_response",
    "key_of",
    "read_json",
    "request_id",
    "server_timing",
    "too_large",
]
