"""Gateway: the one door. Hands HTTP to the front end, and the front end's calls to the models' applications."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette

from deployments.handles import ask
from deployments.ray_headers import ignore_timeout_header
from serve_app.engine.vllm_options import platform_version
from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.routing import Target
from serve_app.settings import GatewaySettings, RoutingSettings
from serve_app.startup import StartTimes

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
    """Adds to the front end what Ray Serve asks of a deployment: a constructor, `user_config`, an ASGI app."""

    def __init__(self, settings: GatewaySettings) -> None:
        ignore_timeout_header()
        versions = {"ray": ray.__version__, "vllm": platform_version()}
        self._frontend = Frontend(settings, HandleBackend(), versions)

    async def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Takes a new routing table (`settings.RoutingSettings`); nothing restarts."""
        self._frontend.reconfigure(RoutingSettings.model_validate(user_config))

    def __serve_build_asgi_app__(self) -> Starlette:
        return self._frontend.app()
