"""The fusion ranker in vLLM: one marker token per picture, features cached on the device.

The vision tower's patches become keys and values of the fusion layers once per picture. They stay in a slot of a
buffer on the device for as long as vLLM's encoder cache holds the picture, and the sequence has a single token for it,
whose embedding is of no interest: what travels is the slot's number. The text tower runs as any causal model. The
fusion layers and the head run in the pooler, outside of compilation and CUDA graphs.

`tasks/image_rank/reference.py` is the same model in plain PyTorch.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Set
from typing import Any

import torch
from torch import nn
from vllm.compilation.decorators import support_torch_compile
from vllm.distributed import get_tensor_model_parallel_world_size
from vllm.model_executor.layers.linear import ColumnParallelLinear, RowParallelLinear
from vllm.model_executor.layers.pooler import Pooler
from vllm.model_executor.models.clip import CLIPTextTransformer, CLIPVisionTransformer
from vllm.model_executor.models.interfaces import SupportsMultiModal
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.multimodal import MULTIMODAL_REGISTRY

from serve_app.vllm_plugin.models.pixels import (
    IMAGES_AT_ONCE,
    PIXELS,
    PixelDummyInputs,
    PixelInfo,
    PixelNormalizer,
    PixelProcessor,
)

PAIRS_AT_ONCE = 256
"""Pairs whose keys and values are gathered together; bounds the pooler's memory."""
N_TEXT = "n_text"
"""Key of `PoolingParams.extra_kwargs`: tokens of the query, if the markers follow it. Without it the last token is the
query's EOS and the only picture's marker in one."""


@support_torch_compile(dynamic_arg_dims={"positions": 0, "inputs_embeds": 0})
class TextTower(CLIPTextTransformer):
    """CLIP's causal text tower, compiled."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        text = copy.deepcopy(config.text_config)
        text.max_position_embeddings = config.text_positions or text.max_position_embeddings
        super().__init__(text, vllm_config.quant_config, prefix=prefix)
        self._last_position = text.max_position_embeddings - 1

    def forward(self, positions: torch.Tensor, inputs_embeds: torch.Tensor) -> torch.Tensor:
        """States [tokens, D]."""
        # Markers lie beyond the last position, and nobody reads their states.
        positions = positions.clamp(max=self._last_position)
        hidden = inputs_embeds + self.embeddings.position_embedding(positions)
        hidden = self.encoder(inputs_embeds=hidden, return_all_hidden_states=False)
        return self.final_layer_norm(hidden)


class FusionLayer(nn.Module):
    """One cross-attention layer. Its keys and values come from a slot, not from the pictures' patches."""

    def __init__(self, width: int, memory_width: int, heads: int, eps: float, quant: Any, prefix: str) -> None:
        super().__init__()
        self.heads = heads // get_tensor_model_parallel_world_size()
        self.query_norm = nn.LayerNorm(width, eps=eps)

        def column(inputs: int, outputs: int, name: str) -> nn.Module:
            return ColumnParallelLinear(inputs, outputs, quant_config=quant, prefix=f"{prefix}.{name}")

        self.q_proj = column(width, width, "q_proj")
        self.k_proj = column(memory_width, width, "k_proj")
        self.v_proj = column(memory_width, width, "v_proj")
        self.out_proj = RowParallelLinear(width, width, quant_config=quant, prefix=f"{prefix}.out_proj")
        self.mlp_norm = nn.LayerNorm(width, eps=eps)
        self.fc1 = column(width, 4 * width, "fc1")
        self.fc2 = RowParallelLinear(4 * width, width, quant_config=quant, prefix=f"{prefix}.fc2")

    def features(self, memory: torch.Tensor) -> torch.Tensor:
        """Keys and values of pictures, [N, 2, P, D], of their patches [N, P, V]."""
        return torch.stack([self.k_proj(memory)[0], self.v_proj(memory)[0]], dim=1)

    def forward(self, state: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """state [N, D], features [N, 2, P, D] → [N, D]."""
        query = self.q_proj(self.query_norm(state))[0].view(len(state), self.heads, 1, -1)
        keys, values = features.unflatten(-1, (self.heads, -1)).transpose(2, 3).unbind(1)
        attended = nn.functional.scaled_dot_product_attention(query, keys, values)
        state = state + self.out_proj(attended.reshape(len(state), -1))[0]
        hidden = nn.functional.gelu(self.fc1(self.mlp_norm(state))[0])
        return state + self.fc2(hidden)[0]


class FeatureSlots:
    """Features of pictures on the device, [slots, layers, 2, patches, width].

    A slot is free again when the handle that `write` gave out is, which vLLM's encoder cache holds.

    Args:
        slots: how many pictures fit: the encoder cache's capacity and the new ones of a step together, since vLLM tells
            the model of evictions only with the step that needs the room.
        shape: (layers, patches, width).
    """

    def __init__(self, slots: int, shape: tuple[int, int, int], dtype: torch.dtype, device: Any) -> None:
        layers, patches, width = shape
        self.buffer = torch.zeros((slots, layers, 2, patches, width), dtype=dtype, device=device)
        self._free = list(range(slots - 1, -1, -1))

    def write(self, layer_features: list[torch.Tensor]) -> list[torch.Tensor]:
        """Stores pictures' features, a [N, 2, P, D] per layer; returns their handles, int64 [1, 1] each."""
        count = len(layer_features[0])
        if count > len(self._free):
            raise RuntimeError(f"{count} pictures, {len(self._free)} free slots of {len(self.buffer)}")
        numbers = [self._free.pop() for _ in range(count)]
        index = torch.tensor(numbers, device=self.buffer.device)
        for layer, features in enumerate(layer_features):
            self.buffer[index, layer] = features.to(self.buffer.dtype)
        handles = [index[i : i + 1].clone().view(1, 1) for i in range(count)]
        for handle, number in zip(handles, numbers, strict=True):
            weakref.finalize(handle, self._free.append, number)
        return handles

    @property
    def used(self) -> int:
        """Slots that hold a picture."""
        return len(self.buffer) - len(self._free)


class FusionPooler(Pooler):
    """Fusion layers and head. A sequence gives one logit per marker, [markers]."""

    def __init__(self, model: FusionRanker) -> None:
        super().__init__()
        self._model = weakref.ref(model)  # a submodule would be found twice

    def get_supported_tasks(self) -> Set[Any]:
        """See vLLM."""
        return {"classify"}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: Any) -> list[torch.Tensor | None]:
        """See vLLM. Every step scores the markers that it holds; what a chunk leaves is kept in the pooling state."""
        model = self._model()
        assert model is not None
        cursor = pooling_metadata.get_pooling_cursor()
        scheduled, ends = cursor.num_scheduled_tokens_cpu.tolist(), cursor.seq_lens_cpu.tolist()
        lengths = cursor.prompt_lens_cpu.tolist()
        sources: list[torch.Tensor] = []
        rows: list[int] = []
        counts: list[int] = []
        offset = 0
        for i, params in enumerate(pooling_metadata.pooling_params):
            start, end = ends[i] - scheduled[i], ends[i]
            cache = pooling_metadata.pooling_states[i].hidden_states_cache
            if start == 0:
                cache.clear()
            n_text = (params.extra_kwargs or {}).get(N_TEXT)
            state_at = lengths[i] - 1 if n_text is None else n_text - 1
            first_marker = lengths[i] - 1 if n_text is None else n_text
            if start <= state_at < end:
                cache.insert(0, hidden_states[offset + state_at - start].clone())  # CUDA graphs reuse the buffer
            markers = range(max(start, first_marker), end)
            if len(markers):
                sources.append(cache[0].expand(len(markers), -1))
                rows.extend(offset + at - start for at in markers)
            counts.append(len(markers))
            offset += scheduled[i]
        if not rows:
            return [None] * len(counts)
        index = torch.tensor(rows, device=hidden_states.device)
        logits = model.score(torch.cat(sources), model.slots_of_step(index, len(hidden_states))).split(counts)
        return [self._collect(pooling_metadata.pooling_states[i].hidden_states_cache, logits[i], ends[i] == lengths[i])
                for i in range(len(counts))]  # fmt: skip

    @staticmethod
    def _collect(cache: list[torch.Tensor], logits: torch.Tensor, finished: bool) -> torch.Tensor | None:
        if not finished:
            if len(logits):
                cache.append(logits)
            return None
        return torch.cat([*cache[1:], logits]) if len(cache) > 1 else logits


@MULTIMODAL_REGISTRY.register_processor(PixelProcessor, info=PixelInfo, dummy_inputs=PixelDummyInputs)
class FusionRanker(nn.Module, SupportsMultiModal):
    """The model. See the module's text."""

    is_pooling_model = True

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """See vLLM: markers are appended by the processor, not written into the text."""
        return None

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__()
        model_config = vllm_config.model_config
        config = model_config.hf_config
        text, vision, quant = config.text_config, config.vision_config, vllm_config.quant_config
        self.config = config
        with self._mark_language_model(vllm_config):
            self.text_model = TextTower(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "text_model"))
        with self._mark_tower_model(vllm_config, "image"):
            self.vision_model = CLIPVisionTransformer(
                vision, quant, require_post_norm=False, prefix=maybe_prefix(prefix, "vision_model")
            )
            self.image_norm = nn.LayerNorm(vision.hidden_size, eps=text.layer_norm_eps)
        self.fusion = nn.ModuleList(
            FusionLayer(
                text.hidden_size,
                vision.hidden_size,
                config.fusion_heads,
                text.layer_norm_eps,
                quant,
                maybe_prefix(prefix, f"fusion.{i}"),
            )
            for i in range(config.fusion_layers)
        )
        self.head_norm = nn.LayerNorm(text.hidden_size, eps=text.layer_norm_eps)
        self.head = nn.Linear(text.hidden_size, 1)
        self.normalize = PixelNormalizer(model_config, model_config.dtype)
        scheduler = vllm_config.scheduler_config
        patches = (vision.image_size // vision.patch_size) ** 2 + 1
        width = text.hidden_size // get_tensor_model_parallel_world_size()
        self.features = FeatureSlots(
            scheduler.encoder_cache_size + scheduler.max_num_encoder_input_tokens,
            (config.fusion_layers, patches, width),
            model_config.dtype,
            vllm_config.device_config.device,
        )
        self.images_encoded = 0
        self._step_slots: torch.Tensor | None = None
        self.pooler = FusionPooler(self)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        """Encodes pictures into slots; returns their handles, a list of int64 [1, 1]."""
        pixels = kwargs.get(PIXELS)
        if pixels is None:
            return []
        self.images_encoded += len(pixels)
        handles: list[torch.Tensor] = []
        for part in pixels.split(IMAGES_AT_ONCE):
            memory = self.image_norm(self.vision_model(self.normalize(part)))
            handles += self.features.write([layer.features(memory) for layer in self.fusion])
        return handles

    def embed_input_ids(
        self, input_ids: torch.Tensor, multimodal_embeddings: Any = None, *, is_multimodal: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Text embeddings of all tokens. Notes which token of this step is the marker of which slot."""
        slots = torch.full_like(input_ids, -1, dtype=torch.int64)
        if multimodal_embeddings is not None and len(multimodal_embeddings) and is_multimodal is not None:
            slots[is_multimodal.to(slots.device)] = torch.cat(list(multimodal_embeddings)).view(-1)
        self._step_slots = slots
        return self.text_model.embed_input_ids(input_ids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """The text tower alone: states [tokens, D]."""
        return self.text_model(positions, inputs_embeds)

    def slots_of_step(self, rows: torch.Tensor, total: int) -> torch.Tensor:
        """Slot of the marker in each of this step's rows; -1 where there is none, as in vLLM's dummy runs."""
        if self._step_slots is None or len(self._step_slots) < total:
            return torch.full_like(rows, -1)
        return self._step_slots[rows]

    def score(self, states: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Logits [N] of query states [N, D] and slots [N]; NaN where there is no picture."""
        logits = []
        for state, slot in zip(states.split(PAIRS_AT_ONCE), slots.split(PAIRS_AT_ONCE), strict=True):
            for number, layer in enumerate(self.fusion):
                state = layer(state, self.features.buffer[slot.clamp(min=0), number])
            logit = self.head(self.head_norm(state))[:, 0].float()
            logits.append(logit.masked_fill(slot < 0, torch.nan))
        return torch.cat(logits)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Keys are those of the reference."""
        return AutoWeightsLoader(self).load_weights(weights)
