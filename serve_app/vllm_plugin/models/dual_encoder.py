"""CLIP and SigLIP with ready uint8 pixels as their input, normalised on the device.

vLLM's own classes take float pixels, four times the bytes on their way to the engine, and want a tokenizer and an image
processor in the engine's process. Towers, pooling and weights are vLLM's.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.models import clip
from vllm.model_executor.models.clip import CLIPEmbeddingModel
from vllm.model_executor.models.siglip import SiglipEmbeddingModel
from vllm.multimodal import MULTIMODAL_REGISTRY

from serve_app.vllm_plugin.models.pixels import (
    IMAGES_AT_ONCE,
    PIXELS,
    PixelDummyInputs,
    PixelInfo,
    PixelNormalizer,
    PixelProcessor,
)


class _UInt8Images:
    """Replaces how the towers get their pictures, and counts them."""

    images_encoded = 0
    get_image_features: Any

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        if not hasattr(clip, "dual_encoder_has_text_tokens"):
            raise RuntimeError("this vLLM skips the text tower in steps that hold images as well; 0.32 does not")
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]  # vLLM's class is next
        self.normalize = PixelNormalizer(vllm_config.model_config, vllm_config.model_config.dtype)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        """Vectors of pictures, a list of [1, projection]."""
        pixels = kwargs.get(PIXELS)
        if pixels is None:
            return []
        self.images_encoded += len(pixels)
        vectors = [self.get_image_features(self.normalize(part)) for part in pixels.split(IMAGES_AT_ONCE)]
        return list(torch.cat(vectors).reshape(len(pixels), 1, -1))


_REGISTER: Any = MULTIMODAL_REGISTRY.register_processor(PixelProcessor, info=PixelInfo, dummy_inputs=PixelDummyInputs)


@_REGISTER
class PoolserveClip(_UInt8Images, CLIPEmbeddingModel):
    """CLIP."""


@_REGISTER
class PoolserveSiglip(_UInt8Images, SiglipEmbeddingModel):
    """SigLIP, and SigLIP2 of fixed resolution."""
