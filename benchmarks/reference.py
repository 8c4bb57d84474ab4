"""Scores by Transformers alone: what a checkpoint says when no serving code is involved.

Semantics of sentence-transformers' CrossEncoder with one label: the pair is tokenized by the checkpoint's own
tokenizer, the sigmoid of the one logit is the score. It runs in a process of its own before any server is started, so
that its memory is free again when an engine measures what it may take.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.wire import RerankCase


@dataclass(frozen=True, slots=True)
class Reference:
    """Scores by request and document, and how many pairs were longer than the window and cut."""

    scores: list[list[float]]
    truncated: int
    device: str
    dtype: str


def score(
    model_dir: Path, cases: Sequence[RerankCase], *, dtype: str, device: str, max_model_len: int, batch: int = 32
) -> Reference:
    """Score in this process.

    Args:
        device: `cpu`, `cuda`, or `auto` for the GPU where there is one.
        max_model_len: pairs are cut to this many tokens, the longer text first.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForSequenceClassification.from_pretrained(model_dir, dtype=getattr(torch, dtype))
    if model.config.num_labels != 1:
        raise ValueError(f"the reference needs a checkpoint with one label, not {model.config.num_labels}")
    model = model.to(device).eval()
    pairs = [(case.query, document) for case in cases for document in case.documents]
    encoded = [tokenizer(q, d)["input_ids"] for q, d in pairs]
    # Sorted by length: little padding, and padding is what makes batched scores differ from single ones.
    order = sorted(range(len(pairs)), key=lambda i: len(encoded[i]))
    flat = [0.0] * len(pairs)
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            inputs = tokenizer(
                [pairs[i][0] for i in chosen],
                [pairs[i][1] for i in chosen],
                padding=True,
                truncation=True,
                max_length=max_model_len,
                return_tensors="pt",
            ).to(device)
            logits = model(**inputs).logits[:, 0].float()
            for i, value in zip(chosen, torch.sigmoid(logits).tolist(), strict=True):
                flat[i] = value
    values = iter(flat)
    return Reference(
        [[next(values) for _ in case.documents] for case in cases],
        sum(len(ids) > max_model_len for ids in encoded),
        device,
        dtype,
    )


def score_apart(
    model_dir: Path, cases: Sequence[RerankCase], *, dtype: str, device: str, max_model_len: int
) -> Reference:
    """`score` in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(
            score, (model_dir, list(cases)), {"dtype": dtype, "device": device, "max_model_len": max_model_len}
        )
