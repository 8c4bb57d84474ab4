"""Makes our architectures known to vLLM and to Transformers."""

from __future__ import annotations

import os

from serve_app.vllm_plugin import SERVED

FUSION_RANKER = "FusionRanker"
TWO_HEAD = "TwoHeadTokenClassifier"
ARCHITECTURES = {
    "PoolserveClip": "serve_app.vllm_plugin.models.dual_encoder:PoolserveClip",
    "PoolserveSiglip": "serve_app.vllm_plugin.models.dual_encoder:PoolserveSiglip",
    FUSION_RANKER: "serve_app.vllm_plugin.models.fusion_ranker:FusionRanker",
    TWO_HEAD: "serve_app.vllm_plugin.models.two_head:TwoHeadTokenClassifier",
}


def register_models() -> None:
    """Registers all architectures; vLLM imports one when a checkpoint names it."""
    from transformers import AutoConfig
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from serve_app.vllm_plugin.models.config import FusionRankerConfig, FusionRankerOptions, TwoHeadBertConfig

    for config in (FusionRankerConfig, TwoHeadBertConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    MODELS_CONFIG_MAP[FUSION_RANKER] = FusionRankerOptions
    for name, target in ARCHITECTURES.items():
        # vLLM inspects a class that is named by its path in a fresh process, which imports vLLM again: 20 s.
        ModelRegistry.register_model(name, _load(target) if os.environ.get(SERVED) == name else target)


def _load(target: str) -> type:
    import importlib

    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
