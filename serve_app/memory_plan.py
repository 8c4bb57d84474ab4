"""How much memory an engine needs, estimated before anything starts.

The figures are those of one H200 run with a 0.6B reranker (28 layers, hidden 1,024, MLP 3,072, 16,384 tokens a step,
bf16): weights 1.12 GiB, activations 0.50, CUDA graphs 0.24, the rest 0.23. The activation formula gives 0.45 there.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve_app.settings import ModelSettings
from serve_app.vocabulary import DType, Task

GIB = float(2**30)
BYTES = {DType.FLOAT32: 4, DType.BFLOAT16: 2, DType.FLOAT16: 2}
CUDA_CONTEXT_GIB = 0.5
"""CUDA context, libraries and vLLM's own buffers of one engine process."""
CUDA_GRAPHS_GIB = 0.3
CPU_PROCESSES_GIB = 2.0
"""Interpreter and libraries of an engine's processes, measured with a model of no size."""
IMAGES_AT_ONCE = 64
"""As in `vllm_plugin/models/pixels.py`, which cannot be imported without vLLM."""
_ENCODERS = ("Bert", "Roberta", "XLMRoberta", "ModernBert", "Electra", "Deberta")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Memory of one engine in GiB.

    Attributes:
        weights: parameters in the configured dtype.
        activations: one step of `max_num_batched_tokens`.
        cache: key/value cache, as set or as a full step needs it (0 for encoders), and images' features on the device.
        runtime: process, context, graphs.
        available: what the engine may take; None if unknown.
    """

    weights: float
    activations: float
    cache: float
    runtime: float
    available: float | None

    @property
    def needed(self) -> float:
        """Sum of all parts."""
        return self.weights + self.activations + self.cache + self.runtime

    @property
    def headroom(self) -> float | None:
        """What is left; negative: it cannot work."""
        return None if self.available is None else self.available - self.needed


def plan_memory(
    settings: ModelSettings, config: Mapping[str, Any], parameters: int, device_gib: float | None
) -> MemoryPlan:
    """The plan for one engine.

    Args:
        settings: the model's settings.
        config: the checkpoint's `config.json`.
        parameters: number of weights.
        device_gib: memory of the GPU, or of the machine on CPU; None: unknown.
    """
    size = BYTES[settings.dtype]
    vision = config.get("vision_config") or {}
    features = _features_gib(settings, config, vision, size) if settings.task is Task.IMAGE_RANK else 0.0
    config = {**config, **(config.get("text_config") or {})} if vision else config
    hidden = int(config.get("hidden_size", 1024))
    intermediate = int(config.get("intermediate_size", 4 * hidden))
    activations = settings.max_num_batched_tokens * (4 * hidden + 3 * intermediate) * size / GIB
    if vision:
        activations = max(activations, _tower_gib(vision, size))
    on_gpu = settings.device == "cuda"
    share = settings.gpu_memory_per_engine if on_gpu else 1.0
    return MemoryPlan(
        weights=parameters * size / GIB / settings.engine.tensor_parallel_size,
        activations=activations,
        cache=features + (settings.engine.kv_cache_gib or (_cache_gib(settings, config, size) if on_gpu else 1.0)),
        runtime=(CUDA_CONTEXT_GIB + (0 if settings.engine.enforce_eager else CUDA_GRAPHS_GIB))
        if on_gpu
        else CPU_PROCESSES_GIB,
        available=None if device_gib is None or share is None else device_gib * share,
    )


def _cache_gib(settings: ModelSettings, config: Mapping[str, Any], size: int) -> float:
    """Key/value cache of one full step of a decoder; encoders keep none."""
    architectures = config.get("architectures") or [""]
    if any(name in architectures[0] for name in _ENCODERS):
        return 0.0
    heads = int(config.get("num_attention_heads", 16))
    kv_heads = int(config.get("num_key_value_heads", heads))
    head_dim = int(config.get("head_dim") or int(config.get("hidden_size", 1024)) // heads)
    layers = int(config.get("num_hidden_layers", 24))
    return settings.max_num_batched_tokens * 2 * layers * kv_heads * head_dim * size / GIB


def _patches(vision: Mapping[str, Any]) -> int:
    return (int(vision.get("image_size", 224)) // int(vision.get("patch_size", 32))) ** 2 + 1


def _features_gib(settings: ModelSettings, config: Mapping[str, Any], vision: Mapping[str, Any], size: int) -> float:
    """Keys and values of the fusion layers: of the images that stay, and of those of one step."""
    slots = max(settings.images.device_cache, settings.markers_per_sequence) + settings.images_per_step
    width = int((config.get("text_config") or {}).get("hidden_size", 512))
    return slots * int(config.get("fusion_layers", 2)) * 2 * _patches(vision) * width * size / GIB


def _tower_gib(vision: Mapping[str, Any], size: int) -> float:
    """Activations of the pictures that a vision tower encodes together."""
    hidden = int(vision.get("hidden_size", 768))
    intermediate = int(vision.get("intermediate_size", 4 * hidden))
    return IMAGES_AT_ONCE * _patches(vision) * (4 * hidden + 3 * intermediate) * size / GIB


def count_parameters(folder: Path) -> int:
    """Weights in a checkpoint's safetensors files, read from their headers; 0 if there are none."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for extent in tensor["shape"]:
                    count *= extent
                total += count
    return total
