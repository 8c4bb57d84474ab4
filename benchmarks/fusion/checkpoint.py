"""A fusion ranker with random weights, in the format of `serve_app/tasks/image_rank/reference.py`.

`vit-l-14-336` has the towers of CLIP ViT-L/14 at 336 pixels: 577 patches a picture, 77 positions of text.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.corpus import FALLBACK_WORDS

SEED = 33_614
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
SHAPES: dict[str, dict[str, Any]] = {
    "vit-l-14-336": {
        "text": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                 "max_position_embeddings": 77, "vocab_size": 49_408},
        "vision": {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
                   "image_size": 336, "patch_size": 14},
        "fusion_heads": 12,
    },
    # Heads of 32, the smallest size of vLLM's CPU attention; patches are wider than the text's states, as above.
    "tiny": {
        "text": {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
                 "max_position_embeddings": 24, "vocab_size": 512},
        "vision": {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 192,
                   "image_size": 48, "patch_size": 12},
        "fusion_heads": 2,
    },
}  # fmt: skip
FUSION_LAYERS = 2
_SHARPER = {"q_proj": 4.0, "k_proj": 4.0, "v_proj": 4.0, "out_proj": 4.0}
"""How much larger the fusion layers' weights are made than a fresh model's: attention over hundreds of patches is flat
otherwise, and no picture would differ from another."""


def config(shape: str) -> dict[str, Any]:
    """The checkpoint's config.json."""
    sizes = SHAPES[shape]
    vocabulary = sizes["text"]["vocab_size"]
    common = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5, "attention_dropout": 0.0}
    ids = {"pad_token_id": 0, "bos_token_id": vocabulary - 2, "eos_token_id": vocabulary - 1}
    width = {"projection_dim": sizes["text"]["hidden_size"]}
    return {
        "model_type": "fusion_ranker",
        "architectures": ["FusionRanker"],
        "fusion_layers": FUSION_LAYERS,
        "fusion_heads": sizes["fusion_heads"],
        "id2label": {"0": "relevance"},
        "label2id": {"relevance": 0},
        "dtype": "bfloat16",
        "text_config": {"model_type": "clip_text_model", **sizes["text"], **ids, **common, **width},
        "vision_config": {"model_type": "clip_vision_model", "num_channels": 3, **sizes["vision"], **common, **width},
    }


def patches(shape: str) -> int:
    """Patches of a picture, the class token included."""
    vision = SHAPES[shape]["vision"]
    return int((vision["image_size"] // vision["patch_size"]) ** 2 + 1)


def make_fusion_ranker(out: Path, shape: str, device: str = "cpu") -> dict[str, Any]:
    """Writes the checkpoint: weights in bfloat16, tokenizer, image processor.

    Returns:
        What was written: path, parameters, seconds.
    """
    import torch
    from safetensors.torch import save_file

    from serve_app.tasks.image_rank.reference import FusionRanker

    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    described = config(shape)
    torch.manual_seed(SEED)
    with torch.device(device):
        model = FusionRanker(described)
    with torch.no_grad():
        for name, parameter in model.fusion.named_parameters():
            for projection, factor in _SHARPER.items():
                if name.endswith(f"{projection}.weight"):
                    parameter.mul_(factor)
        model.head.weight.mul_(4.0)
    state = {name: tensor.to(torch.bfloat16).cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    write_files(out, shape)  # last: config.json says that the rest is there
    return {
        "path": str(out),
        "shape": shape,
        "parameters": sum(tensor.numel() for tensor in state.values()),
        "dtype": "bfloat16",
        "seconds": round(time.perf_counter() - began, 1),
    }


def write_files(out: Path, shape: str) -> None:
    """Writes all but the weights."""
    described = config(shape)
    _write_tokenizer(out, described["text_config"])
    size = described["vision_config"]["image_size"]
    preprocessor = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": size},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": {"height": size, "width": size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": MEAN,
        "image_std": STD,
    }
    (out / "preprocessor_config.json").write_text(json.dumps(preprocessor, indent=1))
    (out / "config.json").write_text(json.dumps(described, indent=1))


def _write_tokenizer(out: Path, text: dict[str, Any]) -> None:
    """A tokenizer of whole words with CLIP's frame: `BOS words EOS`, the last two ids of the vocabulary."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    bos, eos, pad, unknown = "<|startoftext|>", "<|endoftext|>", "<|pad|>", "<|unk|>"
    vocabulary = {pad: 0, unknown: 1, bos: text["bos_token_id"], eos: text["eos_token_id"]}
    vocabulary |= {word: i for i, word in enumerate(dict.fromkeys(FALLBACK_WORDS), start=2)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=unknown))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A $B {eos}",
        special_tokens=[(bos, vocabulary[bos]), (eos, vocabulary[eos])],
    )
    tokenizer.save(str(out / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": text["max_position_embeddings"],
        "model_input_names": ["input_ids", "attention_mask"],
        "pad_token": pad,
        "unk_token": unknown,
        "bos_token": bos,
        "eos_token": eos,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(described, indent=1))
