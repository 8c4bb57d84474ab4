"""The gateway: the `args` of its application."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from serve_app.scaling.targets import GATEWAY
from serve_app.settings.common import Settings
from serve_app.settings.observability import GatewayObservabilitySettings
from serve_app.settings.replicas import ReplicaSettings


class GrpcSettings(Settings):
    """The gateway's gRPC server. Each replica of the gateway listens for itself; those of a node share the port."""

    host: str = Field(default="127.0.0.1", description="Address to listen on; `0.0.0.0` or `[::]` for all.")
    port: int = Field(default=9000, ge=1, le=65_535, description="Port to listen on.")
    max_connection_age_s: float = Field(
        default=300.0,
        gt=0,
        description="Seconds after which a connection is asked to end, its calls undisturbed, so that clients spread "
        "over the replicas again.",
    )
    drain_s: float = Field(
        default=10.0, ge=0, description="Seconds that calls under way get when a replica of the gateway ends."
    )


class GatewaySettings(Settings):
    """The `args` of the gateway's application."""

    max_body_mib: float = Field(default=16.0, gt=0, description="MiB of a request's body; checked while reading.")
    max_documents: int = Field(default=1_000, ge=1, description="Documents, or inputs, of one request.")
    max_images: int = Field(default=200, ge=0, description="Images of one request; 0: none are taken.")
    max_documents_in_flight: int = Field(
        default=4_000,
        ge=1,
        description="Documents that one gateway replica has under way per model version; more gets 429 at once.",
    )
    default_timeout_ms: int = Field(
        default=30_000, ge=1, description="Deadline of a request without `X-Request-Timeout-Ms`."
    )
    max_timeout_ms: int = Field(default=300_000, ge=1, description="Longest deadline that a client can ask for.")
    api_keys: tuple[str, ...] = Field(
        default=(), description="Accepted Bearer keys; empty: no key is asked for. `env:NAME` reads a variable."
    )
    grpc: GrpcSettings | None = Field(
        default=None, description="gRPC beside HTTP, with the same limits and keys; None: HTTP only."
    )
    observability: GatewayObservabilitySettings = Field(
        default_factory=GatewayObservabilitySettings, description="Metrics, traces and logs."
    )
    ui: bool = Field(default=True, description="Serve the page at `/ui`. It needs no key; what it calls does.")
    replicas: ReplicaSettings = Field(default_factory=ReplicaSettings, description="Replicas of the gateway.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_documents > self.max_documents_in_flight:
            raise ValueError("max_documents_in_flight: less than max_documents, so the largest request never fits")
        if self.default_timeout_ms > self.max_timeout_ms:
            raise ValueError("default_timeout_ms: more than max_timeout_ms")
        self.replicas.check_target("replicas", GATEWAY, documents=self.max_documents_in_flight)
        return self
