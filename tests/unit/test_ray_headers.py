"""Answers under Ray Serve have one request id. On a cluster: tests/ray/test_default_config.py."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from ray.serve._private import http_util
from ray.serve._private.http_util import RequestIdMiddleware
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ray_headers import OneRequestId, take_fit_request_ids
from serve_app.http import request_id


async def _answer(request: Request) -> Response:
    taken = request_id(request.headers)
    return Response(taken, headers={"X-Request-Id": taken, "X-Other": "kept"})


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Of our middleware below Ray's, as Ray Serve builds them."""
    app = Starlette(routes=[Route("/", _answer)])
    app.add_middleware(OneRequestId)
    transport = httpx.ASGITransport(RequestIdMiddleware(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://poolserve") as client:
        yield client


@pytest.fixture
def fit_ids(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a gateway's replica, whose server may be older than its application."""
    monkeypatch.setattr(RequestIdMiddleware, "__call__", RequestIdMiddleware.__call__)  # put back afterwards
    take_fit_request_ids()


@pytest.mark.usefixtures("fit_ids")
@pytest.mark.parametrize("given", ["my-id", None])
async def test_one_request_id_beside_rays_middleware(client: httpx.AsyncClient, given: str | None) -> None:
    response = await client.get("/", headers={"X-Request-Id": given} if given else {})
    (found,) = response.headers.get_list("x-request-id")
    assert found == (given or found) != ""
    assert (response.text, response.headers["x-other"]) == (found, "kept")


UNFIT = ["with space", "{abc}", "x" * 200, "a,b", "", "é"]


@pytest.mark.usefixtures("fit_ids")
@pytest.mark.parametrize("given", UNFIT)
async def test_an_unfit_id_is_replaced_by_one_that_body_and_header_agree_on(
    client: httpx.AsyncClient, given: str
) -> None:
    response = await client.get("/", headers=[(b"X-Request-Id", given.encode())])
    (found,) = response.headers.get_list("x-request-id")
    assert found != given
    assert len(found) == 32
    assert response.text == found


@pytest.mark.usefixtures("fit_ids")
async def test_of_several_ids_the_first_is_taken(client: httpx.AsyncClient) -> None:
    response = await client.get("/", headers=[("X-Request-Id", "first"), ("x-request-id", "with space")])
    assert response.headers.get_list("x-request-id") == [response.text] == ["first"]


@pytest.mark.parametrize("given", UNFIT)
async def test_behind_rays_own_proxy_there_is_one_id_too(client: httpx.AsyncClient, given: str) -> None:
    """Its process is not ours: it repeats what the caller sent."""
    response = await client.get("/", headers=[(b"X-Request-Id", given.encode())])
    assert len(response.headers.get_list("x-request-id")) == 1


def test_a_ray_that_has_changed_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(http_util, "RequestIdMiddleware")
    monkeypatch.setattr("deployments.ray_headers.logger.propagate", True)
    take_fit_request_ids()
    assert "second request id" in caplog.text
