"""Every option of the configuration file, with its description. `serve_config.yaml` is the only source of settings.

Each application's `args` block is one of two frozen models: `GatewaySettings` for the gateway, `ModelSettings` for a
model. Unknown keys are refused, and no dtype or limit is implicit.
"""

from __future__ import annotations

from serve_app.settings.common import LATEST, NAME, VERSION, Settings, complaints
from serve_app.settings.engine import (
    AdmissionSettings,
    EngineSettings,
    FakeEngineSettings,
    HealthSettings,
    MaterializedSettings,
)
from serve_app.settings.gateway import GatewaySettings, GrpcSettings
from serve_app.settings.images import ImageLoaderSettings, ImageSettings
from serve_app.settings.model import ModelSettings
from serve_app.settings.observability import (
    AccessLogSettings,
    FeatureLogSettings,
    GatewayObservabilitySettings,
    LogFileSettings,
    MetricsSettings,
    ObservabilitySettings,
    TracingSettings,
)
from serve_app.settings.replicas import AutoscalingSettings, EngineReplicaSettings, ReplicaSettings
from serve_app.settings.routing import ModelRoute, RoutingSettings, ShadowSettings, StickySettings, VersionRoute
from serve_app.settings.tasks import QWEN3_RERANKER, TEMPLATES, AbsaSettings, TemplateSettings

__all__ = [
    "LATEST",
    "NAME",
    "QWEN3_RERANKER",
    "TEMPLATES",
    "VERSION",
    "AbsaSettings",
    "AccessLogSettings",
    "AdmissionSettings",
    "AutoscalingSettings",
    "EngineReplicaSettings",
    "EngineSettings",
    "FakeEngineSettings",
    "FeatureLogSettings",
    "GatewayObservabilitySettings",
    "GatewaySettings",
    "GrpcSettings",
    "HealthSettings",
    "ImageLoaderSettings",
    "ImageSettings",
    "LogFileSettings",
    "MaterializedSettings",
    "MetricsSettings",
    "ModelRoute",
    "ModelSettings",
    "ObservabilitySettings",
    "ReplicaSettings",
    "RoutingSettings",
    "Settings",
    "ShadowSettings",
    "StickySettings",
    "TemplateSettings",
    "TracingSettings",
    "VersionRoute",
    "complaints",
]
