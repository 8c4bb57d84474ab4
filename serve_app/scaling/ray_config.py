"""Our settings as Ray Serve's `autoscaling_config`."""

from __future__ import annotations

from typing import Any

from serve_app.settings import ModelSettings, ReplicaSettings
from serve_app.vocabulary import Measure

POLICY = "serve_app.scaling.policy:WorkPolicy"

Targets = dict[Measure, float]

GATEWAY: Targets = {Measure.DOCUMENTS: 1_000}
"""A gateway parses and renders some 20,000 documents a second; half its limit of 2,000 open requests of one each."""
IMAGE_LOADER: Targets = {Measure.IMAGES: 64, Measure.PIXELS: 50_000_000}
"""Twice the connections to one host; half the pixels that a replica decodes at the same time."""
IO_PROCESSOR: Targets = {Measure.DOCUMENTS: 100}
"""About 40 ms of tokenizing on one thread."""


def engine_targets(settings: ModelSettings) -> Targets:
    """Two steps of the engine: one that runs and one that is ready. Less leaves it idle, more is a queue."""
    return {Measure.TOKENS: 2.0 * settings.max_num_batched_tokens}


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
