"""The front end: keys, limits, validation, routing, errors. HTTP is here, in plain Starlette; gRPC is in `rpc`. Both
ask `Frontend.serve`. What serves a request is behind `Backend`, so that tests run all of it without Ray.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
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
from serve_app.observability.collector import local_page
from serve_app.observability.exposition import CONTENT_TYPE
from serve_app.observability.note import noting
from serve_app.observability.registry import Reading, Registry
from serve_app.observability.request import Observer
from serve_app.observability.sources import shadow_source
from serve_app.readiness import Readiness
from serve_app.routing import RoutingCounters, RoutingTable, Shadows, Target
from serve_app.settings import GatewaySettings, RoutingSettings
from serve_app.startup import StartTimes

logger = logging.getLogger("ray.serve")

Page = Callable[[Request], Awaitable[Response]]

READINESS_EVERY_S = 5.0
"""Seconds by which `poolserve_model_ready` is late at most."""


class Backend(Protocol):
    """Whatever serves a target: handles to Ray Serve applications, or pipelines in this process."""

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        """Answers a request; cancelling the call ends its work. Raises PoolserveError."""
        ...

    async def canary(self, target: Target, deadline: float) -> Mapping[str, StartTimes] | None:
        """One small request through the target's whole path; how long its stages took to start, if known.

        Raises PoolserveError.
        """
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of a request beside its body, whichever way it came.

    Attributes:
        request_id: the caller's, or a new one.
        deadline: wall-clock seconds at which its time is over.
        headers: HTTP headers or gRPC metadata, names in lower case or found whatever their case.
        fields: the body's, where a sticky key may be; none over gRPC, whose key is in the metadata.
    """

    request_id: str
    deadline: float
    headers: Mapping[str, str]
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Frontend:
    """One request: `serve`, which HTTP (`_answer`) and gRPC (`rpc.server`) share. One table change: `reconfigure`.

    Args:
        settings: the gateway's settings.
        backend: serves the targets.
        versions: names and versions of libraries, for `GET /version`.
        replica: name of this gateway replica, for whoever puts several replicas' counters together.
        observer: watches the requests; None: one that counts only.
        metrics: makes the page of `GET /metrics`; None: of this process alone.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        backend: Backend,
        versions: Mapping[str, str] | None = None,
        replica: str = "local",
        *,
        observer: Observer | None = None,
        metrics: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self.settings = settings
        self._backend = backend
        self._versions = {"poolserve": __version__, **(versions or {})}
        self.limits = Limits(max_documents=settings.max_documents, max_images=settings.max_images)
        self.max_body_bytes = int(settings.max_body_mib * 2**20)
        self.keys = http.Keys(settings.api_keys)
        self._replica = replica
        self._table = RoutingTable(RoutingSettings())
        self._refused: str | None = None
        self.counters = RoutingCounters()
        self._shadows = Shadows(backend.run, self.counters)
        self._in_flight: dict[str, int] = {}
        self.readiness = Readiness(backend.canary)
        self._spec = openapi(__version__)
        self.observer = observer or Observer(Registry())
        self.observer.registry.add_source(self._table_metrics)
        self.observer.registry.add_source(shadow_source(self.counters.snapshot))
        self._make_metrics = metrics or (lambda: local_page(self.observer.registry))

    def reconfigure(self, routing: RoutingSettings) -> None:
        """Takes a new routing table; requests under way keep their target."""
        self._table = RoutingTable(routing)
        self._refused = None
        self._shadows.retain(self._table)
        self.readiness.watch(list(self._table))
        self.observer.expect((target.model, target.version) for target in self._table)

    def refuse(self, complaint: str) -> None:
        """Keeps the table, since the new one is wrong; `GET /v1/models` says so.

        Raises:
            ValueError: there is no table to keep.
        """
        if not list(self._table):
            raise ValueError(f"the routing table is wrong: {complaint}")
        logger.error("the new routing table is wrong and the old one is kept: %s", complaint)
        self._refused = complaint

    async def close(self) -> None:
        """Ends what goes on beside the requests."""
        await self._shadows.close()

    @property
    def documents_in_flight(self) -> int:
        """Documents under way, all models together."""
        return sum(self._in_flight.values())

    def app(self) -> Starlette:
        """The ASGI application."""
        metrics = self.settings.observability.metrics
        routes: list[BaseRoute] = [HttpRoute(route.path, self._endpoint(route), methods=["POST"]) for route in ROUTES]
        # Without a key: what probes ask, which send none, and what is the same on every server and followed as a link.
        pages: dict[str, Page] = {
            "/v1/models": self._with_key(self._models),
            "/v1/routing": self._with_key(self._routing),
            "/health": self._health,
            "/ready": self._ready,
            "/version": self._with_key(self._version),
            "/metrics": self._with_key(self._metrics) if metrics.require_key else self._metrics,
            "/openapi.json": self._openapi,
            "/docs": self._docs,
        }
        routes += [HttpRoute(path, page) for path, page in pages.items()]
        if self.settings.ui:
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

        async def watched(request: Request) -> Response:
            with self.observer.request(route.path, request.headers) as note:
                response = await endpoint(request)
                note.status = response.status_code
                return response

        return watched

    async def _read(self, request: Request) -> dict[str, Any]:
        self.keys.check(request.headers)
        return await http.read_json(request, self.max_body_bytes)

    async def _answer(
        self, request: Request, route: Route, body: Mapping[str, Any], headers: dict[str, str], started: float
    ) -> Response:
        asked = self.asked(request.headers, headers["X-Request-Id"], fields=body)
        call = route.adapter(body, self.limits)
        result = await self.serve(call, asked, headers)
        response = http.json_response(call.render(result, Meta(asked.request_id, int(time.time()))))
        headers["Server-Timing"] = http.server_timing(result.served.timings, (time.perf_counter() - started) * 1e3)
        response.headers.update(headers)
        return response

    def asked(
        self,
        headers: Mapping[str, str],
        request_id: str,
        remaining_s: float | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Asked:
        """A request's facts; `remaining_s`: what a gRPC deadline leaves. Raises InvalidRequest for a bad header."""
        default_ms, max_ms = self.settings.default_timeout_ms, self.settings.max_timeout_ms
        return Asked(request_id, http.deadline(headers, default_ms, max_ms, remaining_s), headers, fields or {})

    async def serve(self, call: Call, asked: Asked, told: dict[str, str]) -> PipelineResult:
        """Routes, admits and runs a request; cancelling ends its work.

        Args:
            call: the request in our words.
            asked: its id, deadline, headers and fields.
            told: gets what the answer says beside its body, an error's answer included; HTTP header names.

        Raises:
            PoolserveError: whatever the caller must be told.
        """
        decision = self._table.route(call.model, call.operation, asked.headers, asked.fields)
        probe = "x-probe" in asked.headers
        if not probe:
            self.counters.decided(decision)
        told |= {"X-Model-Version": decision.target.version, "X-Routing": decision.header(copied=False)}
        note = noting()
        target = decision.target
        note.routed(asked.request_id, target.model, target.version, str(decision.how), call.documents, call.request)
        context = Context(asked.request_id, asked.deadline, call.operation, note.trace)
        result = await self._run(target, call, context, probe=probe)
        self.readiness.answered(target)
        note.answered(result)
        copied = self._shadows.offer(decision, context, call.request, result)
        told |= {"X-Model-Version": result.served.version, "X-Routing": decision.header(copied=copied)}
        if result.served.truncated:
            told["X-Truncated"] = ",".join(map(str, result.served.truncated[:100]))
        if ignored := {*call.ignored, *result.served.ignored} - {decision.sticky_field}:
            told["X-Ignored-Fields"] = ", ".join(sorted(ignored))
        return result

    async def _run(self, target: Target, call: Call, context: Context, *, probe: bool = False) -> PipelineResult:
        """Runs the request on its target; once more, elsewhere, if a replica dies under it.

        probe: it comes from who watches the service, and is no client's: it is not counted.
        """
        with contextlib.nullcontext() if probe else self.counters.answering(target):
            return await self._run_admitted(target, call, context)

    async def _run_admitted(self, target: Target, call: Call, context: Context) -> PipelineResult:
        held, limit = self._in_flight.get(target.application, 0), self.settings.max_documents_in_flight
        if held and held + call.documents > limit:
            raise Overloaded(f"no room now: {held} documents in flight, {call.documents} more would pass {limit}")
        self._in_flight[target.application] = held + call.documents
        note = noting()
        try:
            with self.observer.under_way(note):
                try:
                    return await self._backend.run(target, context, call.request)
                except (ReplicaDied, EngineDead) as error:
                    # Once only: a request that kills replicas must not walk through all of them.
                    logger.warning("request %s: %s; trying once more", context.request_id, error)
                    note.retried = error.code
                    return await self._backend.run(target, context, call.request)
        finally:
            self._in_flight[target.application] -= call.documents

    def _error(self, error: PoolserveError, headers: dict[str, str], tei: bool, started: float) -> Response:
        noting().failed(headers["X-Request-Id"], error)
        timing = {"Server-Timing": http.server_timing({}, (time.perf_counter() - started) * 1e3)}
        return http.error_response(error, {**headers, **timing}, tei=tei)

    # --- the other routes --------------------------------------------------------------------------------------------

    def _with_key(self, page: Page) -> Page:
        async def checked(request: Request) -> Response:
            try:
                self.keys.check(request.headers)
            except PoolserveError as error:
                return http.error_response(error, {"X-Request-Id": http.request_id(request.headers)})
            return await page(request)

        return checked

    def models(self) -> list[dict[str, Any]]:
        """The routing table as `GET /v1/models` lists it."""
        return [
            {
                "id": target.model,
                "object": "model",
                "created": 0,
                "owned_by": "poolserve",
                "version": target.version,
                "task": target.task,
                "application": target.application,
                "state": self.readiness.state(target),
                **self._table.describe(target),
                "last_asked": self.counters.last_asked(target),
                "start_seconds": self.readiness.start_times(target),
            }
            for target in self._table
        ]

    async def _models(self, request: Request) -> Response:
        return http.json_response({"object": "list", "data": self.models(), **self._replica_facts()})

    async def _routing(self, request: Request) -> Response:
        return http.json_response({**self._replica_facts(), **self.counters.snapshot()})

    def _replica_facts(self) -> dict[str, Any]:
        """What differs between replicas: an answer tells of the one that gave it.

        `table` is the digest of the table in force, `refused` why the newest one is not, `since` when counting began.
        """
        return {
            "replica": self._replica,
            "since": self.counters.since,
            "table": self._table.digest,
            "refused": self._refused,
        }

    async def _health(self, request: Request) -> Response:
        return http.json_response({"status": "ok"})

    async def _ready(self, request: Request) -> Response:
        await self.readiness.refresh()
        ready = self.readiness.all_ready()
        models = [{"model": t.model, "version": t.version, "state": self.readiness.state(t)} for t in self._table]
        return http.json_response({"ready": ready, "models": models}, 200 if ready else 503)

    async def _version(self, request: Request) -> Response:
        return http.json_response(self._versions)

    async def _metrics(self, request: Request) -> Response:
        try:
            page = await self._make_metrics()
        except PoolserveError as error:  # no page at all: a part of it would look as if counters had fallen
            return http.error_response(error, {})
        return Response(page, headers={"Content-Type": CONTENT_TYPE})

    async def watch_readiness(self) -> None:
        """Asks the canaries now and then for as long as it runs: nobody may be asking `/ready` of this replica."""
        while True:
            await asyncio.sleep(READINESS_EVERY_S)
            try:
                await self.readiness.refresh()
            except Exception:
                logger.exception("the canaries could not be asked")

    def _table_metrics(self) -> Sequence[Reading]:
        readings = []
        for target in list(self._table):
            labels = (target.model, target.version)
            readings.append(Reading("poolserve_model_ready", float(self.readiness.known_ready(target)), labels))
            readings.append(Reading("poolserve_model_weight", target.weight, labels))
        return readings

    async def _openapi(self, request: Request) -> Response:
        return http.json_response(self._spec)

    async def _docs(self, request: Request) -> Response:
        return HTMLResponse(docs_page(self._spec))

    async def _not_found(self, request: Request, error: Exception) -> Response:
        return http.error_response(NotFound(f"no route {request.url.path[:100]}; see /docs"), {})

    async def _not_allowed(self, request: Request, error: Exception) -> Response:
        return http.error_response(MethodNotAllowed(f"{request.method} is not allowed here; see /docs"), {})
