"""The forward pass of the engine for small encoders: sequences of a step in padded groups of similar length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from serve_app.checkpoint import Checkpoint
from serve_app.engine.canary import canary_batch
from serve_app.engine.torch_weights import load_module, padding_token
from serve_app.messages import FloatArray, IntArray
from serve_app.sentence_modules import load_dense
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_weights
from serve_app.vocabulary import PoolingType, Task

LongArray = npt.NDArray[np.int64]

GROUP_TOKENS = {"cpu": 64, "cuda": 2_048}
"""What a group costs beside its tokens, in tokens: launching the kernels of its layers."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step's sequences, one behind the other, as `EngineBatch` has them; -1 in `segments`: no second text."""

    ids: IntArray
    starts: LongArray
    lengths: LongArray
    segments: IntArray | None


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """The loaded model and where it runs. `pooling`: None gives logits."""

    module: Any
    device: str
    pooling: PoolingType | None
    pad: int
    dense: Any = None
    """What stands behind the pooling."""


def groups(lengths: LongArray, fixed: int) -> list[tuple[int, int]]:
    """Ranges of sequences that run as one padded batch, for the least total cost.

    A group costs `fixed` and, for each of its sequences, the length of its longest.

    Args:
        lengths: int64 [sequences], ascending.
        fixed: tokens.

    Returns:
        (start, end) of each group.
    """
    sizes = np.unique(lengths)
    ends = np.searchsorted(lengths, sizes, side="right")
    starts = np.concatenate([[0], ends[:-1]])
    best = np.zeros(len(sizes) + 1)  # cost of everything before the i-th length
    cut = np.zeros(len(sizes), dtype=np.int64)
    for i, (size, end) in enumerate(zip(sizes.tolist(), ends.tolist(), strict=True)):
        costs = best[: i + 1] + fixed + (end - starts[: i + 1]) * size
        cut[i] = np.argmin(costs)
        best[i + 1] = costs[cut[i]]
    found = []
    i = len(sizes) - 1
    while i >= 0:
        found.append((int(starts[cut[i]]), int(ends[i])))
        i = int(cut[i]) - 1
    return found[::-1]


def import_libraries() -> None:
    """Imports what `load` needs, so that it is timed apart."""
    import torch  # noqa: F401
    import transformers  # noqa: F401


def load(settings: ModelSettings, checkpoint: Checkpoint) -> LoadedModel:
    """The model on its device, tried out.

    Raises:
        ValueError: the checkpoint lacks weights, or the model does not run what a step may hold.
    """
    import torch

    if settings.device == "cpu":
        torch.set_num_threads(settings.pooling_engine.threads)
    else:
        torch.cuda.set_per_process_memory_fraction(settings.gpu_memory_per_engine or 0.9)
    folder = fetch_weights(settings.source, settings.revision)
    module = load_module(folder, settings)
    pooling = checkpoint.pooling if settings.task is Task.EMBED else None
    pad = padding_token(module, checkpoint, settings)
    dense = load_dense(folder, checkpoint.dense).to(settings.device) if checkpoint.dense else None
    model = LoadedModel(module.to(settings.device).eval(), settings.device, pooling, pad, dense)
    _try_out(model, canary_batch(settings, checkpoint).token_ids)
    return model


def _try_out(model: LoadedModel, ids: IntArray) -> None:
    """A canary is one sequence; a model may run that and no two of different lengths.

    Raises:
        ValueError: it does not run them.
    """
    lengths = np.array([len(ids), max(1, len(ids) // 2)], np.int64)
    inputs = StepInputs(np.concatenate([ids, ids[: lengths[1]]]), np.cumsum(lengths) - lengths, lengths, None)
    try:
        forward(model, inputs)
    except Exception as error:
        raise ValueError(f"source: the model does not run sequences of different lengths: {error}") from error


def forward(model: LoadedModel, inputs: StepInputs) -> FloatArray:
    """Values of all sequences, float32 [sequences, width]."""
    import torch

    order: LongArray = np.argsort(inputs.lengths, kind="stable")
    parts = []
    with torch.inference_mode():
        for start, end in groups(inputs.lengths[order], GROUP_TOKENS[model.device]):
            parts.append(_group(model, inputs, order[start:end]))
        sorted_values = torch.cat(parts).float().cpu().numpy()
    values: FloatArray = np.empty_like(sorted_values)
    values[order] = sorted_values
    return values


def _group(model: LoadedModel, inputs: StepInputs, rows: LongArray) -> Any:
    """Values of some sequences as a tensor on the device: one padded batch."""
    import torch

    lengths, starts = inputs.lengths[rows], inputs.starts[rows]
    columns = np.arange(int(lengths.max()))
    real = columns < lengths[:, None]
    ids = inputs.ids[np.where(real, starts[:, None] + columns, 0)]
    arrays = {"input_ids": np.where(real, ids, model.pad).astype(np.int64)}
    if not real.all():
        arrays["attention_mask"] = real.astype(np.int64)
    if inputs.segments is not None:
        second = inputs.segments[rows][:, None]
        arrays["token_type_ids"] = ((second >= 0) & (columns >= second) & real).astype(np.int64)
    tensors = {name: torch.from_numpy(array).to(model.device, non_blocking=True) for name, array in arrays.items()}
    output = model.module(**tensors)
    if model.pooling is None:
        return output.logits
    pooled = _pooled(model.pooling, output.last_hidden_state, lengths, tensors.get("attention_mask"))
    return pooled if model.dense is None else model.dense(pooled.float())


def _pooled(pooling: PoolingType, states: Any, lengths: LongArray, mask: Any) -> Any:
    """[sequences, width] of [sequences, tokens, width]; `mask`: None where no sequence is padded."""
    import torch

    if pooling is PoolingType.CLS:
        return states[:, 0]
    if pooling is PoolingType.LAST:
        last = torch.from_numpy(lengths - 1).to(states.device)
        return states[torch.arange(len(lengths), device=states.device), last]
    states = states.float()
    if mask is not None:
        states = states * mask[:, :, None]
    return states.sum(1) / torch.from_numpy(lengths).to(states.device)[:, None]
