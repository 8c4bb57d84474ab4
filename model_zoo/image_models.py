"""The shapes of the two image models, their tokenizer and preprocessing, and how they are saved."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from transformers import CLIPConfig, CLIPModel

from model_zoo.captions import vocabulary
from serve_app.tasks.image_rank.reference import FusionRanker

SPECIAL = {"pad_token": "<|pad|>", "unk_token": "<|unk|>", "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>"}
PAD, UNK, BOS, EOS = range(4)  # EOS must not be 2: Transformers then pools the token with the highest id
MAX_TOKENS = 32
IMAGE_SIZE = 64
PATCH_SIZE = 8
PATCHES = IMAGE_SIZE // PATCH_SIZE  # in a row and in a column
WIDTH = 128
HEADS = 4  # 32 values a head, the smallest size that common CPU attention kernels support
TEXT_LAYERS = 2
VISION_LAYERS = 3
FUSION_LAYERS = 2
IMAGE_MEAN = (0.48145466, 0.4578275, 0.40821073)  # CLIP's
IMAGE_STD = (0.26862954, 0.26130258, 0.27577711)


def build_tokenizer() -> Tokenizer:
    """A lower-case WordPiece tokenizer of the captions' words; any other word is spelled in characters."""
    characters = [c for c in string.printable.lower() if not c.isspace()]
    pieces = [*SPECIAL.values(), *characters, *("##" + c for c in characters), *vocabulary()]
    ids = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(ids, unk_token=SPECIAL["unk_token"], max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    bos, eos = SPECIAL["bos_token"], SPECIAL["eos_token"]
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A {eos}", pair=f"{bos} $A $B {eos}", special_tokens=[(bos, BOS), (eos, EOS)]
    )
    tokenizer.add_special_tokens(list(SPECIAL.values()))
    assert [ids[token] for token in SPECIAL.values()] == [PAD, UNK, BOS, EOS]
    return tokenizer


def tower_configs(vocabulary_size: int) -> dict[str, dict[str, Any]]:
    """`text_config` and `vision_config` of both models."""
    shape = {
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_attention_heads": HEADS,
        "projection_dim": WIDTH,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "attention_dropout": 0.0,
    }
    text = {"vocab_size": vocabulary_size, "max_position_embeddings": MAX_TOKENS, "num_hidden_layers": TEXT_LAYERS}
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    vision = {"image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE, "num_hidden_layers": VISION_LAYERS}
    return {
        "text_config": {"model_type": "clip_text_model", **text, **ids, **shape},
        "vision_config": {"model_type": "clip_vision_model", "num_channels": 3, **vision, **shape},
    }


def new_clip(vocabulary_size: int) -> CLIPModel:
    """An untrained CLIP."""
    return CLIPModel(CLIPConfig(**tower_configs(vocabulary_size), projection_dim=WIDTH))


def new_fusion_ranker(vocabulary_size: int) -> FusionRanker:
    """An untrained fusion ranker."""
    return FusionRanker(
        {
            "model_type": "fusion_ranker",
            "architectures": ["FusionRanker"],
            "fusion_layers": FUSION_LAYERS,
            "fusion_heads": HEADS,
            "id2label": {"0": "relevance"},
            "label2id": {"relevance": 0},
            "dtype": "float32",
            **tower_configs(vocabulary_size),
        }
    )


def copy_towers(clip: CLIPModel, ranker: FusionRanker) -> None:
    """Start the ranker's towers as those of a trained CLIP."""
    ranker.text_model.load_state_dict(clip.text_model.state_dict())
    vision = {k: v for k, v in clip.vision_model.state_dict().items() if not k.startswith("post_layernorm.")}
    ranker.vision_model.load_state_dict(vision)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_image_model(model: CLIPModel | FusionRanker, tokenizer: Tokenizer, folder: Path) -> None:
    """Write config, float32 safetensors, tokenizer and preprocessing files."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, FusionRanker):
        _write_json(folder / "config.json", model.config)
        state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        model.eval().save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "do_lower_case": True,
            "model_max_length": MAX_TOKENS,
            "model_input_names": ["input_ids", "attention_mask"],
            **SPECIAL,
        },
    )
    _write_json(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "CLIPImageProcessor",
            "do_convert_rgb": True,
            "do_resize": True,
            "size": {"shortest_edge": IMAGE_SIZE},
            "resample": 3,
            "do_center_crop": True,
            "crop_size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(IMAGE_MEAN),
            "image_std": list(IMAGE_STD),
        },
    )


def token_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids [N, T], padded at the end, and the lengths [N] of texts."""
    rows = [row.ids for row in tokenizer.encode_batch(list(texts))]
    rows = [row if len(row) <= MAX_TOKENS else [*row[: MAX_TOKENS - 1], EOS] for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), PAD)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return ids, lengths


def pixel_values(pictures: torch.Tensor) -> torch.Tensor:
    """Normalised pixels [N, 3, H, W] of uint8 RGB pictures [N, H, W, 3]."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGE_MEAN, IMAGE_STD))
    return (pictures.permute(0, 3, 1, 2).float() / 255 - mean) / std
