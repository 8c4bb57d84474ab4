"""Checkpoints with fixed random weights: the work of a real reranker without its download.

Speed depends on the shape, not on the values of the weights. The score head is scaled up so that scores of different
texts differ clearly, or parity would show nothing.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    # Qwen3-Reranker-0.6B's.
    "0.6b": {
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151_669,
    },
    # Small enough for a laptop; heads of 32, the smallest size that vLLM's CPU attention has.
    "tiny": {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
        "vocab_size": 30_522,
    },
}
SEED = 20240
SEPARATOR = "[SEP]"


def make_model(out: Path, shape: str, tokenizer: Path, device: str = "cpu") -> dict[str, Any]:
    """Write a one-label `Qwen3ForSequenceClassification` in bfloat16 with a WordPiece tokenizer.

    Args:
        shape: a key of `SHAPES`.
        tokenizer: a folder with a BERT-style `tokenizer.json`; its `[SEP]` ends every pair.

    Returns:
        What was written: path, parameter counts, seconds.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast, Qwen3Config

    began = time.perf_counter()
    tokenizer_class: Any = PreTrainedTokenizerFast  # Transformers types none of the three calls below
    config_class: Any = Qwen3Config
    model_class: Any = AutoModelForSequenceClassification
    fast = tokenizer_class(
        tokenizer_file=str(tokenizer / "tokenizer.json"),
        unk_token="[UNK]",
        sep_token=SEPARATOR,
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
        model_max_length=32_768,
        model_input_names=["input_ids", "attention_mask"],
    )
    fast.backend_tokenizer.no_truncation()
    fast.backend_tokenizer.no_padding()
    if len(fast) > SHAPES[shape]["vocab_size"]:
        raise ValueError(f"the tokenizer has {len(fast)} entries, the shape {shape} room for fewer")
    config = config_class(
        **SHAPES[shape],
        tie_word_embeddings=True,
        max_position_embeddings=32_768,
        rms_norm_eps=1e-6,
        num_labels=1,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
        eos_token_id=fast.sep_token_id,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )
    torch.manual_seed(SEED)
    with torch.device(device):
        model = model_class.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        model.score.weight.mul_(4.0)
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    fast.save_pretrained(out)
    parameters = sum(p.numel() for p in model.parameters())
    return {
        "path": str(out),
        "shape": shape,
        "parameters": parameters,
        "non_embedding": parameters - model.get_input_embeddings().weight.numel(),
        "dtype": "bfloat16",
        "seconds": round(time.perf_counter() - began, 1),
    }
