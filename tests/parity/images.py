"""Pictures, random image checkpoints, and what else the image tests share."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPModel, PreTrainedTokenizerFast, SiglipConfig, SiglipModel

from serve_app.media.decode import decode
from serve_app.messages import ByteArray, ImageRef, ItemError, LoadedImages, LoadRequest
from serve_app.tasks.images import content_hash

TOWER = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = TOWER | {"image_size": 48, "patch_size": 12}
WORDS = "a red green blue circle square small large on the left right of two three picture dark 빨간 원 사각형".split()


def picture(seed: int, size: tuple[int, int] = (120, 90)) -> bytes:
    """A PNG of coloured blocks, different for every seed."""
    blocks = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(blocks).resize(size, Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


class DecodingLoader:
    """A loader without a network; counts what it loads."""

    def __init__(self) -> None:
        self.loaded = 0
        self.urls: dict[str, bytes] = {}

    async def load(self, request: LoadRequest) -> LoadedImages:
        """Images of `urls`, and bytes."""
        self.loaded += len(request.images)
        hashes, rows, pixels, errors = [], [], [], []
        for i, (image, field) in enumerate(zip(request.images, request.fields, strict=True)):
            data = image.data if image.data is not None else self.urls.get(image.url or "")
            if data is None:
                errors.append(ItemError(i, "media_unreachable", f"{field}: cannot be reached"))  # type: ignore[arg-type]
                hashes.append("")
                rows.append(-1)
                continue
            hashes.append(content_hash(data))
            rows.append(len(pixels))
            pixels.append(decode(data, request.spec, 10**8))
        stacked = np.stack(pixels) if pixels else np.empty((0, *request.spec.output_size, 3), np.uint8)
        return LoadedImages(hashes, np.array(rows, np.int32), stacked, errors, 0.0, 0.0)


def tokenizer(folder: Path, *, siglip: bool = False) -> PreTrainedTokenizerFast:
    """A word tokenizer, lowercased: `<s> text </s>` as CLIP has it, or `text </s>` as SigLIP has it."""
    specials = ["<pad>", "<unk>", "<s>", "</s>"]
    vocabulary = {word: i for i, word in enumerate([*specials, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="$A </s>" if siglip else "<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"
    )
    made.save_pretrained(folder)
    return made


def clip(folder: Path) -> Path:
    """A random CLIP of the public format."""
    torch.manual_seed(0)
    made = tokenizer(folder)
    text = TOWER | {"vocab_size": len(made), "max_position_embeddings": 24, "bos_token_id": 2, "eos_token_id": 3,
                    "pad_token_id": 0}  # fmt: skip
    config = CLIPConfig(text_config=text, vision_config=VISION | {"hidden_size": 96, "num_attention_heads": 3},
                        projection_dim=80)  # fmt: skip
    _save(CLIPModel(config), folder)
    _preprocessor(folder, "CLIPImageProcessor", {"shortest_edge": 48}, {"height": 48, "width": 48})
    return folder


def siglip(folder: Path) -> Path:
    """A random SigLIP of the public format: texts of 16 tokens, padded."""
    torch.manual_seed(1)
    made = tokenizer(folder, siglip=True)
    text = TOWER | {"vocab_size": len(made), "max_position_embeddings": 16, "projection_size": 64, "pad_token_id": 0,
                    "bos_token_id": 2, "eos_token_id": 3}  # fmt: skip
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=VISION))
    with torch.no_grad():
        model.logit_scale.fill_(2.0)
        model.logit_bias.fill_(-3.0)
    _save(model, folder)
    _preprocessor(folder, "SiglipImageProcessor", {"height": 48, "width": 48}, None)
    return folder


def _save(model: Any, folder: Path) -> None:
    # Larger weights than a fresh model's, so that texts and pictures differ by more than rounding.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.mul_(4.0 if "embedding" in name else 2.0)
    model.save_pretrained(folder)


def _preprocessor(folder: Path, kind: str, size: dict[str, int], crop: dict[str, int] | None) -> None:
    content: dict[str, Any] = {
        "image_processor_type": kind,
        "do_resize": True,
        "size": size,
        "resample": 3,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.48, 0.46, 0.41],
        "image_std": [0.27, 0.26, 0.28],
        "do_convert_rgb": True,
    }
    if crop is not None:
        content |= {"do_center_crop": True, "crop_size": crop}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


def refs(seeds: range) -> list[ImageRef]:
    """Pictures as bytes."""
    return [ImageRef(data=picture(seed)) for seed in seeds]


def as_array(data: bytes) -> ByteArray:
    """A picture's pixels, RGB."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
