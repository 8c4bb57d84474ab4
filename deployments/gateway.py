"""Gateway: the one door. HTTP and gRPC go to the front end, its calls to the models' applications."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from pydantic import ValidationError
from ray import serve
from ray.serve._private.logging_utils import get_serve_logs_dir
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette

from deployments.handles import ask
from deployments.metrics import Reporting
from deployments.ray_headers import OneRequestId, ignore_timeout_header, take_fit_request_ids
from serve_app.engine.vllm_options import platform_version
from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.observability.request import make_observer
from serve_app.routing import Target
from serve_app.rpc.server import GrpcServer
from serve_app.settings import GatewaySettings, RoutingSettings, complaints
from serve_app.startup import StartTimes, freeze
from serve_app.vocabulary import Measure

IO_PROCESSOR = "IOProcessor"
"""Name of the deployment that every model's application has."""


class HandleBackend:
    """The models' Ray Serve applications as the front end's backend."""

    def __init__(self) -> None:
        self._handles: dict[str, DeploymentHandle] = {}

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        """See `Backend.run`."""
        handle = self._handle(target.application)
        return await ask(handle, "run", context, request, deadline=context.deadline)  # type: ignore[no-any-return]

    async def canary(self, target: Target, deadline: float) -> Mapping[str, StartTimes] | None:
        """See `Backend.canary`; also warms the handle, whose first call costs 75-180 ms."""
        handle = self._handle(target.application)
        return await ask(handle, "canary", deadline, deadline=deadline)  # type: ignore[no-any-return]

    def _handle(self, application: str) -> DeploymentHandle:
        """The application's handle, kept for ever: it survives the application's removal and return."""
        handle = self._handles.get(application)
        if handle is None:
            # The public get_app_handle blocks the event loop for 1.4-5 ms and fails while the application is absent.
            handle = serve.get_deployment_handle(IO_PROCESSOR, application, _check_exists=False)
            self._handles[application] = handle
        return handle


@serve.ingress()
class Gateway:
    """Adds to the front end what Ray Serve asks of a deployment: a constructor, `user_config`, an ASGI app, an end."""

    def __init__(self, settings: GatewaySettings) -> None:
        ignore_timeout_header()
        take_fit_request_ids()
        versions = {"ray": ray.__version__, "vllm": platform_version()}
        self._reporting = Reporting(settings.observability, "Gateway")
        self._reporting.add_build()
        registry, replica = self._reporting.registry, self._reporting.replica
        self._watching: asyncio.Task[None] | None = None
        self._observer = make_observer(settings.observability, registry, replica, log_folder())
        self._frontend = Frontend(
            settings, HandleBackend(), versions, replica, observer=self._observer, metrics=self._reporting.page
        )
        self._grpc = GrpcServer(self._frontend, settings.grpc) if settings.grpc is not None else None
        self._listening = False
        freeze()

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes a new routing table (`settings.RoutingSettings`); nothing restarts.

        A wrong table is refused and the old one kept: an error from here would make Ray Serve replace the replica. One
        that starts with a wrong table has none to keep and fails, which leaves the replicas of before in place.
        """
        try:
            routing = RoutingSettings.model_validate(user_config)
        except ValidationError as error:
            self._frontend.refuse(complaints(error))
            return
        self._frontend.reconfigure(routing)
        if self._watching is None:
            self._watching = asyncio.create_task(self._frontend.watch_readiness())
        # Not before there is a table: this replica may share its port with one that serves.
        if self._grpc is not None and not self._listening:
            await self._grpc.start()
            self._listening = True

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Called by Ray Serve when the gateway's replicas follow its work."""
        return {str(Measure.DOCUMENTS): float(self._frontend.documents_in_flight)}

    def __serve_build_asgi_app__(self) -> Starlette:
        app = self._frontend.app()
        app.add_middleware(OneRequestId)
        return app

    async def __del__(self) -> None:
        """Drains gRPC, ends what goes on beside the requests, then Starlette's lifespan. Ray Serve awaits this."""
        if (server := getattr(self, "_grpc", None)) is not None:
            await server.stop()
        if (frontend := getattr(self, "_frontend", None)) is not None:
            if self._watching is not None:
                self._watching.cancel()
            await frontend.close()
            self._observer.close()
            self._reporting.close()
        await super().__del__()  # type: ignore[misc]  # of the class that `serve.ingress` adds


def log_folder() -> Path:
    """Where Ray Serve logs."""
    return Path(get_serve_logs_dir())
