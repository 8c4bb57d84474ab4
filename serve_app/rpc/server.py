"""The gRPC server: plain grpc.aio in the gateway's event loop, beside Ray Serve's HTTP. See docs/decisions.md for why.

One RPC: `_answer`, the twin of the front end's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from serve_app import http
from serve_app.api.base import Meta
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.errors import InternalError, PoolserveError, status_of
from serve_app.frontend import Frontend
from serve_app.rpc import answers, status
from serve_app.rpc.health import Health
from serve_app.rpc.operations import RPCS, SERVICE, Rpc, parse
from serve_app.settings import GrpcSettings
from serve_app.vocabulary import Stage

logger = logging.getLogger("ray.serve")

Handler = Callable[[bytes, Any], Awaitable[Message]]


class GrpcServer:
    """The gateway's gRPC side.

    Args:
        frontend: serves what is asked.
        settings: where to listen.
    """

    def __init__(self, frontend: Frontend, settings: GrpcSettings) -> None:
        self._frontend = frontend
        self._settings = settings
        self._health = Health(frontend)
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listens; in the event loop that will serve. Returns the port.

        Raises:
            RuntimeError: the address cannot be listened on.
        """
        settings = self._settings
        server = grpc.aio.server(options=_options(settings, self._frontend.max_body_bytes))
        handlers = {name: _unary(self._endpoint(name, rpc)) for name, rpc in RPCS.items()} | {
            "Models": _unary(self._models)
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE.full_name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        address = f"{settings.host}:{settings.port}"
        try:
            port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise RuntimeError(f"grpc: cannot listen on {address}: {error}") from None
        await server.start()
        self._server = server
        logger.info("gRPC on %s:%d", settings.host, port)
        return int(port)

    async def stop(self) -> None:
        """Takes no new calls, gives those under way `drain_s`, then cancels them."""
        self._health.end()
        if self._server is not None:
            await self._server.stop(self._settings.drain_s)

    # --- one RPC -----------------------------------------------------------------------------------------------------

    def _endpoint(self, name: str, rpc: Rpc) -> Handler:
        async def endpoint(content: bytes, context: grpc.aio.ServicerContext) -> Message:
            started = time.perf_counter()
            headers = _headers(context)
            told = {"X-Request-Id": http.request_id(headers)}
            with self._frontend.observer.request(f"/{SERVICE.full_name}/{name}", headers) as note:
                outcome = await self._outcome(rpc, content, context, headers, told)
                note.status = 200
                if isinstance(outcome, PoolserveError):
                    note.status = status_of(outcome).http
                    note.failed(told["X-Request-Id"], outcome)
            timings = {} if isinstance(outcome, PoolserveError) else outcome.timings
            total_ms = (time.perf_counter() - started) * 1e3
            told["Server-Timing"] = http.server_timing(timings, total_ms)
            if isinstance(outcome, PoolserveError):
                await status.abort(context, outcome, told, told["X-Request-Id"])
            outcome.timings[Stage.TOTAL] = total_ms
            context.set_trailing_metadata(status.metadata_of(told))
            return outcome

        return endpoint

    async def _outcome(
        self,
        rpc: Rpc,
        content: bytes,
        context: grpc.aio.ServicerContext,
        headers: dict[str, str],
        told: dict[str, str],
    ) -> Any:
        """The response message, or the PoolserveError that the caller is told."""
        try:
            return await self._answer(rpc, content, context.time_remaining(), headers, told)
        except PoolserveError as error:
            return error
        except Exception:
            logger.exception("request %s failed", told["X-Request-Id"])
            return InternalError("the request failed; it was logged")

    def _admit(self, content: bytes, headers: dict[str, str]) -> None:
        """The key, then the size. Raises CallerError."""
        self._frontend.keys.check(headers)
        if len(content) > self._frontend.max_body_bytes:
            raise http.too_large(self._frontend.max_body_bytes)

    async def _answer(
        self, rpc: Rpc, content: bytes, remaining_s: float | None, headers: dict[str, str], told: dict[str, str]
    ) -> Message:
        self._admit(content, headers)
        asked = self._frontend.asked(headers, told["X-Request-Id"], remaining_s)
        request, call = rpc.read(content, self._frontend.limits)
        result = await self._frontend.serve(call, asked, told)
        answer: Any = rpc.answer(request, call.render(result, Meta(asked.request_id, int(time.time()))))
        answer.request_id = asked.request_id
        answer.timings.update(result.served.timings)
        return answer

    async def _models(self, content: bytes, context: grpc.aio.ServicerContext) -> Message:
        headers = _headers(context)
        try:
            self._admit(content, headers)
            parse(pb.ModelsRequest, content)
        except PoolserveError as error:
            request_id = http.request_id(headers)
            await status.abort(context, error, {"X-Request-Id": request_id}, request_id)
        return answers.models(self._frontend.models())


def _headers(context: grpc.aio.ServicerContext) -> dict[str, str]:
    """The call's metadata; values that are bytes are none of ours."""
    metadata = context.invocation_metadata() or ()
    return {str(name).lower(): value for name, value in metadata if isinstance(value, str)}


def _unary(handler: Handler) -> grpc.RpcMethodHandler:
    # Requests stay bytes, so that keys are checked before anything is parsed, and what is no message is the caller's
    # error; gRPC itself would answer INTERNAL.
    return grpc.unary_unary_rpc_method_handler(handler, response_serializer=lambda message: message.SerializeToString())


def _options(settings: GrpcSettings, max_bytes: int) -> list[tuple[str, int]]:
    # Above ours: what gRPC itself refuses has no details and no request id, and nobody counts or logs it.
    received = 2 * max_bytes + 2**20
    age_ms = round(settings.max_connection_age_s * 1e3)
    return [
        ("grpc.max_receive_message_length", received),
        ("grpc.max_send_message_length", -1),  # an answer's size is bounded by its request's
        ("grpc.so_reuseport", 1),  # the replicas of a node share the port, the old and the new one during a change too
        ("grpc.max_connection_age_ms", age_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ]
