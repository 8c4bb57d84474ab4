"""What Ray Serve does with headers and we do not want: power for clients, and a second request id."""

from __future__ import annotations

import logging

from ray.serve._private import replica
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("ray.serve")


def ignore_timeout_header() -> None:
    """In this replica `x-request-timeout-seconds` no longer sets, or switches off, Ray's own timeout.

    Ray would answer 408 in plain text. Our deadline (`X-Request-Timeout-Ms`) answers 504 as JSON and has a limit. Ray
    2.60 has no setting for this, and HAProxy's template no place for it.
    """
    if not hasattr(replica, "parse_request_timeout_header"):
        logger.warning("Ray Serve has changed: clients can set its timeout by header")
        return
    replica.parse_request_timeout_header = lambda headers, default_timeout_s: default_timeout_s


class OneRequestId:
    """Middleware: leaves `X-Request-Id` out of an answer that Ray Serve will add the same one to.

    Ray appends the request's own to every answer, and clients join two headers of a name to `a, a`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        name = b"x-request-id"
        asked = [value for key, value in scope["headers"] if key.lower() == name]

        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(key, value) for key, value in message["headers"] if key.lower() != name or value not in asked]
                message = {**message, "headers": kept}
            await send(message)

        return await self._app(scope, receive, send_without)
