"""The standard health service (grpc.health.v1), on the canaries that `GET /ready` runs.

Service names: "" and `poolserve.v1.Poolserve`: every routed model version answers; `MODEL` or `MODEL@VERSION`: that one
does. As with HTTP, no key is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serve_app.frontend import Frontend
from serve_app.readiness import State
from serve_app.rpc.operations import SERVICE

WATCH_EVERY_S = 2.0
"""Seconds between two looks of a `Watch`."""
ALL = ("", SERVICE.full_name)

_Status = health_pb2.HealthCheckResponse.ServingStatus


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # grpc ships no types
    """Check, List and Watch.

    Args:
        frontend: whose readiness is told.
    """

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._ending = asyncio.Event()

    def end(self) -> None:
        """From now on nothing serves; `Watch`es are told and end."""
        self._ending.set()

    async def statuses(self) -> dict[str, int]:
        """Status by service name, from canaries that are a second old at most."""
        readiness = self._frontend.readiness
        await readiness.refresh()
        serves: dict[str, bool] = {}
        for row in self._frontend.models():
            ready = row["state"] == State.READY
            serves[f"{row['id']}@{row['version']}"] = ready
            # Of versions that get no traffic the model's own state does not depend.
            if row["weight"] > 0:
                serves[row["id"]] = serves.get(row["id"], True) and ready
        serves |= dict.fromkeys(ALL, readiness.all_ready())
        up = not self._ending.is_set()
        return {name: _Status.SERVING if up and ready else _Status.NOT_SERVING for name, ready in serves.items()}

    async def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """One service's status; NOT_FOUND for a name that is not served."""
        status = (await self.statuses()).get(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service or model '{request.service[:100]}'")
        return health_pb2.HealthCheckResponse(status=status)

    async def List(
        self, request: health_pb2.HealthListRequest, context: grpc.aio.ServicerContext
    ) -> health_pb2.HealthListResponse:
        """All statuses."""
        found = await self.statuses()
        return health_pb2.HealthListResponse(
            statuses={name: health_pb2.HealthCheckResponse(status=status) for name, status in found.items()}
        )

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """One service's status, again at each change; SERVICE_UNKNOWN while the name is not served."""
        last = None
        while True:
            ending = self._ending.is_set()
            status = (await self.statuses()).get(request.service, _Status.SERVICE_UNKNOWN)
            if status != last:
                last = status
                yield health_pb2.HealthCheckResponse(status=status)
            if ending:
                return
            try:
                await asyncio.wait_for(self._ending.wait(), WATCH_EVERY_S)
            except TimeoutError:
                continue
