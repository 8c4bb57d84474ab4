"""Logits from Transformers, one text at a time and without padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serve_app.messages import FloatArray
from serve_app.vocabulary import DType


def reference_logits(
    folder: Path, texts: Sequence[str | tuple[str, str]], *, dtype: DType, max_length: int
) -> FloatArray:
    """Logits of a sequence classifier, float32 [texts, labels].

    Args:
        folder: the checkpoint.
        texts: texts or (text, text_pair) pairs; cut at `max_length` tokens, special tokens included, pairs in the
            second text.
        dtype: what Transformers computes in.
        max_length: tokens of one input.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=getattr(torch, dtype.value))
    model.eval()
    rows = []
    with torch.inference_mode():
        for text in texts:
            # Lists, as sentence-transformers has it: two plain strings lose an empty second text's separator.
            sides = ([text],) if isinstance(text, str) else ([text[0]], [text[1]])
            cut = True if isinstance(text, str) else "only_second"
            inputs = tokenizer(*sides, truncation=cut, max_length=max_length, return_tensors="pt")
            rows.append(model(**inputs).logits[0].float().numpy())
    return np.stack(rows).astype(np.float32)
