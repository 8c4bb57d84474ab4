"""The HTTP front end: keys, limits, validation, routing, errors. Plain Starlette; what serves a request is behind
`Backend`, so that tests run all of it without Ray.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute
from starlette.routing import Route as HttpRoute

from serve_app import __version__, http, ui
from serve_app.api.base import Call, Limits, Meta
from serve_app.api.openapi import docs_page, openapi
from serve_app.api.routes import ROUTES, Route, answers_tei
from serve_app.errors import (
    EngineDead,
    InternalError,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    PoolserveError,
    ReplicaDied,
)
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.readiness import Readiness
from serve_app.routing import RoutingTable, Target
from serve_app.settings import GatewaySettings, RoutingSettings

logger = logging.getLogger("ray.serve")


class Backend(Protocol):
    """Whatever serves a target: handles to Ray Serve applications, or pipelines in this process."""

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        """Answers a request; cancelling the call ends its work. Raises PoolserveError."""
        ...

    async def canary(self, target: Target, deadline: float) -> None:
        """One small request through the target's whole path. Raises PoolserveError."""
        ...


class Frontend:
    """One request: `_answer`. One table change: `reconfigure`.

    Args:
        settings: the gateway's settings.
        backend: serves the targets.
        versions: names and versions of libraries, for `GET /version`.
    """

    def __init__(self, settings: GatewaySettings, backend: Backend, versions: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        self._backend = backend
        self._versions = {"poolserve": __version__, **(versions or {})}
        self._limits = Limits(max_documents=settings.max_documents, max_images=settings.max_images)
        self._keys = http.Keys(settings.api_keys)
        self._table = RoutingTable(RoutingSettings())
        self._in_flight: dict[str, int] = {}
        self._readiness = Readiness(backend.canary)
        self._spec = openapi(__version__)

    def reconfigure(self, routing: RoutingSettings) -> None:
        """Takes a new routing table; requests under way keep their target."""
        self._table = RoutingTable(routing)
        self._readiness.watch(list(self._table))

    def app(self) -> Starlette:
        """The ASGI application."""
        routes: list[BaseRoute] = [HttpRoute(route.path, self._endpoint(route), methods=["POST"]) for route in ROUTES]
        pages: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/v1/models": self._models,
            "/health": self._health,
            "/ready": self._ready,
            "/version": self._version,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
        }
        routes += [HttpRoute(path, page) for path, page in pages.items()]
        if self._settings.ui:
            routes += ui.routes()
        handlers: dict[Any, Any] = {404: self._not_found, 405: self._not_allowed}
        return Starlette(routes=routes, exception_handlers=handlers)

    # --- one request -------------------------------------------------------------------------------------------------

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            started = time.perf_counter()
            headers = {"X-Request-Id": http.request_id(request.headers)}
            body: dict[str, Any] = {}
            try:
                body = await self._read(request)
                return await self._answer(request, route, body, headers, started)
            except PoolserveError as error:
                return self._error(error, headers, answers_tei(route, body), started)
            except http.ClientDisconnect:
                return Response(status_code=499)
            except Exception:
                logger.exception("request %s failed", headers["X-Request-Id"])
                ours = InternalError("the request failed; it was logged")
                return self._error(ours, headers, answers_tei(route, body), started)

        return endpoint

    async def _read(self, request: Request) -> dict[str, Any]:
        self._keys.check(request.headers)
        return await http.read_json(request, int(self._settings.max_body_mib * 2**20))

    async def _answer(
        self, request: Request, route: Route, body: Mapping[str, Any], headers: dict[str, str], started: float
    ) -> Response:
        deadline = http.deadline(request.headers, self._settings.default_timeout_ms, self._settings.max_timeout_ms)
        call = route.adapter(body, self._limits)
        target = self._table.resolve(call.model, call.operation)
        headers["X-Model-Version"] = target.version
        context = Context(headers["X-Request-Id"], deadline, call.operation)
        result = await self._run(target, call, context)
        if result.served.truncated:
            headers["X-Truncated"] = ",".join(map(str, result.served.truncated[:100]))
        if call.ignored:
            headers["X-Ignored-Fields"] = ", ".join(call.ignored)
        response = http.json_response(call.render(result, Meta(context.request_id, int(time.time()))))
        headers["Server-Timing"] = http.server_timing(result.served.timings, (time.perf_counter() - started) * 1e3)
        response.headers.update(headers)
        return response

    async def _run(self, target: Target, call: Call, context: Context) -> PipelineResult:
        """Runs the request on its target; once more, elsewhere, if a replica dies under it."""
        held, limit = self._in_flight.get(target.application, 0), self._settings.max_documents_in_flight
        if held and held + call.documents > limit:
            raise Overloaded(f"no room now: {held} documents in flight, {call.documents} more would pass {limit}")
        self._in_flight[target.application] = held + call.documents
        try:
            try:
                return await self._backend.run(target, context, call.request)
            except (ReplicaDied, EngineDead) as error:
                # Once only: a request that kills replicas must not walk through all of them.
                logger.warning("request %s: %s; trying once more", context.request_id, error)
                return await self._backend.run(target, context, call.request)
        finally:
            self._in_flight[target.application] -= call.documents

    def _error(self, error: PoolserveError, headers: dict[str, str], tei: bool, started: float) -> Response:
        timing = {"Server-Timing": http.server_timing({}, (time.perf_counter() - started) * 1e3)}
        return http.error_response(error, {**headers, **timing}, tei=tei)

    # --- the other routes --------------------------------------------------------------------------------------------

    async def _models(self, request: Request) -> Response:
        data = [
            {
                "id": target.model,
                "object": "model",
                "created": 0,
                "owned_by": "poolserve",
                "version": target.version,
                "task": target.task,
                "weight": target.weight,
                "application": target.application,
                "state": self._readiness.state(target),
            }
            for target in self._table
        ]
        return http.json_response({"object": "list", "data": data})

    async def _health(self, request: Request) -> Response:
        return http.json_response({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        await self._readiness.refresh()
        ready = self._readiness.all_ready()
        models = [{"model": t.model, "version": t.version, "state": self._readiness.state(t)} for t in self._table]
        return http.json_response({"ready": ready, "models": models}, 200 if ready else 503)

    async def _version(self, request: Request) -> Response:
        return http.json_response(self._versions)

    async def _openapi(self, request: Request) -> Response:
        return http.json_response(self._spec)

    async def _docs(self, request: Request) -> Response:
        return HTMLResponse(docs_page(self._spec))

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return http.error_response(NotFound(f"no route {request.url.path[:100]}; see /docs"), {})

    async def _not_allowed(self, request: Request, error: Exception) -> Response:
        return http.error_response(MethodNotAllowed(f"{request.method} is not allowed here; see /docs"), {})
