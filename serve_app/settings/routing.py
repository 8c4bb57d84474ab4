"""The routing table: the gateway's `user_config`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from serve_app.settings.common import LATEST, Settings
from serve_app.vocabulary import Task


class VersionRoute(Settings):
    """One version in the routing table."""

    application: str = Field(description="Ray Serve application that serves it.")
    task: Task = Field(description="The model's task; says which routes it answers.")
    weight: float = Field(
        default=1.0, ge=0, allow_inf_nan=False, description="Share of the traffic that names no version."
    )


class StickySettings(Settings):
    """Where a request's key is. Requests with the same key get the same version for as long as the weights allow."""

    header: str = Field(
        default="X-Sticky-Key", pattern=r"^[A-Za-z0-9-]{1,64}$", description="Header that holds the key."
    )
    field: Literal["user", "client_name", "cache_salt"] | None = Field(
        default=None, description="Field of the body that holds the key of requests without the header."
    )
    salt: str = Field(
        default="", description="Goes into the hash; changing it deals all keys anew. Empty: the model's name."
    )


class ShadowSettings(Settings):
    """Copies of a model's requests to another of its versions, whose answers are compared and dropped. Requests that
    name their version are not copied."""

    version: str = Field(description="Version that gets the copies.")
    share: float = Field(default=1.0, gt=0, le=1, description="Share of the requests that are copied.")
    max_in_flight: int = Field(
        default=8, ge=1, description="Copies that one gateway replica has under way; further ones are dropped."
    )
    timeout_ms: int = Field(default=10_000, ge=1, description="Milliseconds after which a copy is given up.")


class ModelRoute(Settings):
    """One model in the routing table."""

    versions: dict[str, VersionRoute] = Field(min_length=1, description="Versions by name.")
    latest: str | None = Field(
        default=None, description="Version that `name@latest` means; None: the greatest, with 9 below 10."
    )
    sticky: StickySettings | None = Field(
        default=None, description="Choose by the caller's key instead of by chance; None: by chance."
    )
    shadow: ShadowSettings | None = Field(default=None, description="Copies to another version; None: none.")
    default: bool = Field(
        default=False, description="Serves requests that name no model, where several models are made for them."
    )

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if not any(version.weight > 0 for version in self.versions.values()):
            raise ValueError("versions: at least one needs a weight above 0")
        if LATEST in self.versions:
            raise ValueError(f"versions: '{LATEST}' cannot be a version's name")
        for field, version in (("latest", self.latest), ("shadow.version", self.shadow and self.shadow.version)):
            if version is not None and version not in self.versions:
                raise ValueError(f"{field}: there is no version '{version}' in the table")
        return self


class RoutingSettings(Settings):
    """The gateway's `user_config`; Ray Serve replaces it without a restart."""

    models: dict[str, ModelRoute] = Field(default_factory=dict, description="Models by name.")
