"""Metrics, traces and logs."""

from __future__ import annotations

from pydantic import Field

from serve_app.settings.common import Settings


class MetricsSettings(Settings):
    """What a replica counts, and `GET /metrics`."""

    enabled: bool = Field(default=True, description="Count, report, and answer `/metrics`.")
    interval_s: float = Field(
        default=1.0, gt=0, le=10, description="Seconds between a replica's reports; what `/metrics` is late by at most."
    )
    require_key: bool = Field(default=False, description="Gateway: `/metrics` asks for one of `api_keys`.")


class TracingSettings(Settings):
    """OpenTelemetry. Off without an endpoint; nothing of it is imported then."""

    endpoint: str | None = Field(
        default=None, description="OTLP over HTTP, e.g. `http://otel-collector:4318`; None: no traces."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers of the export, e.g. a token; `env:NAME` reads a variable."
    )
    sample_ratio: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="Gateway: share of the requests without a `traceparent` that are traced; with one, its flag says.",
    )
    service_name: str = Field(default="poolserve", description="`service.name` of the spans.")


class LogFileSettings(Settings):
    """A file of JSON lines, written by a thread of its own. What it cannot take is dropped and counted."""

    max_queue: int = Field(default=10_000, ge=1, description="Records that wait to be written at most.")
    max_queue_mib: float = Field(default=64.0, gt=0, description="MiB that waiting records hold at most, about.")
    rotate_mib: float = Field(default=128.0, gt=0, description="MiB after which a new file is begun.")
    rotate_s: float = Field(default=3_600.0, gt=0, description="Seconds after which a new file is begun.")
    keep_files: int = Field(
        default=10,
        ge=1,
        description="Files kept per gateway replica; the oldest is removed. All files of a replica that has written "
        "nothing for `keep_files` × `rotate_s`, and for a day at least, are removed by others of the same folder: turn "
        "a feature log into Parquet more often than that.",
    )


class AccessLogSettings(LogFileSettings):
    """One JSON line per request, none per document; no texts and no URLs."""

    enabled: bool = Field(default=True, description="Write it.")
    folder: str | None = Field(
        default=None,
        description="Folder of the files; None: where Ray Serve logs (`/tmp/ray/session_latest/logs/serve`).",
    )


class FeatureLogSettings(LogFileSettings):
    """Requests and their scores, for offline work. Opt-in."""

    folder: str | None = Field(default=None, description="Folder of the files; None: no feature log.")
    texts: bool = Field(
        default=False, description="Write texts and URLs as they are; false: their BLAKE3 hashes (32 hex digits)."
    )
    sample_ratio: float = Field(default=1.0, ge=0, le=1, description="Share of the requests that is written.")


class ObservabilitySettings(Settings):
    """What is seen of a replica from outside."""

    metrics: MetricsSettings = Field(default_factory=MetricsSettings, description="Counting and `/metrics`.")
    tracing: TracingSettings = Field(
        default_factory=TracingSettings, description="OpenTelemetry; every application that shall have spans needs it."
    )


class GatewayObservabilitySettings(ObservabilitySettings):
    """What is seen of the gateway, and what it writes down."""

    access_log: AccessLogSettings = Field(default_factory=AccessLogSettings, description="One JSON line per request.")
    feature_log: FeatureLogSettings = Field(default_factory=FeatureLogSettings, description="Requests and scores.")
