"""vLLM's own serving code around an IO processor, without an engine: what `vllm serve` does with `data`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

Compute = Callable[[dict[str, Any], Any], np.ndarray]
"""An engine's stand-in: a rendered prompt and its PoolingParams to values."""


class VllmServer:
    """The part of vLLM 0.32's `ServingPooling` that handles `data`.

    Args:
        folder: the checkpoint.
        processor: class of the plugin.
        options: of vLLM's `AsyncEngineArgs`.
    """

    def __init__(self, folder: Path, processor: type, **options: Any) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.entrypoints.pooling.pooling.io_processor import PluginWithIOProcessorPlugins
        from vllm.renderers import renderer_from_config

        arguments = {"model": str(folder), "runner": "pooling", "dtype": "float32", "enforce_eager": True} | options
        self.config = AsyncEngineArgs(**arguments).create_engine_config()
        renderer = renderer_from_config(self.config)
        self.processor = processor(self.config, renderer)
        self.serving = object.__new__(PluginWithIOProcessorPlugins)  # its constructor looks for installed plugins
        self.serving.io_processor, self.serving.renderer = self.processor, renderer
        self.serving.vllm_config, self.serving.model_config = self.config, self.config.model_config

    def begin(self, data: Any, request_id: str = "pooling-1") -> tuple[Any, list[Any]]:
        """Up to the engine: the request's context, and what the engine is given."""
        from vllm import PoolingParams
        from vllm.entrypoints.pooling.pooling.protocol import IOProcessorRequest
        from vllm.entrypoints.pooling.typing import PoolingServeContext

        context = PoolingServeContext(
            request=IOProcessorRequest(data=data),
            model_name="tiny",
            request_id=request_id,
            pooling_params=PoolingParams(),
            lora_request=None,
            priorities=0,
            prompt_extras={},
        )
        requests = self.serving.get_request_factory_online(context)
        inputs = [self.serving.render(request) for request in requests]
        context.pooling_params.verify(self.config.model_config)
        return context, inputs

    def end(self, context: Any, inputs: list[Any], compute: Compute) -> Any:
        """From the engine on: the answer's `data`."""
        from vllm.outputs import PoolingOutput, PoolingRequestOutput

        context.final_res_batch = [
            PoolingRequestOutput(
                request_id=f"{context.request_id}-{i}",
                outputs=PoolingOutput(data=torch.from_numpy(compute(item["prompts"], item["params"]))),
                prompt_token_ids=item["prompts"]["prompt_token_ids"],
                num_cached_tokens=0,
                finished=True,
            )
            for i, item in enumerate(inputs)
        ]
        self.serving.post_process_online(context)
        return context.response.model_dump()["data"]

    def answer(self, data: Any, compute: Compute, request_id: str = "pooling-1") -> Any:
        """One request to its end."""
        return self.end(*self.begin(data, request_id), compute)
