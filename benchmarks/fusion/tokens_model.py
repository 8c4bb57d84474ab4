"""The fusion ranker as vLLM takes pictures by default: every patch is a token of the sequence.

Same weights and same function as `serve_app/vllm_plugin/models/fusion_ranker.py`. A sequence is one pair: the query's
tokens, then the picture's P patches, which the causal text tower reads to no effect, for the query's state comes before
them. vLLM's encoder cache keeps the vision tower's output, P rows a picture, and puts the rows into the input
embeddings. The pooler makes keys and values of them, for every pair anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Set
from typing import Any
from unittest import mock

import torch
from torch import nn
from vllm.model_executor.layers.pooler import Pooler
from vllm.model_executor.models.config import VerifyAndUpdateConfig
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

from serve_app.vllm_plugin.models import fusion_ranker
from serve_app.vllm_plugin.models.fusion_ranker import FusionRanker
from serve_app.vllm_plugin.models.pixels import IMAGES_AT_ONCE, PIXELS, PixelDummyInputs, PixelInfo, PixelProcessor
from serve_app.vllm_plugin.models.pixels import pixel_item as item_of

PAIRS_AT_ONCE = 64
"""Pairs whose keys and values exist together; they are made of every pair anew."""


def patches_of(config: Any) -> int:
    """Patches of a picture, the class token included."""
    vision = config.vision_config
    return int((vision.image_size // vision.patch_size) ** 2 + 1)


class TokensOptions(VerifyAndUpdateConfig):  # type: ignore[misc]  # vLLM's types are not followed
    """vLLM's budgets count embeddings: P a picture."""

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Room for as many pictures as the other sides have."""
        config, scheduler = vllm_config.model_config.hf_config, vllm_config.scheduler_config
        scheduler.encoder_cache_size = config.device_cache * patches_of(config)
        scheduler.max_num_encoder_input_tokens = config.images_per_step * patches_of(config)


class TokensInfo(PixelInfo):
    """P tokens a picture."""

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """See vLLM."""
        return {"image": patches_of(self.get_hf_config())}


class TokensProcessor(PixelProcessor):
    """For vLLM's own start only: requests bring ready inputs."""

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """See vLLM."""
        from vllm.inputs import mm_input

        count = inputs.mm_data_items.get_all_counts().get("image", 0)
        patches, size = patches_of(self.info.get_hf_config()), self.info.size
        start = len(inputs.prompt)
        white = torch.full((size, size, 3), 255, dtype=torch.uint8)
        places = [PlaceholderRange(start + i * patches, patches) for i in range(count)]
        return mm_input(
            prompt_token_ids=[*inputs.prompt, *[self._marker()] * (patches * count)],
            mm_kwargs=MultiModalKwargsItems({"image": [item_of(white) for _ in range(count)]} if count else {}),
            mm_hashes={"image": [f"start-{i}" for i in range(count)]} if count else {},
            mm_placeholders={"image": places} if count else {},
        )


class _NoSlots:
    """Instead of `FeatureSlots`: this side keeps no keys and values."""

    used = 0

    def __init__(self, *_: Any) -> None:
        pass


@MULTIMODAL_REGISTRY.register_processor(TokensProcessor, info=TokensInfo, dummy_inputs=PixelDummyInputs)
class TokensFusionRanker(FusionRanker):
    """The model. See the module's text."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        with mock.patch.object(fusion_ranker, "FeatureSlots", _NoSlots):
            super().__init__(vllm_config=vllm_config, prefix=prefix)
        config = vllm_config.model_config.hf_config
        self.patches = patches_of(config)
        self.memory_width, self.text_width = config.vision_config.hidden_size, config.text_config.hidden_size
        self._rows: torch.Tensor | None = None
        self.pooler = TokensPooler(self)

    def embed_multimodal(self, **kwargs: Any) -> list[torch.Tensor]:
        """Normalised patches of pictures, a list of [P, W]; W: the wider of a patch and a text state."""
        pixels = kwargs.get(PIXELS)
        if pixels is None:
            return []
        self.images_encoded += len(pixels)
        parts = [self.image_norm(self.vision_model(self.normalize(part))) for part in pixels.split(IMAGES_AT_ONCE)]
        return list(self._widened(torch.cat(parts)))

    def embed_input_ids(
        self, input_ids: torch.Tensor, multimodal_embeddings: Any = None, *, is_multimodal: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Input embeddings [tokens, W]: text embeddings, and patches where a picture is."""
        rows = self._widened(self.text_model.embed_input_ids(input_ids))
        if multimodal_embeddings is not None and len(multimodal_embeddings) and is_multimodal is not None:
            rows[is_multimodal.to(rows.device)] = torch.cat(list(multimodal_embeddings)).to(rows.dtype)
        self._rows = rows
        return rows

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """The text tower over all tokens: states [tokens, D]."""
        assert inputs_embeds is not None
        return self.text_model(positions, inputs_embeds[:, : self.text_width])

    def rows_of_step(self, total: int) -> torch.Tensor | None:
        """This step's input embeddings; None in vLLM's dummy runs."""
        return self._rows if self._rows is not None and len(self._rows) >= total else None

    def score_pairs(self, states: torch.Tensor, memories: torch.Tensor) -> torch.Tensor:
        """Logits [N] of query states [N, D] and patches [N, P, V]."""
        logits = []
        for state, memory in zip(states.split(PAIRS_AT_ONCE), memories.split(PAIRS_AT_ONCE), strict=True):
            for layer in self.fusion:
                state = layer(state, layer.features(memory))
            logits.append(self.head(self.head_norm(state))[:, 0].float())
        return torch.cat(logits)

    def _widened(self, rows: torch.Tensor) -> torch.Tensor:
        width = max(self.memory_width, self.text_width)
        return nn.functional.pad(rows, (0, width - rows.shape[-1])) if rows.shape[-1] < width else rows


class TokensPooler(Pooler):  # type: ignore[misc]
    """Fusion layers and head. A sequence gives one logit, [1]."""

    def __init__(self, model: TokensFusionRanker) -> None:
        super().__init__()
        self._model = weakref.ref(model)  # a submodule would be found twice

    def get_supported_tasks(self) -> Set[Any]:
        """See vLLM."""
        return {"classify"}

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: Any) -> list[torch.Tensor | None]:
        """See vLLM. A pair that comes in chunks is scored with its last; until then its patches wait in its state."""
        model = self._model()
        assert model is not None
        cursor = pooling_metadata.get_pooling_cursor()
        scheduled, ends = cursor.num_scheduled_tokens_cpu.tolist(), cursor.seq_lens_cpu.tolist()
        lengths = cursor.prompt_lens_cpu.tolist()
        rows = model.rows_of_step(len(hidden_states))
        finished: list[int] = []
        states: list[torch.Tensor] = []
        memories: list[torch.Tensor] = []
        offset = 0
        for i, (length, end, count) in enumerate(zip(lengths, ends, scheduled, strict=True)):
            start, n_text = end - count, length - model.patches
            cache = pooling_metadata.pooling_states[i].hidden_states_cache
            if start == 0:
                cache.clear()
            if rows is not None and n_text > 0:
                if start <= n_text - 1 < end:
                    cache.insert(0, hidden_states[offset + n_text - 1 - start].clone())
                if end > n_text:
                    cache.append(rows[offset + max(start, n_text) - start : offset + count, : model.memory_width])
                if end == length:
                    finished.append(i)
                    states.append(cache[0])
                    memories.append(cache[1] if len(cache) == 2 else torch.cat(cache[1:]))
                    cache.clear()
            offset += count
        # A sequence without a picture: vLLM's dummy runs, and the canary.
        nothing = hidden_states.new_full((1,), torch.nan, dtype=torch.float32)
        output: list[torch.Tensor | None] = [
            nothing if end == length else None for end, length in zip(ends, lengths, strict=True)
        ]
        if finished:
            for i, logit in zip(finished, model.score_pairs(torch.stack(states), torch.stack(memories)), strict=True):
                output[i] = logit[None]
        return output
