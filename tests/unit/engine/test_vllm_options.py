"""Our settings in vLLM's words."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serve_app.checkpoint import Checkpoint, read_checkpoint
from serve_app.engine.vllm_options import cuda_graph_sizes, engine_options
from serve_app.memory_plan import plan_memory
from serve_app.settings import EngineSettings, ModelSettings
from serve_app.vllm_plugin import FULL_GRAPHS, GATHER_MS
from serve_app.vllm_plugin.timed_worker import FullGraphs
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for

MODEL = Path(__file__).resolve().parents[3] / "model_zoo" / "ce-mini"
CUDA: dict[str, Any] = {
    "device": "cuda",
    "gpu_memory_utilization": 0.4,
    "pooling_engine": {"num_gpus": 1, "engines_per_gpu": 4},
}


def loaded(**changes: Any) -> tuple[ModelSettings, Checkpoint]:
    settings = settings_for(MODEL, "rerank", **changes)
    return settings, read_checkpoint(MODEL, settings)


def test_a_gpus_memory_is_measured_unless_the_cache_has_a_size() -> None:
    options = engine_options(*loaded(**CUDA))
    assert options["gpu_memory_utilization"] == pytest.approx(0.1)
    assert "kv_cache_memory_bytes" not in options


def test_a_cache_of_a_named_size() -> None:
    settings, checkpoint = loaded(**CUDA, engine={"kv_cache_gib": 1.5})
    assert engine_options(settings, checkpoint)["kv_cache_memory_bytes"] == 1.5 * 2**30
    assert plan_memory(settings, checkpoint.config, 1000, 80.0).cache == 1.5


def test_the_plans_cache_on_a_cpu_is_a_gibibyte_unless_named() -> None:
    settings, checkpoint = loaded()
    assert plan_memory(settings, checkpoint.config, 1000, 8.0).cache == 1.0
    assert "kv_cache_memory_bytes" not in engine_options(settings, checkpoint)


def test_graphs_for_every_step_up_to_the_largest() -> None:
    sizes = cuda_graph_sizes(EngineSettings(cuda_graph_max_tokens=4096))
    assert sizes is not None
    assert (sizes, sizes[-1]) == (sorted(set(sizes)), 4096)
    assert all(b - a <= max(8, a / 4) for a, b in itertools.pairwise(sizes[3:]))
    assert cuda_graph_sizes(EngineSettings(cuda_graph_sizes=(8, 1), cuda_graph_max_tokens=4096)) == [1, 8]
    assert cuda_graph_sizes(EngineSettings()) is None


@pytest.mark.parametrize(
    ("changes", "gather_ms"),
    [
        ({}, None),
        ({"engine": {"gather_ms": 3}}, 3.0),
        (CUDA, 8.0),
        ({**CUDA, "engine": {"gather_ms": 0}}, None),
        ({**CUDA, "engine": {"async_scheduling": True}}, None),  # another scheduler of vLLM's
    ],
)
def test_steps_of_whole_requests_where_a_step_is_dear(changes: dict[str, Any], gather_ms: float | None) -> None:
    options = engine_options(*loaded(**changes))
    assert options.get("additional_config", {}).get(GATHER_MS) == gather_ms
    assert ("scheduler_cls" in options) == (gather_ms is not None)


def decoder(checkpoints: Checkpoints, **engine: Any) -> tuple[ModelSettings, Checkpoint]:
    folder = checkpoints.qwen3()
    window = {"max_model_len": 64, "max_num_batched_tokens": 2048}
    settings = settings_for(folder, "rerank", **CUDA, **window, engine={"full_cuda_graphs": True, **engine})
    return settings, read_checkpoint(folder, settings)


def test_a_whole_graph_never_reads_past_the_tables(checkpoints: Checkpoints) -> None:
    """vLLM captures a step of N tokens with sequences of N tokens: beyond the window that was an illegal access."""
    for engine, largest in (({}, 512), ({"cuda_graph_max_tokens": 1024}, 1024), ({"cuda_graph_sizes": (8, 96)}, 96)):
        settings, checkpoint = decoder(checkpoints, **engine)
        options = engine_options(settings, replace(checkpoint, max_positions=None))
        assert options["compilation_config"]["cudagraph_capture_sizes"][-1] == largest
        assert options["max_model_len"] == largest
        assert options["additional_config"][FULL_GRAPHS] is True
        assert options["attention_config"] == {"flash_attn_max_num_splits_for_cuda_graph": 1}
    settings, checkpoint = decoder(checkpoints, cuda_graph_max_tokens=8192)
    options = engine_options(settings, replace(checkpoint, max_positions=1000))
    assert (options["max_model_len"], options["compilation_config"]["max_cudagraph_capture_size"]) == (896, 896)
    assert max(engine_options(*loaded(**CUDA))["max_model_len"], 512) == 512


def test_whole_graphs_are_asked_for_and_are_for_decoders(checkpoints: Checkpoints) -> None:
    settings, checkpoint = decoder(checkpoints, full_cuda_graphs=False)
    options = engine_options(settings, checkpoint)
    assert FULL_GRAPHS not in options["additional_config"]
    assert options["max_model_len"] == 64
    settings, checkpoint = decoder(checkpoints, enforce_eager=True)
    assert FULL_GRAPHS not in engine_options(settings, checkpoint)["additional_config"]
    with pytest.raises(ValueError, match=r"engine\.full_cuda_graphs: for decoders .*'bert'"):
        loaded(**CUDA, engine={"full_cuda_graphs": True})


@pytest.mark.parametrize(("asked", "mode"), [(True, "FULL"), (None, "PIECEWISE")])
def test_the_worker_changes_what_vllm_changed(asked: bool | None, mode: str) -> None:
    from vllm.config import CUDAGraphMode

    class Base:
        def __init__(self, vllm_config: Any) -> None:
            self.seen = vllm_config.compilation_config.cudagraph_mode

    class Worker(FullGraphs, Base):
        pass

    def config(before: CUDAGraphMode) -> Any:
        additional = {} if asked is None else {FULL_GRAPHS: asked}
        return SimpleNamespace(additional_config=additional, compilation_config=SimpleNamespace(cudagraph_mode=before))

    assert Worker(config(CUDAGraphMode.PIECEWISE)).seen == CUDAGraphMode[mode]
    assert Worker(config(CUDAGraphMode.NONE)).seen == CUDAGraphMode.NONE
