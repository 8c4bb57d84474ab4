"""Our settings as Ray Serve's `autoscaling_config`."""

from __future__ import annotations

from typing import Any

from serve_app.scaling.targets import GATEWAY, IMAGE_LOADER, IO_PROCESSOR, Targets, pooling_engine
from serve_app.settings import ModelSettings, ReplicaSettings

__all__ = ["GATEWAY", "IMAGE_LOADER", "IO_PROCESSOR", "Targets", "autoscaling_config", "engine_targets"]

POLICY = "serve_app.scaling.policy:WorkPolicy"


def engine_targets(settings: ModelSettings) -> Targets:
    """Of an engine of this model."""
    return pooling_engine(settings.max_num_batched_tokens)


def autoscaling_config(replicas: ReplicaSettings, default: Targets) -> dict[str, Any]:
    """The deployment's `autoscaling_config`, of replicas that have `autoscaling`.

    Args:
        replicas: the deployment's.
        default: the targets when the settings name none.
    """
    settings = replicas.autoscaling
    assert settings is not None
    targets = default if settings.target is None else settings.target
    return {
        "min_replicas": replicas.fewest,
        "max_replicas": replicas.most,
        "metrics_interval_s": settings.interval_s,
        "look_back_period_s": settings.window_s,
        # The policy has both delays itself; see WorkPolicy.
        "upscale_delay_s": 0.0,
        "downscale_delay_s": 0.0,
        "policy": {
            "policy_function": POLICY,
            "policy_kwargs": {
                "targets": {str(measure): float(target) for measure, target in targets.items()},
                "upscale_delay_s": settings.upscale_delay_s,
                "downscale_delay_s": settings.downscale_delay_s,
                "tolerance": settings.tolerance,
                "utilization": settings.utilization,
                "settle_s": settings.window_s + settings.interval_s,
            },
        },
    }
