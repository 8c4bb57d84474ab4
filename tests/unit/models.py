"""Settings and loaded models for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serve_app.checkpoint import read_checkpoint
from serve_app.settings import ModelSettings
from serve_app.tasks.model import TextModel
from serve_app.tokenization import TextTokenizer


def settings_for(folder: Path, task: str, **changes: Any) -> ModelSettings:
    """Settings of a small CPU model in fp32."""
    values: dict[str, Any] = {
        "name": "tiny",
        "version": "1",
        "source": str(folder),
        "task": task,
        "device": "cpu",
        "dtype": "float32",
        "max_model_len": 64,
        "max_num_seqs": 32,
        "max_num_batched_tokens": 1024,
        "engine": {"enforce_eager": True},
    }
    return ModelSettings.model_validate(values | changes)


def text_model(folder: Path, task: str, **changes: Any) -> TextModel:
    """A loaded model without an engine."""
    settings = settings_for(folder, task, **changes)
    return TextModel.of(settings, read_checkpoint(folder, settings), TextTokenizer(folder))
