"""Answers under Ray Serve have one request id. On a cluster: tests/ray/test_default_config.py."""

from __future__ import annotations

import httpx
import pytest
from ray.serve._private.http_util import RequestIdMiddleware
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ray_headers import OneRequestId
from serve_app.http import request_id


async def _answer(request: Request) -> Response:
    return Response("fine", headers={"X-Request-Id": request_id(request.headers), "X-Other": "kept"})


@pytest.mark.parametrize("given", ["my-id", None])
async def test_one_request_id_beside_rays_middleware(given: str | None) -> None:
    app = Starlette(routes=[Route("/", _answer)])
    app.add_middleware(OneRequestId)
    transport = httpx.ASGITransport(RequestIdMiddleware(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://poolserve") as client:
        response = await client.get("/", headers={"X-Request-Id": given} if given else {})
    (found,) = response.headers.get_list("x-request-id")
    assert found == (given or found) != ""
    assert (response.text, response.headers["x-other"]) == ("fine", "kept")
