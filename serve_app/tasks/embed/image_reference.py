"""A dual encoder's vectors and logits from Transformers, with its own processors, one input at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from serve_app.messages import ByteArray, FloatArray
from serve_app.vocabulary import DType


def _load(folder: Path, dtype: DType) -> Any:
    import torch
    from transformers import AutoModel

    return AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype.value)).eval()


def reference_text_vectors(folder: Path, texts: Sequence[str], *, dtype: DType, max_length: int) -> FloatArray:
    """Unnormalised text vectors, float32 [texts, projection]. SigLIP's texts are padded to its positions, as trained.

    Args:
        folder: the checkpoint.
        texts: cut at `max_length` tokens, special tokens included.
        dtype: what Transformers computes in.
        max_length: tokens of one text.
    """
    import torch
    from transformers import AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), _load(folder, dtype)
    siglip = json.loads((folder / "config.json").read_text())["model_type"] == "siglip"
    rows = []
    with torch.inference_mode():
        for text in texts:
            ids = tokenizer(
                text,
                truncation=True,
                max_length=max_length,
                padding="max_length" if siglip else False,
                return_tensors="pt",
            ).input_ids
            rows.append(_vector(model.get_text_features(input_ids=ids)))
    return np.stack(rows)


def reference_image_vectors(folder: Path, pictures: Sequence[ByteArray], *, dtype: DType) -> FloatArray:
    """Unnormalised image vectors, float32 [pictures, projection].

    Args:
        folder: the checkpoint.
        pictures: uint8 RGB [height, width, 3], of any size; the checkpoint's image processor prepares them.
        dtype: what Transformers computes in.
    """
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor

    processor, model = AutoImageProcessor.from_pretrained(folder, backend="pil"), _load(folder, dtype)
    rows = []
    with torch.inference_mode():
        for picture in pictures:
            pixels = processor(Image.fromarray(picture), return_tensors="pt").pixel_values
            rows.append(_vector(model.get_image_features(pixel_values=pixels.to(model.dtype))))
    return np.stack(rows)


def _vector(output: Any) -> FloatArray:
    """Transformers 5 wraps the features into an output object."""
    tensor = getattr(output, "pooler_output", output)
    return np.asarray(tensor[0].float().numpy(), dtype=np.float32)
