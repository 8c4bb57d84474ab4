"""The policy as Ray Serve takes it: its configuration, its own pickling, its context and its wrapper. No cluster."""

from __future__ import annotations

import itertools
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve._private.config import DeploymentConfig
from ray.serve.autoscaling_policy import _apply_autoscaling_config
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from deployments.parts_router import PartsRouter
from serve_app import app as applications
from serve_app.scaling.policy import WorkPolicy
from serve_app.scaling.ray_config import IMAGE_LOADER, autoscaling_config, engine_targets
from serve_app.settings import ModelSettings, ReplicaSettings
from serve_app.vocabulary import Measure
from tests.app.conftest import App
from tests.unit.test_settings import MODEL


def ray_config(**changes: Any) -> AutoscalingConfig:
    replicas = ReplicaSettings.model_validate({"autoscaling": {"max_replicas": 5, "min_replicas": 2} | changes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return AutoscalingConfig(**autoscaling_config(replicas, IMAGE_LOADER))


def context(config: AutoscalingConfig, now: float, figures: dict[str, list[float]], **changes: Any) -> Any:
    values: dict[str, Any] = {
        "deployment_id": None,
        "deployment_name": "d",
        "app_name": "a",
        "current_num_replicas": 2,
        "target_num_replicas": 2,
        "running_replicas": [],
        "total_num_requests": 0.0,
        "total_queued_requests": 0.0,
        "aggregated_metrics": {name: dict(enumerate(values)) for name, values in figures.items()},
        "raw_metrics": {},
        "capacity_adjusted_min_replicas": config.min_replicas,
        "capacity_adjusted_max_replicas": config.max_replicas,
        "policy_state": {},
        "last_scale_up_time": None,
        "last_scale_down_time": None,
        "current_time": now,
        "config": config,
    }
    return AutoscalingContext(**(values | changes))


def test_settings_become_rays() -> None:
    config = ray_config(interval_s=0.2, window_s=1.0)
    assert (config.min_replicas, config.max_replicas) == (2, 5)
    assert (config.metrics_interval_s, config.look_back_period_s) == (0.2, 1.0)
    assert (config.upscale_delay_s, config.downscale_delay_s) == (0.0, 0.0)
    assert config.policy.policy_kwargs["targets"] == {"images": 64.0, "pixels": 50_000_000.0}


def test_an_engine_is_given_two_steps_by_default() -> None:
    assert engine_targets(ModelSettings.model_validate(MODEL)) == {"tokens": 8_192.0}


def test_ray_scales_by_what_replicas_report() -> None:
    config = ray_config(interval_s=0.2, window_s=1.0, upscale_delay_s=1.0, downscale_delay_s=5.0)
    policy = _apply_autoscaling_config(_resolve_policy_callable(config.policy))
    state: dict[str, Any] = {}
    current, seen = 2, []
    for tick in range(600):
        images = 150.0 if tick < 60 else 0.0
        figures = {"images": [images] * current, "busy": [1.0] * current, "pixels": [0.0] * current}
        replicas = {"current_num_replicas": current, "target_num_replicas": current, "policy_state": state}
        current, state = policy(context(config, tick / 10, figures, **replicas))
        current = min(max(current, config.min_replicas), config.max_replicas)
        seen.append(current)
    assert max(seen) == 5
    assert seen[-1] == 2
    steps = [b - a for a, b in itertools.pairwise(seen) if a != b]
    assert steps == sorted(steps, reverse=True)  # all up, then all down


def test_the_controller_needs_none_of_our_packages(tmp_path: Path) -> None:
    """Ray pickles the policy's module by value. The process that unpickles it cannot import the package."""
    file = tmp_path / "policy"
    file.write_bytes(ray_config().policy.get_serialized_policy_def() or b"")
    code = (
        "import sys, cloudpickle\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.startswith('serve_app'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, No())\n"
        f"policy = cloudpickle.loads(open({str(file)!r}, 'rb').read())(targets={{'tokens': 10.0}})\n"
        "class Context:\n"
        "    aggregated_metrics = {'tokens': {'a': 500.0}, 'busy': {'a': 1.0}}\n"
        "    capacity_adjusted_min_replicas, capacity_adjusted_max_replicas = 1, 4\n"
        "    current_num_replicas = target_num_replicas = 1\n"
        "    current_time, policy_state = 1.0, {}\n"
        "replicas, state = policy(Context)\n"
        "Context.policy_state, Context.current_time = state, 100.0\n"
        "print(policy(Context)[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "2\n", done.stderr


@pytest.mark.parametrize(
    ("replicas", "wanted"),
    [
        ({"num_replicas": 2, "engines_per_gpu": 4}, {"num_replicas": 8}),
        ({"autoscaling": {"min_replicas": 1, "max_replicas": 3}, "engines_per_gpu": 3}, {"min": 3, "max": 9}),
    ],
)
def test_engines_per_gpu_multiplies_engines_and_divides_the_gpu(
    replicas: dict[str, Any], wanted: dict[str, int]
) -> None:
    cuda = {"device": "cuda", "gpu_memory_utilization": 0.9, "pooling_engine": {"num_gpus": 1, **replicas}}
    args = ModelSettings.model_validate(MODEL | cuda)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        bound = applications.model(args)
    engine = bound._bound_deployment.init_args[1]._bound_deployment
    options = engine.ray_actor_options
    assert 0.99 < options["num_gpus"] * replicas["engines_per_gpu"] <= 1
    assert args.gpu_memory_per_engine == pytest.approx(0.9 / replicas["engines_per_gpu"])
    config = engine._deployment_config
    if "num_replicas" in wanted:
        assert config.num_replicas == wanted["num_replicas"]
    else:
        assert (config.autoscaling_config.min_replicas, config.autoscaling_config.max_replicas) == (3, 9)


def test_no_metrics_yet_changes_nothing() -> None:
    config = ray_config()
    policy = WorkPolicy(**config.policy.policy_kwargs)
    assert policy(context(config, 1.0, {}, target_num_replicas=3, current_num_replicas=3))[0] == 3
    assert policy(context(config, 1.0, {}, target_num_replicas=3, current_num_replicas=0))[0] == 3


async def test_documents_count_while_they_are_tokenized(app: App) -> None:
    meter = app.backend.pipelines["ce-1"].meter
    before = meter.done[Measure.DOCUMENTS]
    body = {"model": "ce", "query": "fox", "documents": ["a fox"] * 7}
    assert (await app.post("/v1/rerank", body)).status_code == 200
    assert meter.done == {Measure.DOCUMENTS: before + 7}
    assert meter.in_flight == {Measure.DOCUMENTS: 0}
    app.engines["ce"].dead = True  # work of ours is done, whatever the engine says
    assert (await app.post("/v1/rerank", body)).status_code == 503
    assert meter.in_flight == {Measure.DOCUMENTS: 0}
    assert app.frontend.documents_in_flight == 0


@pytest.mark.parametrize("name", ["absa", "clf", "emb"])
async def test_every_task_counts_its_inputs(app: App, name: str) -> None:
    paths = {"absa": ("/v1/absa", "inputs"), "clf": ("/v1/classify", "input"), "emb": ("/v1/embeddings", "input")}
    path, field = paths[name]
    meter = app.backend.pipelines[f"{name}-1"].meter
    before = meter.done[Measure.DOCUMENTS]
    assert (await app.post(path, {"model": name, field: ["a", "b", "c"]})).status_code == 200
    assert meter.done[Measure.DOCUMENTS] - before == (6 if name == "absa" else 3)  # absa: before and after the engine


def test_the_applications_carry_the_policy_and_the_router() -> None:
    scaled = {"autoscaling": {"max_replicas": 3}}
    settings = ModelSettings.model_validate(MODEL | {"io_processor": scaled, "pooling_engine": scaled})
    processor = applications.model(settings)._bound_deployment
    engine = processor.init_args[1]._bound_deployment
    for deployment, targets in ((processor, {"documents": 100.0}), (engine, {"tokens": 8_192.0})):
        sent = DeploymentConfig.from_proto_bytes(deployment._deployment_config.to_proto_bytes())
        assert sent.autoscaling_config is not None
        assert (sent.autoscaling_config.min_replicas, sent.autoscaling_config.max_replicas) == (1, 3)
        assert sent.autoscaling_config.policy.policy_kwargs["targets"] == targets
        assert sent.autoscaling_config.policy.get_policy().__name__ == "WorkPolicy"
        assert hasattr(deployment.func_or_class, "record_autoscaling_stats")
    assert sent.request_router_config.get_request_router_class() is PartsRouter
