"""Bodies, keys, deadlines and headers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request

from serve_app import http
from serve_app.errors import InvalidRequest, Overloaded, TooLarge, Unauthenticated


def _request(chunks: list[bytes], headers: dict[str, str] | None = None) -> tuple[Request, list[int]]:
    read: list[int] = []

    async def source() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    iterator = source()

    async def receive() -> dict[str, object]:
        try:
            chunk = await anext(iterator)
        except StopAsyncIteration:
            return {"type": "http.request", "body": b"", "more_body": False}
        read.append(len(chunk))
        return {"type": "http.request", "body": chunk, "more_body": True}

    raw = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
    return Request({"type": "http", "method": "POST", "headers": raw}, receive), read


async def test_body_limit_is_checked_while_reading() -> None:
    request, read = _request([b"x" * 600] * 1000)
    with pytest.raises(TooLarge):
        await http.read_json(request, 1000)
    assert sum(read) == 1200  # the rest of 600 kB was never asked for


async def test_declared_length_is_refused_before_reading() -> None:
    request, read = _request([b"{}"], {"content-length": "10000000000"})
    with pytest.raises(TooLarge):
        await http.read_json(request, 1000)
    assert read == []


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"a"', b"null", b'{"a": "\xff"}', b'{"a": "\\ud800"}', b"NaN"])
async def test_what_is_not_a_json_object_is_refused(body: bytes) -> None:
    request, _ = _request([body])
    with pytest.raises(InvalidRequest):
        await http.read_json(request, 1000)


def test_keys() -> None:
    keys = http.Keys(["alpha", "beta"])
    for value in ("Bearer alpha", "bearer beta"):
        keys.check({"authorization": value})
    for value in ("", "alpha", "Bearer", "Bearer alph", "Bearer alphaa", "Basic alpha", "Bearer ключ"):
        with pytest.raises(Unauthenticated):
            keys.check({"authorization": value})
    http.Keys([]).check({})


def test_key_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKING_KEY", "secret")
    http.Keys(["env:RANKING_KEY"]).check({"authorization": "Bearer secret"})
    with pytest.raises(ValueError, match="MISSING_KEY is not set"):
        http.Keys(["env:MISSING_KEY"])
    assert http.key_of("env:RANKING_KEY") == "secret"


def test_deadline_is_the_callers_within_the_limit() -> None:
    now = time.time()
    assert http.deadline(Headers({}), 1_000, 9_000) == pytest.approx(now + 1, abs=0.5)
    assert http.deadline(Headers({"X-Request-Timeout-Ms": "50"}), 1_000, 9_000) == pytest.approx(now + 0.05, abs=0.5)
    assert http.deadline(Headers({"X-Request-Timeout-Ms": "99999999"}), 1_000, 9_000) == pytest.approx(now + 9, abs=0.5)
    for bad in ("0", "-1", "1.5", "abc", "", "٣"):
        with pytest.raises(InvalidRequest, match="X-Request-Timeout-Ms"):
            http.deadline(Headers(raw=[(b"x-request-timeout-ms", bad.encode())]), 1_000, 9_000)


def test_of_two_deadlines_the_earlier_counts_and_the_limit_holds_for_both() -> None:
    header = {"x-request-timeout-ms": "2000"}
    for headers, remaining_s, seconds in (({}, 4.0, 4), (header, 4.0, 2), (header, 1.0, 1), ({}, 60.0, 9)):
        deadline = http.deadline(headers, 1_000, 9_000, remaining_s)
        assert deadline == pytest.approx(time.time() + seconds, abs=0.5)


def test_request_id_is_kept_only_if_it_is_safe() -> None:
    assert http.request_id(Headers({"x-request-id": "abc-1.2"})) == "abc-1.2"
    for bad in ("", "a b", "x" * 200, "a\tb"):
        made = http.request_id(Headers({"x-request-id": bad}))
        assert made != bad
        assert len(made) == 32


def test_server_timing_lists_stages_in_their_order() -> None:
    header = http.server_timing({"engine": 3.0, "tokenize": 1.0, "queue": 0.5, "post": 0.1}, 5.0)
    assert [part.split(";")[0] for part in header.split(", ")] == ["tokenize", "queue", "engine", "post", "total"]


def test_overload_says_when_to_come_back() -> None:
    response = http.error_response(Overloaded("full", None, 2.4), {})
    assert (response.status_code, response.headers["retry-after"]) == (429, "2")
