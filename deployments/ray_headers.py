"""What Ray Serve does with headers and we do not want: power for clients, and a second request id."""

from __future__ import annotations

import logging

from ray.serve._private import http_util, replica
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_app.http import request_id

logger = logging.getLogger("ray.serve")

_NAME = b"x-request-id"


def ignore_timeout_header() -> None:
    """In this replica `x-request-timeout-seconds` no longer sets, or switches off, Ray's own timeout.

    Ray would answer 408 in plain text. Our deadline (`X-Request-Timeout-Ms`) answers 504 as JSON and has a limit. Ray
    2.60 has no setting for this, and HAProxy's template no place for it.
    """
    if not hasattr(replica, "parse_request_timeout_header"):
        logger.warning("Ray Serve has changed: clients can set its timeout by header")
        return
    replica.parse_request_timeout_header = lambda headers, default_timeout_s: default_timeout_s


def take_fit_request_ids() -> None:
    """In this replica Ray Serve, too, takes a caller's `X-Request-Id` only if `serve_app.http.request_id` does.

    Ray's middleware repeats whatever the caller sent, in the answer and in its logs. It runs outside of our
    application, in the process that the client's connection reaches: the replica, behind HAProxy. Ray's own proxy is
    another process and repeats an unfit id all the same; see `OneRequestId`. Ray has no setting for this.
    """
    if not hasattr(http_util, "RequestIdMiddleware"):
        logger.warning("Ray Serve has changed: its answers may have a second request id")
        return
    rays = http_util.RequestIdMiddleware.__call__

    async def call(self: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        await rays(self, with_fit_request_id(scope), receive, send)

    # On the class, since the replica's server may have been built before the application.
    http_util.RequestIdMiddleware.__call__ = call


def with_fit_request_id(scope: Scope) -> Scope:
    """The scope with one `X-Request-Id` at most: the caller's first one, or a new one in place of an unfit one."""
    if scope["type"] != "http" or not any(name.lower() == _NAME for name, _ in scope["headers"]):
        return scope  # Ray makes one
    others = [(name, value) for name, value in scope["headers"] if name.lower() != _NAME]
    return {**scope, "headers": [*others, (_NAME, request_id(Headers(scope=scope)).encode())]}


class OneRequestId:
    """Middleware: leaves `X-Request-Id` out of an answer that Ray Serve will add one to.

    Ray appends the request's own to every answer, and clients join two headers of a name to `a, a`. After
    `take_fit_request_ids` it is the one that we answer with. Behind Ray's own proxy an unfit one of the caller's comes
    back; ours is in the body and the logs.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if not any(name.lower() == _NAME for name, _ in scope["headers"]):
            return await self._app(scope, receive, send)

        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name.lower() != _NAME]
                message = {**message, "headers": kept}
            await send(message)

        return await self._app(scope, receive, send_without)
