"""The two sides: Transformers' own model classes, and vLLM with the options that our engine gives it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from serve_app.checkpoint import Checkpoint, read_checkpoint
from serve_app.engine.vllm_options import engine_options, prepare_environment
from serve_app.settings import ModelSettings

SIDES = ("transformers, fixed padding", "transformers, dynamic padding", "engine")


@dataclass(frozen=True, slots=True)
class Model:
    """What is run.

    Attributes:
        task: `rerank` (one logit a pair) or `absa` (logits of every token).
        window: tokens of a sequence; fixed padding fills it.
        graph_tokens: the engine's largest step with a CUDA graph.
        memory: share of the GPU's memory that the engine may take.
        graphs: False: no CUDA graphs, the same kernels launched one by one.
    """

    folder: Path
    task: str
    dtype: str
    device: str
    window: int
    graph_tokens: int
    memory: float
    graphs: bool = True


class Side(Protocol):
    """Whatever answers a request."""

    def run(self, request: Sequence[Sequence[int]]) -> np.ndarray:
        """Logits of ready token ids, float32: [sequences] or, for absa, [all tokens, labels]."""
        ...


def side(name: str, model: Model) -> Side:
    """One of `SIDES`, loaded."""
    return Engine(model) if name == "engine" else Library(model, fixed="fixed" in name)


def layers_of(folder: Path) -> int:
    """Layers of a checkpoint."""
    return int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])


def cut(folder: Path, layers: int, task: str, dtype: str, out: Path) -> Path:
    """The checkpoint with its first so many layers, written to `out` in `dtype`; everything else is as it was."""
    import torch
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = layers
    if hasattr(config, "layer_types"):
        config.layer_types = config.layer_types[:layers]
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json"))
    _class(task).from_pretrained(folder, config=config, dtype=getattr(torch, dtype)).save_pretrained(out)
    return out


def _class(task: str) -> Any:
    from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

    return AutoModelForTokenClassification if task == "absa" else AutoModelForSequenceClassification


class Library:
    """Transformers, a request as one batch, padded to the window or to its longest sequence.

    Args:
        fixed: to the window.
    """

    def __init__(self, model: Model, *, fixed: bool) -> None:
        import torch

        module = _class(model.task).from_pretrained(model.folder, dtype=getattr(torch, model.dtype))
        self._torch, self._model, self._fixed = torch, model, fixed
        self._module = module.to(model.device).eval()
        self._pad = int(module.config.pad_token_id or 0)

    def run(self, request: Sequence[Sequence[int]]) -> np.ndarray:
        """See `Side.run`."""
        torch, device = self._torch, self._model.device
        width = self._model.window if self._fixed else max(map(len, request))
        ids = torch.full((len(request), width), self._pad)
        mask = torch.zeros_like(ids)
        for i, sequence in enumerate(request):
            ids[i, : len(sequence)] = torch.tensor(sequence)
            mask[i, : len(sequence)] = 1
        with torch.inference_mode():
            logits = self._module(input_ids=ids.to(device), attention_mask=mask.to(device)).logits.float().cpu()
        if self._model.task == "absa":
            return np.concatenate([logits[i, : len(sequence)].numpy() for i, sequence in enumerate(request)])
        return np.asarray(logits[:, 0].numpy())


class Engine:
    """vLLM with our engine's options, its core in this process, so that a profiler sees its kernels."""

    def __init__(self, model: Model) -> None:
        settings = _settings(model)
        checkpoint: Checkpoint = read_checkpoint(model.folder, settings)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        prepare_environment(settings, checkpoint)
        from vllm import PoolingParams
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self._absa = model.task == "absa"
        task: Any = "token_classify" if self._absa else "classify"
        self._params = PoolingParams(task=task, use_activation=False)
        options = engine_options(settings, checkpoint)
        if not model.graphs:
            options["compilation_config"] = {"cudagraph_mode": "NONE"}
        self._llm: Any = LLMEngine.from_engine_args(EngineArgs(**options))
        self._sent = 0

    def run(self, request: Sequence[Sequence[int]]) -> np.ndarray:
        """See `Side.run`."""
        first = self._sent
        for sequence in request:
            prompt = {"type": "token", "prompt_token_ids": list(sequence)}
            self._llm.add_request(str(self._sent), prompt, self._params)
            self._sent += 1
        rows: dict[int, Any] = {}
        while len(rows) < len(request):
            for output in self._llm.step():
                if output.finished:
                    rows[int(output.request_id.split("-")[0]) - first] = output.outputs.data.float().cpu().numpy()
        found = [rows[i] for i in range(len(request))]
        return np.concatenate(found) if self._absa else np.concatenate([row.reshape(-1) for row in found])


def _settings(model: Model) -> ModelSettings:
    values: dict[str, Any] = {
        "name": "kernels",
        "version": "1",
        "source": str(model.folder),
        "task": model.task,
        "device": model.device,
        "dtype": model.dtype,
        "max_model_len": model.window,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        # A cache of a named size, as small as one request allows: Nsight Compute saves and restores what is there.
        "engine": {
            "enforce_eager": model.device == "cpu",
            "cuda_graph_max_tokens": model.graph_tokens,
            "kv_cache_gib": 1,
        },
        "pooling_engine": {"num_gpus": float(model.device == "cuda")},
    }
    if model.device == "cuda":
        values["gpu_memory_utilization"] = model.memory
    return ModelSettings.model_validate(values)
