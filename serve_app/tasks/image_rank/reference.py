"""The fusion ranker in plain PyTorch: what the checkpoint means, and what the served model is compared with.

A causal text tower reads the query, a vision tower the picture. The query's state at its EOS token attends to the
picture's patches through the fusion layers; a linear head makes the logit:

    x = text_tower(query)[EOS]                          [D]
    m = image_norm(vision_tower(pixels))                [P, V]
    per layer: x += cross_attention(query_norm(x), m);  x += mlp(mlp_norm(x))
    logit = head(head_norm(x))

The keys and values of every layer depend on the picture alone, so a server computes them once per picture.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel

from serve_app.messages import ByteArray, FloatArray
from serve_app.vocabulary import DType


class CrossAttentionLayer(nn.Module):
    """One fusion layer: the query's state attends to the picture's patches.

    Args:
        width: D, of the query's state.
        memory_width: V, of a patch.
        heads: attention heads; D is divisible by it.
        eps: of the norms.
    """

    def __init__(self, width: int, memory_width: int, heads: int, eps: float) -> None:
        super().__init__()
        self.heads = heads
        self.query_norm = nn.LayerNorm(width, eps=eps)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(memory_width, width)
        self.v_proj = nn.Linear(memory_width, width)
        self.out_proj = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width, eps=eps)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, state: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """state [N, D], memory [N, P, V] → [N, D]."""
        query = self._heads(self.q_proj(self.query_norm(state))[:, None])
        keys, values = self._heads(self.k_proj(memory)), self._heads(self.v_proj(memory))
        attended = nn.functional.scaled_dot_product_attention(query, keys, values)
        state = state + self.out_proj(attended.transpose(1, 2).reshape(state.shape))
        return state + self.fc2(nn.functional.gelu(self.fc1(self.mlp_norm(state))))

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FusionRanker(nn.Module):
    """The whole model. `config` is the checkpoint's `config.json`."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        text, vision = CLIPTextConfig(**config["text_config"]), CLIPVisionConfig(**config["vision_config"])
        eps = text.layer_norm_eps
        self.text_model = CLIPTextModel(text)
        self.vision_model = CLIPVisionModel(vision)
        self.vision_model.post_layernorm = nn.Identity()  # belongs to CLIP's pooled vector, which is not used here
        self.image_norm = nn.LayerNorm(vision.hidden_size, eps=eps)
        self.fusion = nn.ModuleList(
            CrossAttentionLayer(text.hidden_size, vision.hidden_size, config["fusion_heads"], eps)
            for _ in range(config["fusion_layers"])
        )
        self.head_norm = nn.LayerNorm(text.hidden_size, eps=eps)
        self.head = nn.Linear(text.hidden_size, 1)

    def text_state(self, input_ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """The last token's state of each query, [N, D].

        Args:
            input_ids: int64 [N, T], padded at the end; the text tower is causal, so padding changes nothing before it.
            lengths: int64 [N], tokens of each query, its EOS included.
        """
        states = self.text_model(input_ids=input_ids).last_hidden_state
        return states[torch.arange(len(states)), lengths - 1]

    def memory(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """The picture's patches, [N, P, V], of normalised pixels [N, 3, H, W]."""
        return self.image_norm(self.vision_model(pixel_values=pixel_values).last_hidden_state)

    def score(self, state: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Logits [N] of query states [N, D] and memories [N, P, V]."""
        for layer in self.fusion:
            state = layer(state, memory)
        return self.head(self.head_norm(state))[:, 0]

    def forward(self, input_ids: torch.Tensor, lengths: torch.Tensor, pixel_values: torch.Tensor) -> torch.Tensor:
        """Logits [N] of pairs."""
        return self.score(self.text_state(input_ids, lengths), self.memory(pixel_values))


def load_fusion_ranker(folder: Path, dtype: DType) -> FusionRanker:
    """The checkpoint's model, ready to score."""
    from safetensors.torch import load_file

    model = FusionRanker(json.loads((folder / "config.json").read_text()))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    return model.to(getattr(torch, dtype.value)).eval()


def reference_logits(
    folder: Path, pairs: Sequence[tuple[str, ByteArray]], *, dtype: DType, max_length: int
) -> FloatArray:
    """Logits of (query, picture) pairs, float32 [pairs]; each query alone and without padding.

    Args:
        folder: the checkpoint.
        pairs: a query, and its picture as uint8 RGB [height, width, 3] of the model's size.
        dtype: what PyTorch computes in.
        max_length: tokens of a query, BOS and EOS included.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = load_fusion_ranker(folder, dtype)
    scale = json.loads((folder / "preprocessor_config.json").read_text())
    mean, std = (torch.tensor(scale[name]).view(3, 1, 1) for name in ("image_mean", "image_std"))
    logits = []
    with torch.inference_mode():
        for text, picture in pairs:
            ids = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt").input_ids
            pixels = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1).float() / 255
            normalised = ((pixels - mean) / std).to(next(model.parameters()).dtype)
            logits.append(model(ids, torch.tensor([ids.shape[1]]), normalised[None]).float())
    return torch.cat(logits).numpy().astype(np.float32)
