"""The sides: three ways to put pictures into sequences, each an engine of its own with the same limits."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.fusion.plugin import TOKENS, register_tokens
from serve_app.checkpoint import Checkpoint
from serve_app.engine import vllm_engine
from serve_app.engine.vllm_engine import VllmEngine
from serve_app.engine.vllm_options import engine_options, prepare_environment
from serve_app.settings import ModelSettings
from serve_app.tasks.model import TextModel, load_text_model
from serve_app.vllm_plugin.feeder import ImageFeeder

SIDES: dict[str, str] = {"tokens": "pair", "marker per pair": "pair", "markers per query": "query"}
"""Sides, and the mode of `ImageSettings` that makes their sequences."""
BASELINE = "tokens"
WORKER = "benchmarks.fusion.worker.BenchmarkWorker"


@dataclasses.dataclass(frozen=True, slots=True)
class EngineLimits:
    """What all sides have in common.

    Attributes:
        device, dtype: `cpu` or `cuda`; of weights and activations.
        memory: share of the GPU's memory of one engine.
        batched_tokens, sequences: of one step.
        device_cache: images that stay on the device; images_per_step: new ones that a step encodes.
        graph_tokens: largest step with a CUDA graph.
        eager: no compilation, no CUDA graphs.
    """

    device: str
    dtype: str
    memory: float | None
    batched_tokens: int
    sequences: int
    device_cache: int
    images_per_step: int
    graph_tokens: int
    eager: bool


def settings(side: str, folder: Path, positions: int, limits: EngineLimits) -> ModelSettings:
    """A side's settings; `tokens` differs from `marker per pair` in the engine alone."""
    gpu = limits.device == "cuda"
    return ModelSettings.model_validate(
        {
            "name": side.replace(" ", "-"),
            "version": "1",
            "source": str(folder),
            "task": "image_rank",
            "device": limits.device,
            "dtype": limits.dtype,
            "max_model_len": positions,
            "max_num_seqs": limits.sequences,
            "max_num_batched_tokens": limits.batched_tokens,
            "gpu_memory_utilization": limits.memory if gpu else None,
            "engine": {
                "enforce_eager": limits.eager,
                "cuda_graph_max_tokens": limits.graph_tokens if gpu and not limits.eager else None,
            },
            "images": {
                "mode": SIDES[side],
                "device_cache": limits.device_cache,
                "images_per_sequence": limits.images_per_step,
            },
            "pooling_engine": {"num_gpus": 0.3 if gpu else 0.0},
        }
    )


class TokensFeeder(ImageFeeder):
    """Puts P placeholders where the others have one marker."""

    def __init__(self, llm: Any, settings: ModelSettings) -> None:
        from benchmarks.fusion.tokens_model import patches_of

        super().__init__(llm, settings)
        self._llm = _WithPatches(llm, patches_of(llm.model_config.hf_config))


class _WithPatches:
    """vLLM's AsyncLLM, with pictures' placeholders made P tokens long on their way in."""

    def __init__(self, llm: Any, patches: int) -> None:
        self._llm = llm
        self._patches = patches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    async def add_request(self, request_id: str, prompt: Any, params: Any, **options: Any) -> Any:
        """The query whole, EOS included, and behind it the picture."""
        from vllm.multimodal.inputs import PlaceholderRange

        tokens = prompt["prompt_token_ids"]
        widened = {
            **prompt,
            "prompt_token_ids": tokens + [tokens[-1]] * self._patches,
            "mm_placeholders": {"image": [PlaceholderRange(len(tokens), self._patches)]},
        }
        return await self._llm.add_request(request_id, widened, params, **options)


class BenchmarkEngine(VllmEngine):
    """Our engine, whose worker can be asked about its steps; or, for the side `tokens`, one with vLLM's usual way."""

    def __init__(self, side: str, model: TextModel) -> None:
        checkpoint = model.checkpoint
        if side == "tokens":
            assert checkpoint.images is not None
            facts = dataclasses.replace(checkpoint.images, architecture=TOKENS)
            checkpoint = dataclasses.replace(checkpoint, images=facts)
        super().__init__(model.settings, checkpoint)
        self.side = side
        self.model = model

    async def start(self) -> None:
        """See `Engine.start`."""
        prepare_environment(self._settings, self._checkpoint)
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(vllm_engine, "engine_options", self._options))
            if self.side == "tokens":
                register_tokens()
                stack.enter_context(mock.patch.object(vllm_engine, "ImageFeeder", TokensFeeder))
            await super().start()
        await self._llm.collective_rpc("watch_steps")

    def _options(self, settings: ModelSettings, checkpoint: Checkpoint) -> dict[str, Any]:
        options = engine_options(settings, checkpoint) | {"worker_extension_cls": WORKER}
        if self.side == "tokens":
            options |= token_options(options, checkpoint.config)
        if SIDES[self.side] == "pair":
            # vLLM 0.26 never schedules the last token of a prompt as long as the window once it was cut (0.32 does).
            options["max_model_len"] += 1
        # All sides encode as many new images in a step, whatever their mode's default is.
        options["hf_overrides"] = options["hf_overrides"] | {"images_per_step": settings.images.images_per_sequence}
        return options

    async def take_steps(self) -> dict[str, int]:
        """Counters of steps since the last call."""
        counted: list[dict[str, int]] = await self._llm.collective_rpc("take_steps")
        return counted[0]

    async def memory(self) -> dict[str, float]:
        """See `BenchmarkWorker.memory`."""
        told: list[dict[str, float]] = await self._llm.collective_rpc("memory")
        return told[0]


def token_options(options: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What the side `tokens` changes: room for the patches, and embeddings as wide as the wider tower."""
    text, vision = config["text_config"], config["vision_config"]
    patches = (vision["image_size"] // vision["patch_size"]) ** 2 + 1
    overrides = dict(options["hf_overrides"])
    overrides["text_config"] = {
        "max_position_embeddings": text["max_position_embeddings"] + patches + 1,
        "projection_dim": max(text["hidden_size"], vision["hidden_size"]),
    }
    return {"max_model_len": options["max_model_len"] + patches, "hf_overrides": overrides}


def build(side: str, folder: Path, positions: int, limits: EngineLimits) -> BenchmarkEngine:
    """A side's engine, not started."""
    return BenchmarkEngine(side, load_text_model(settings(side, folder, positions, limits)))


def used_gpu_mib() -> float | None:
    """MiB in use on the first GPU; None without one. Asked of nvidia-smi: a CUDA context here would count as well."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        return float(told.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
