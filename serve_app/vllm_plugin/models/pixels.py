"""Ready pixels as vLLM's multimodal input: uint8 pictures of the model's size, one marker token each.

Our engine hands over pixels that the ImageLoader made. The processor here is for vLLM's own start (a dummy picture to
profile with) and for a plain `vllm serve`, where it prepares pictures as the ImageLoader would.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from vllm.multimodal.inputs import (
    MultiModalBatchedField,
    MultiModalFieldConfig,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
)
from vllm.multimodal.processing import BaseDummyInputsBuilder, BaseMultiModalProcessor, BaseProcessingInfo

PIXELS = "pixels"
"""Name of the models' input: uint8 [images, height, width, 3]."""
IMAGES_AT_ONCE = 64
"""Pictures that a vision tower encodes together; bounds its activations whatever a step asks for."""

MAX_PIXELS = 10**8
"""Pixels of a picture that a plain `vllm serve` prepares, before and after the resize."""


def pixel_item(pixels: torch.Tensor) -> MultiModalKwargsItem:
    """One picture, uint8 [height, width, 3], as vLLM's engine takes it."""
    return MultiModalKwargsItem({PIXELS: MultiModalFieldElem(data=pixels, field=MultiModalBatchedField())})


class PixelInfo(BaseProcessingInfo):
    """One token per picture, as many pictures as the configuration allows."""

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """See vLLM."""
        return {"image": None}

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """See vLLM."""
        return {"image": 1}

    @property
    def size(self) -> int:
        """Height and width of the model's pictures."""
        return int(self.get_hf_config().vision_config.image_size)


class PixelDummyInputs(BaseDummyInputsBuilder):
    """White pictures without a text."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """See vLLM."""
        return ""

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """See vLLM."""
        size = self.info.size
        return {"image": self._get_dummy_images(width=size, height=size, num_images=mm_counts.get("image", 0))}


class PixelProcessor(BaseMultiModalProcessor):
    """Pictures to ready pixels; the markers follow the prompt's tokens."""

    requires_tokenizer = False

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """See vLLM."""
        from vllm.inputs import mm_input

        counts = inputs.mm_data_items.get_all_counts()
        pictures = list(inputs.mm_data_items["image"].get_all()) if counts.get("image") else []
        items: list[Any] = [pixel_item(self._prepare(picture)) for picture in pictures]
        hashes = self._hashes(inputs) if pictures else []
        cache = inputs.cache if hasattr(inputs, "cache") else self.cache  # vLLM 0.26 keeps it at the processor
        if cache is not None:
            items = [cache.get_and_update_item((item, []), key)[0] for item, key in zip(items, hashes, strict=True)]
        start = len(inputs.prompt)
        return mm_input(
            prompt_token_ids=[*inputs.prompt, *[self._marker()] * len(pictures)],
            mm_kwargs=MultiModalKwargsItems({"image": items} if pictures else {}),
            mm_hashes={"image": hashes} if pictures else {},
            mm_placeholders={"image": [PlaceholderRange(start + i, 1) for i in range(len(pictures))]}
            if pictures
            else {},
        )

    def _hashes(self, inputs: Any) -> list[str]:
        compute = getattr(self, "_get_mm_hashes", None)  # vLLM 0.32; before, the inputs did it themselves
        hashes = compute(inputs) if compute else inputs.get_mm_hashes(self.info.model_id)
        return list(hashes["image"])

    def _marker(self) -> int:
        return int(getattr(self.info.get_hf_config().text_config, "eos_token_id", 0) or 0)

    def _prepare(self, picture: Any) -> torch.Tensor:
        size = self.info.size
        array = np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)
        if array.shape != (size, size, 3):
            array = self._resized(array)
        return torch.from_numpy(np.array(array, dtype=np.uint8))

    def _resized(self, array: np.ndarray) -> np.ndarray:
        from PIL import Image

        from serve_app.media.decode import decode
        from serve_app.media.spec import read_pixel_spec

        spec = read_pixel_spec(checkpoint_folder(self.info.ctx.model_config), scaled_decoding=False)
        file = io.BytesIO()
        Image.fromarray(array).save(file, "BMP")
        return decode(file.getvalue(), spec, MAX_PIXELS)

    def _get_mm_fields_config(self, hf_inputs: Any, hf_processor_mm_kwargs: Any) -> Mapping[str, Any]:
        return {PIXELS: MultiModalFieldConfig.batched("image")}

    def _get_prompt_updates(self, *_: Any) -> Sequence[Any]:
        return []


def checkpoint_folder(model_config: Any) -> Path:
    """Where the checkpoint's preprocessor_config.json lies; fetched if the model is a hub id."""
    folder = Path(model_config.model)
    if folder.exists():
        return folder
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(model_config.model, "preprocessor_config.json", revision=model_config.revision)).parent


class PixelNormalizer(nn.Module):
    """uint8 [N, H, W, 3] to the tower's input [N, 3, H, W]: (pixel x rescale - mean) / std, on the device.

    Args:
        model_config: vLLM's; names the checkpoint, whose preprocessor_config.json has the constants.
        dtype: the tower's.
    """

    def __init__(self, model_config: Any, dtype: torch.dtype) -> None:
        super().__init__()
        from serve_app.media.spec import read_normalisation

        constants = read_normalisation(checkpoint_folder(model_config))
        self._rescale, self._dtype = constants.rescale_factor, dtype
        for name in ("mean", "std"):
            value = torch.tensor(getattr(constants, name), dtype=torch.float32).view(3, 1, 1)
            self.register_buffer(name, value, persistent=False)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """In float32 whatever the tower's dtype, as the image processors do."""
        scaled = pixels.permute(0, 3, 1, 2).to(torch.float32) * self._rescale
        return ((scaled - self.mean) / self.std).to(self._dtype).contiguous()
