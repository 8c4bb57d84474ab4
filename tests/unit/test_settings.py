"""Settings: described, frozen, strict, consistent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app import settings as module
from serve_app.settings import GatewaySettings, ImageLoaderSettings, ModelSettings, ReplicaSettings, Settings

MODEL: dict[str, Any] = {
    "name": "ce",
    "version": "1",
    "source": "org/model",
    "task": "rerank",
    "device": "cpu",
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 4096,
}
CUDA = {"device": "cuda", "gpu_memory_utilization": 0.4, "pooling_engine": {"num_gpus": 0.5}}


def _classes(cls: type[Settings] = Settings) -> Iterator[type[Settings]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _classes(sub)


@pytest.mark.parametrize("cls", list(_classes()), ids=lambda c: c.__name__)
def test_every_field_is_described_and_unknown_keys_are_refused(cls: type[Settings]) -> None:
    assert cls.__module__.startswith(f"{module.__name__}.")
    assert cls.__name__ in module.__all__
    for name, field in cls.model_fields.items():
        assert field.description, f"{cls.__name__}.{name}"
    assert cls.model_config["extra"] == "forbid"
    assert cls.model_config["frozen"] is True


@pytest.mark.parametrize("missing", sorted(MODEL))
def test_nothing_that_matters_has_a_default(missing: str) -> None:
    values = {key: value for key, value in MODEL.items() if key != missing}
    with pytest.raises(ValidationError, match=missing):
        ModelSettings.model_validate(values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "auto"}, "dtype"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"max_model_len": 8192}, "an input must fit one step"),
        ({"device": "cuda"}, "gpu_memory_utilization: required"),
        ({**CUDA, "pooling_engine": {}}, "num_gpus: must be above 0"),
        ({**CUDA, "gpu_memory_utilization": 0.95}, "less than or equal to 0.9"),
        ({"pooling_engine": {"num_gpus": 1}}, "device is cpu"),
        ({**CUDA, "pooling_engine": {"num_gpus": 1.5}}, "num_gpus: 1.5; above 1 Ray gives whole GPUs only"),
        (
            {**CUDA, "engine": {"tensor_parallel_size": 2}, "pooling_engine": {"num_gpus": 1}},
            "pooling_engine.num_gpus: engine.tensor_parallel_size 2 needs as many GPUs, and it is 1",
        ),
        ({**CUDA, "pooling_engine": {"num_gpus": 0.5, "engines_per_gpu": 2}}, "engines_per_gpu: needs num_gpus: 1"),
        ({"engine": {"kind": "torch"}, "template": "qwen3-reranker"}, "template: engine.kind torch has none"),
        ({"engine": {"kind": "torch", "hf_overrides": {"a": 1}}}, "engine.hf_overrides: engine.kind torch has none"),
        ({"engine": {"kind": "torch"}, "task": "image_rank"}, "engine.kind: torch has no task image_rank"),
        ({"template": "nope"}, "known: qwen3-reranker"),
        ({"template": {"prefix": "", "head": "no field", "suffix": "", "instruction": ""}}, "must contain {query}"),
        ({"task": "embed", "template": "qwen3-reranker"}, "only a reranker"),
        ({"prompts": {"query": "q: "}}, "prompts: only for task embed"),
        ({"absa": {"threshold": 0.5}}, "absa: only for task absa"),
        ({"task": "absa", "absa": {"stride": 257}}, "more than half of max_model_len 512"),
        ({"task": "absa", "absa": {"aggregation": "simple"}}, "aggregation"),
        ({"name": "a@b"}, "no @"),
        ({"version": ""}, "letters"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSettings.model_validate(MODEL | change)


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ({"num_replicas": 2, "autoscaling": {"max_replicas": 3}}, "num_replicas: autoscaling is set as well"),
        ({"num_replicas": 1, "autoscaling": {"max_replicas": 3}}, "num_replicas: autoscaling is set as well"),
        ({"autoscaling": {}}, "max_replicas"),
        ({"autoscaling": {"min_replicas": 4, "max_replicas": 3}}, "max_replicas: 3 is less than min_replicas 4"),
        ({"autoscaling": {"min_replicas": 0, "max_replicas": 3}}, "greater than or equal to 1"),
        ({"autoscaling": {"max_replicas": 3, "target_ongoing_requests": 2}}, "target_ongoing_requests"),
        ({"autoscaling": {"max_replicas": 3, "target": {"requests": 2}}}, "target"),
        ({"autoscaling": {"max_replicas": 3, "target": {}}}, "target"),
        ({"autoscaling": {"max_replicas": 3, "target": {"tokens": 0}}}, "target.tokens: must be above 0"),
        (
            {"autoscaling": {"max_replicas": 3, "target": {"pixels": 5}}},
            "target.pixels: counted here: tokens, documents",
        ),
        ({"autoscaling": {"max_replicas": 3, "target": {"tokens": 1_000_000}}}, "is never passed"),
        ({"autoscaling": {"max_replicas": 3, "target": {"tokens": 910_000}}}, "910000, with its tolerance 1.001e"),
        ({"autoscaling": {"max_replicas": 3, "target": {"documents": 4_000}}}, "is never passed"),
        ({"autoscaling": {"max_replicas": 3, "interval_s": 5, "window_s": 5}}, "window_s: 5 must be more than"),
    ],
)
def test_autoscaling_that_cannot_work_is_refused(replicas: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelSettings.model_validate(MODEL | {"pooling_engine": replicas})


def test_autoscaling_of_every_deployment_knows_its_measures() -> None:
    with pytest.raises(ValidationError, match=r"io_processor\.autoscaling\.target\.tokens: counted here: documents"):
        ModelSettings.model_validate(
            MODEL | {"io_processor": {"autoscaling": {"max_replicas": 2, "target": {"tokens": 5}}}}
        )
    with pytest.raises(ValidationError, match="counted here: images, pixels"):
        ImageLoaderSettings.model_validate({"replicas": {"autoscaling": {"max_replicas": 2, "target": {"tokens": 5}}}})
    with pytest.raises(ValidationError, match="never passed, since a replica takes 4000"):
        GatewaySettings.model_validate({"replicas": {"autoscaling": {"max_replicas": 2, "target": {"documents": 4e3}}}})


def test_targets_that_are_not_named_are_held_to_the_limits_too() -> None:
    scaling = {"autoscaling": {"max_replicas": 2}}
    model = MODEL | {"pooling_engine": scaling}
    refused = (
        r"pooling_engine\.autoscaling\.target\.tokens: the default 8192, with its tolerance 9011.2, is never passed"
    )
    with pytest.raises(ValidationError, match=refused):
        ModelSettings.model_validate(model | {"admission": {"max_tokens_in_flight": 9_011}})
    ModelSettings.model_validate(model | {"admission": {"max_tokens_in_flight": 9_012}})
    with pytest.raises(ValidationError, match="documents: the default 1000, with its tolerance 1100, is never passed"):
        GatewaySettings.model_validate({"replicas": scaling, "max_documents_in_flight": 1_100})
    GatewaySettings.model_validate({"replicas": scaling})
    ImageLoaderSettings.model_validate({"replicas": scaling})


def test_replicas_there_are_and_there_can_be() -> None:
    fixed, following = (
        ReplicaSettings(num_replicas=3),
        ReplicaSettings.model_validate({"autoscaling": {"min_replicas": 2, "max_replicas": 5}}),
    )
    assert (fixed.fewest, fixed.most) == (3, 3)
    assert (following.fewest, following.most) == (2, 5)


def test_application_name() -> None:
    settings = ModelSettings.model_validate(MODEL | CUDA | {"name": "BAAI/bge", "version": "2024-01"})
    assert settings.application == "BAAI--bge-2024-01"


def test_gateway_limits_agree() -> None:
    with pytest.raises(ValidationError, match="never fits"):
        GatewaySettings(max_documents=10, max_documents_in_flight=5)
    with pytest.raises(ValidationError, match="default_timeout_ms"):
        GatewaySettings(default_timeout_ms=10, max_timeout_ms=5)


@pytest.mark.parametrize(("kv_cache_gib", "fits"), [(1.9, False), (0.5, False), (2, True), (2.0, True)])
def test_a_cpus_cache_is_of_whole_gib(kv_cache_gib: float, fits: bool) -> None:
    values = {**MODEL, "engine": {"kv_cache_gib": kv_cache_gib}}
    if fits:
        assert ModelSettings.model_validate(values).engine.kv_cache_gib == kv_cache_gib
    else:
        with pytest.raises(ValidationError, match=r"engine\.kv_cache_gib: .* on a CPU vLLM takes whole GiB only"):
            ModelSettings.model_validate(values)
    assert ModelSettings.model_validate({**values, **CUDA}).engine.kv_cache_gib == kv_cache_gib
