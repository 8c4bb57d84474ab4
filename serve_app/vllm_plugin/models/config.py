"""Config classes of our checkpoints, and what the fusion ranker asks of vLLM's scheduler."""

from __future__ import annotations

from typing import Any

from transformers import BertConfig, CLIPTextConfig, CLIPVisionConfig, PreTrainedConfig
from vllm.model_executor.models.config import VerifyAndUpdateConfig


class FusionRankerConfig(PreTrainedConfig):
    """Text tower, vision tower, fusion layers (`tasks/image_rank/reference.py`).

    Args:
        text_config, vision_config: fields of CLIPTextConfig and CLIPVisionConfig.
        fusion_layers, fusion_heads: cross-attention layers, and heads of each.
        device_cache: images whose features stay on the device between requests.
        images_per_step: new images that one step of the engine encodes.
        text_positions: positions of the text tower, where `text_config.max_position_embeddings` has been raised to let
            markers follow a query; 0: those of `text_config`.
    """

    model_type = "fusion_ranker"
    # Transformers 5 makes dataclasses of configs.
    text_config: Any = None
    vision_config: Any = None
    fusion_layers: int = 2
    fusion_heads: int = 8
    device_cache: int = 1024
    images_per_step: int = 256
    text_positions: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        if not isinstance(self.text_config, CLIPTextConfig):
            self.text_config = CLIPTextConfig(**(self.text_config or {}))
        if not isinstance(self.vision_config, CLIPVisionConfig):
            self.vision_config = CLIPVisionConfig(**(self.vision_config or {}))
        # vLLM takes the width of its input embeddings from here.
        self.text_config.projection_dim = self.text_config.hidden_size
        super().__post_init__(**kwargs)

    def get_text_config(self, *args: Any, **kwargs: Any) -> CLIPTextConfig:
        """The text tower decides about positions and widths."""
        return self.text_config


class TwoHeadBertConfig(BertConfig):
    """A BERT with two heads (`tasks/absa/reference.py`).

    Args:
        sentiment_labels: labels of the whole text by column, {"0": …}; `id2label` has those of the tokens.
    """

    model_type = "two_head_bert"
    sentiment_labels: Any = None


class FusionRankerOptions(VerifyAndUpdateConfig):
    """vLLM counts one token per image in its budgets, so both are numbers of images here."""

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Gives the scheduler the device cache's size and the images per step."""
        config, scheduler = vllm_config.model_config.hf_config, vllm_config.scheduler_config
        scheduler.encoder_cache_size = config.device_cache
        scheduler.max_num_encoder_input_tokens = config.images_per_step
