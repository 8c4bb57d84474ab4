"""The applications: settings in, Ray Serve graph out. `serve_config.yaml` names these three builders."""

# No `from __future__ import annotations`: Ray Serve reads the builders' annotations to validate `args`.

import logging
from typing import Any

from ray import serve
from ray.serve import Application

from deployments.gateway import IO_PROCESSOR, Gateway
from deployments.image_loader import ImageLoader
from deployments.io_processor import IMAGE_LOADER, IOProcessor
from deployments.pooling_engine import PoolingEngine
from serve_app.scaling import ray_config
from serve_app.settings import GatewaySettings, ImageLoaderSettings, ModelSettings, ReplicaSettings

logger = logging.getLogger("ray.serve")

MAX_ONGOING_REQUESTS = 2_000
"""Out of reach on purpose: admission is by documents and tokens, in the gateway and the engine. A deployment that
reaches this limit may drain its queue at 4 requests/s while replicas idle (Ray 2.60)."""

ROUTER = {"initial_backoff_s": 0.005, "backoff_multiplier": 1, "max_backoff_s": 0.01}
"""The other half of the cure for that stall: 20 of 20 bursts of 500 went through clean."""

PARTS_ROUTER = {**ROUTER, "request_router_class": "deployments.parts_router:PartsRouter"}
"""Of the engines: parts of one request go to different replicas."""


def gateway(args: GatewaySettings) -> Application:
    """The gateway's application: HTTP in, one handle call per request out.

    Its routing table is the deployment's `user_config` (`settings.RoutingSettings`).
    """
    logger.info("gateway: %s", args.model_dump_json(exclude={"api_keys"}))
    return _deployment(Gateway, "Gateway", args.replicas, ray_config.GATEWAY).bind(args)


def images(args: ImageLoaderSettings) -> Application:
    """The images' application, shared by all models that take images. Has no HTTP route."""
    logger.info("images: %s", args.model_dump_json())
    targets = ray_config.IMAGE_LOADER
    return _deployment(ImageLoader, IMAGE_LOADER, args.replicas, targets, graceful_shutdown_timeout_s=5.0).bind(args)


def model(args: ModelSettings) -> Application:
    """One model version's application: IOProcessor → PoolingEngine. Has no HTTP route.

    The IOProcessor of a model that takes images calls the images' application as well.
    """
    logger.info("%s: %s", args.application, args.model_dump_json())
    engine = _deployment(
        PoolingEngine,
        "PoolingEngine",
        args.pooling_engine,
        ray_config.engine_targets(args),
        PARTS_ROUTER,
        num_gpus=args.pooling_engine.gpus_per_engine,
        health_check_period_s=args.health.period_s,
        # Ray's own limit must leave the engine's check time to say what is wrong.
        health_check_timeout_s=args.health.canary_timeout_s + 5.0,
        graceful_shutdown_timeout_s=20.0,
    )
    processor = _deployment(IOProcessor, IO_PROCESSOR, args.io_processor, ray_config.IO_PROCESSOR)
    return processor.bind(args, engine.bind(args))


def _deployment(
    cls: type,
    name: str,
    replicas: ReplicaSettings,
    targets: ray_config.Targets,
    router: dict[str, Any] = ROUTER,
    num_gpus: float = 0.0,
    **options: Any,
) -> serve.Deployment:
    """The deployment with the options that all of ours share; `targets`: of autoscaling that names none."""
    actor: dict[str, Any] = {"num_cpus": replicas.num_cpus, "num_gpus": num_gpus, "resources": replicas.resources}
    scale: dict[str, Any] = (
        {"autoscaling_config": ray_config.autoscaling_config(replicas, targets)}
        if replicas.autoscaling is not None
        else {"num_replicas": replicas.fewest}
    )
    return serve.deployment(
        cls,
        name=name,
        ray_actor_options=actor,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        request_router_config=router,
        # A line per call of every stage; the gateway writes one per request.
        logging_config={"enable_access_log": False},
        max_surge_percent=100,  # a redeploy starts new replicas before it stops old ones
        **scale,
        **options,
    )
