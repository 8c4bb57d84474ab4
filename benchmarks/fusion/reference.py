"""The same pairs in plain PyTorch, in a process of its own: its memory is free again before engines measure theirs."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np

from serve_app.messages import ByteArray, FloatArray
from serve_app.vocabulary import DType


def logits(folder: Path, queries: list[list[int]], pictures: ByteArray, dtype: str, device: str) -> FloatArray:
    """Logits of all queries with all pictures, float32 [queries, pictures].

    Args:
        queries: token ids, BOS and EOS included.
        pictures: uint8 [pictures, height, width, 3].
        device: `cpu`, `cuda`, or `auto` for the GPU where there is one.
    """
    import torch

    from serve_app.media.spec import read_normalisation
    from serve_app.tasks.image_rank.reference import load_fusion_ranker

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_fusion_ranker(folder, DType(dtype)).to(device)
    scale = read_normalisation(folder)
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (scale.mean, scale.std))
    with torch.inference_mode():
        memories = []
        for picture in pictures:
            pixels = torch.from_numpy(np.ascontiguousarray(picture)).to(device).permute(2, 0, 1).float()
            normalised = ((pixels * scale.rescale_factor - mean) / std).to(next(model.parameters()).dtype)
            memories.append(model.memory(normalised[None]))
        memory = torch.cat(memories)
        rows = []
        for ids in queries:
            state = model.text_state(torch.tensor([ids], device=device), torch.tensor([len(ids)], device=device))
            rows.append(model.score(state.expand(len(memory), -1), memory).float())
    found: FloatArray = torch.stack(rows).cpu().numpy()
    return found


def logits_apart(folder: Path, queries: list[list[int]], pictures: ByteArray, dtype: str, device: str) -> FloatArray:
    """`logits` in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(logits, (folder, queries, pictures, dtype, device))
