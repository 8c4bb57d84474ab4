"""What the engine for small encoders reads off the disk: Transformers' model, whole."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from serve_app.checkpoint import Checkpoint
from serve_app.settings import ModelSettings
from serve_app.tokenization import TextTokenizer
from serve_app.vocabulary import Task


def load_module(folder: Path, settings: ModelSettings) -> Any:
    """The task's model class with the checkpoint's weights, on the CPU.

    Raises:
        ValueError: the checkpoint lacks some; Transformers would make them up.
    """
    import torch
    from transformers import AutoModel, AutoModelForSequenceClassification

    embeds = settings.task is Task.EMBED
    auto: Any = AutoModel if embeds else AutoModelForSequenceClassification
    options: dict[str, Any] = {
        "dtype": getattr(torch, settings.dtype.value),
        "trust_remote_code": settings.engine.trust_remote_code,
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # so that they are reported here
    }
    try:
        module, report = auto.from_pretrained(folder, attn_implementation="sdpa", **options)
    except ValueError as error:
        if "scaled_dot_product_attention" not in str(error):
            raise
        module, report = auto.from_pretrained(folder, attn_implementation="eager", **options)
    # Transformers counts neither tied weights nor what a model can do without. An encoder's pooler is not used here.
    missing = {key for key in report["missing_keys"] if not (embeds and key.startswith("pooler."))}
    wrong = sorted(missing | {str(key[0]) for key in report["mismatched_keys"]})
    if wrong:
        raise ValueError(
            f"source: the checkpoint has no weights, or some of another shape, for {', '.join(wrong[:10])}"
            f"{f' and {len(wrong) - 10} more' if len(wrong) > 10 else ''}, which task {settings.task} needs"
        )
    return module


def padding_token(module: Any, checkpoint: Checkpoint, settings: ModelSettings) -> int:
    """The token that fills sequences up. A decoder's classifier looks for it in `config`, to find a sequence's end."""
    config = module.config.get_text_config()
    pad = getattr(config, "pad_token_id", None)
    if pad is None:
        with contextlib.suppress(ValueError):
            trusted = settings.engine.trust_remote_code
            pad = config.pad_token_id = TextTokenizer(checkpoint.folder, trust_remote_code=trusted).pad_id()
    return int(pad or 0)
