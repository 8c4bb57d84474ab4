"""The engine that a model's settings name."""

from __future__ import annotations

from serve_app.checkpoint import Checkpoint, check_positions
from serve_app.engine.fake_engine import FakeEngine
from serve_app.engine.protocol import Engine
from serve_app.engine.torch_engine import TorchEngine
from serve_app.engine.vllm_engine import VllmEngine
from serve_app.settings import ModelSettings


def engine_of(settings: ModelSettings, checkpoint: Checkpoint) -> Engine:
    """The engine, not started.

    Raises:
        ValueError: the settings ask for what the checkpoint does not have.
    """
    check_positions(settings, checkpoint)
    match settings.engine.kind:
        case "fake":
            return FakeEngine(settings, width=max(1, checkpoint.width))
        case "torch":
            return TorchEngine(settings, checkpoint)
        case "vllm":
            return VllmEngine(settings, checkpoint)
