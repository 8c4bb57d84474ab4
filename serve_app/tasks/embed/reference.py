"""Vectors from Transformers, one text at a time and without padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serve_app.messages import FloatArray
from serve_app.sentence_modules import Dense, load_dense
from serve_app.vocabulary import DType, PoolingType


def reference_vectors(
    folder: Path,
    texts: Sequence[str],
    *,
    dtype: DType,
    max_length: int,
    pooling: PoolingType,
    normalize: bool,
    dense: Sequence[Dense] = (),
) -> FloatArray:
    """Vectors of the checkpoint's last hidden state, float32 [texts, width].

    Args:
        folder: the checkpoint.
        texts: cut at `max_length` tokens, special tokens included; prompts are the caller's business.
        dtype: what Transformers computes in; pooling runs in float32.
        pooling: CLS, MEAN or LAST over all tokens.
        normalize: bring to unit length.
        dense: sentence-transformers' linear layers behind the pooling.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype.value))
    model.eval()
    behind = load_dense(folder, dense)
    rows = []
    with torch.inference_mode():
        for text in texts:
            inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
            states = model(**inputs).last_hidden_state[0].float()
            pooled = {PoolingType.CLS: states[0], PoolingType.MEAN: states.mean(0), PoolingType.LAST: states[-1]}
            vector = behind(pooled[pooling])
            if normalize:
                vector = torch.nn.functional.normalize(vector, dim=0)
            rows.append(vector.numpy())
    return np.stack(rows).astype(np.float32)
