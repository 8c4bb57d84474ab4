"""Images: what a model says of them, and the ImageLoader."""

from __future__ import annotations

import ipaddress
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from serve_app.scaling.targets import IMAGE_LOADER
from serve_app.settings.common import Settings
from serve_app.settings.observability import ObservabilitySettings
from serve_app.settings.replicas import ReplicaSettings


class ImageSettings(Settings):
    """How a model that takes images gets them."""

    loader: str = Field(default="images", description="Ray Serve application of the ImageLoader.")
    scaled_decoding: bool = Field(
        default=True,
        description="Let libjpeg decode large JPEGs at a fraction of their size before the resize: up to four times "
        "as fast, scores differ slightly from decoding whole (docs/images.md says by how much).",
    )
    vector_cache: int = Field(
        default=50_000,
        ge=0,
        description="Dual encoders: image vectors that an IOProcessor replica keeps, by content hash.",
    )
    url_ttl_s: float = Field(
        default=600.0, ge=0, description="Seconds for which an IOProcessor takes a URL to hold the image it held."
    )
    device_cache: int = Field(
        default=1_024, ge=1, description="Fusion rankers: images whose features stay on the engine's device."
    )
    host_cache_gib: float = Field(
        default=1.0, ge=0, description="GiB of pixels that the engine keeps, so that an image is not sent again."
    )
    mode: Literal["query", "pair"] = Field(
        default="query",
        description="Fusion rankers: `query` puts a query and up to `images_per_sequence` images into one sequence; "
        "`pair` makes a sequence per image, and allows chunked prefill and prefix caching.",
    )
    images_per_sequence: int = Field(
        default=128, ge=1, description="Fusion rankers in mode `query`: images of one sequence."
    )


class ImageLoaderSettings(Settings):
    """The `args` of the images' application, whose ImageLoader all models share. Limits are per replica."""

    allow_urls: bool = Field(default=True, description="Fetch images by URL; false: only bytes in the request.")
    allow_hosts: tuple[str, ...] = Field(
        default=(),
        description="Host names that may have private addresses, e.g. an image store in the cluster; `*.example.org` "
        "matches names below it. Others need a public address.",
    )
    allow_networks: tuple[str, ...] = Field(
        default=(), description="Networks in CIDR form (`10.1.0.0/16`) whose addresses count as public."
    )
    allow_ports: tuple[int, ...] = Field(default=(80, 443), description="Ports that a URL may name; empty: any.")
    max_redirects: int = Field(default=3, ge=0, le=10, description="Redirects followed per image; each is checked.")
    timeout_ms: int = Field(
        default=1_500, ge=1, description="Milliseconds for one image from the look-up of its name to its last byte."
    )
    connections: int = Field(default=100, ge=1, description="Connections in all.")
    connections_per_host: int = Field(default=32, ge=1, description="Connections to one host.")
    max_image_mib: float = Field(default=10.0, gt=0, description="MiB of one image as it is sent or fetched.")
    max_image_pixels: int = Field(
        default=50_000_000, ge=1, description="Pixels of one image; read from its header before it is decoded."
    )
    max_pixels_in_flight: int = Field(
        default=100_000_000,
        ge=1,
        description="Pixels being decoded at the same time; others wait. About 4 bytes of memory each.",
    )
    max_mib_in_flight: float = Field(
        default=256.0, gt=0, description="MiB of fetched and not yet decoded images; further fetches wait."
    )
    cache_mib: float = Field(default=256.0, ge=0, description="MiB of decoded pictures kept; 0: none.")
    cache_ttl_s: float = Field(
        default=600.0, gt=0, description="Seconds for which a URL is taken to hold the same image."
    )
    user_agent: str = Field(default="poolserve", description="`User-Agent` of fetches.")
    observability: ObservabilitySettings = Field(
        default_factory=ObservabilitySettings, description="Metrics and traces."
    )
    replicas: ReplicaSettings = Field(default_factory=ReplicaSettings, description="Replicas of the ImageLoader.")

    @field_validator("allow_networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            ipaddress.ip_network(network)
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.max_image_pixels > self.max_pixels_in_flight:
            raise ValueError("max_pixels_in_flight: less than max_image_pixels, so the largest image never fits")
        if self.max_image_mib > self.max_mib_in_flight:
            raise ValueError("max_mib_in_flight: less than max_image_mib, so the largest image never fits")
        self.replicas.check_target("replicas", IMAGE_LOADER)
        return self
