"""What a plugin expects of vLLM: config and renderer at its construction, outputs in vLLM's classes.

The only module of this package that imports vLLM. A plugin's own module imports `vllm.plugins.io_processors.interface`
and with it most of vLLM (365 MB, and 10 to 30 s of a core); the real config on top costs 4 s and 75 MB, the renderer
with its tokenizer 5 MB. A stand-in would save little and be wrong in some attribute that a plugin reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from serve_app.engine.vllm_options import engine_options, prepare_environment
from serve_app.messages import EngineOutput, IntArray
from serve_app.plugin_host.registration import PluginError, processor_class
from serve_app.settings import EngineSettings, ModelSettings
from serve_app.tasks.model import TextModel


def construct(name: str, model: TextModel) -> Any:
    """The plugin `name`, constructed as vLLM constructs it.

    Raises:
        PluginError: it is not installed, failed to load, is no IO processor, or its constructor raised.
    """
    settings = _on_cpu(model.settings)
    prepare_environment(settings, model.checkpoint)
    # The engine may be on another node: this process must not look for a GPU.
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    cls = processor_class(name)

    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.plugins.io_processors.interface import IOProcessor
    from vllm.renderers import renderer_from_config

    if not issubclass(cls, IOProcessor):
        raise PluginError(f"io_processor_plugin: '{name}' leads to {cls.__qualname__}, which is no vLLM IOProcessor")
    options = engine_options(settings, model.checkpoint)
    options |= {"skip_tokenizer_init": False, "io_processor_plugin": name, "served_model_name": settings.name}
    config = AsyncEngineArgs(**options).create_engine_config()
    try:
        return cls(config, renderer_from_config(config))
    except Exception as error:
        raise PluginError(f"io_processor_plugin: '{name}' failed to start: {type(error).__name__}: {error}") from error


def _on_cpu(settings: ModelSettings) -> ModelSettings:
    """The settings without what only an engine on a GPU has."""
    engine: EngineSettings = settings.engine.model_copy(update={"tensor_parallel_size": 1})
    return settings.model_copy(update={"device": "cpu", "engine": engine})


def lowercases(plugin: Any) -> bool:
    """Whether vLLM's renderer would lower-case texts for this model."""
    config = getattr(getattr(plugin, "vllm_config", None), "model_config", None)
    return bool((getattr(config, "encoder_config", None) or {}).get("do_lower_case", False))


def pooling_params(plugin: Any) -> dict[str, Any]:
    """`merge_pooling_params` as the server of vLLM 0.32 calls it: once per request, after `pre_process`.

    Returns:
        The fields that are set; `task` always is.
    """
    from vllm import PoolingParams

    params, unset = plugin.merge_pooling_params(), PoolingParams()
    fields = {name: getattr(params, name) for name in params.__struct_fields__}
    return {name: value for name, value in fields.items() if value != getattr(unset, name)} | {
        "task": params.task or "plugin"
    }


def request_outputs(request_id: str, ids: IntArray, offsets: IntArray, output: EngineOutput) -> list[Any]:
    """The engine's answer as vLLM's server hands it to `post_process`, in the order of the prompts."""
    import torch
    from vllm.outputs import PoolingOutput, PoolingRequestOutput

    shapes: Sequence[tuple[int, ...]] = output.shapes or ()
    starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
    # A copy: what came through a handle may be read-only, and a plugin may work in place.
    values = torch.from_numpy(output.values.copy())
    return [
        PoolingRequestOutput(
            request_id=f"{request_id}-{i}",
            outputs=PoolingOutput(data=values[starts[i] : starts[i + 1]].reshape(shape)),
            prompt_token_ids=ids[offsets[i] : offsets[i + 1]].tolist(),
            num_cached_tokens=0,
            finished=True,
        )
        for i, shape in enumerate(shapes)
    ]


def post_process(plugin: Any, outputs: Sequence[Any], request_id: str) -> Any:
    """`post_process` under `inference_mode`, as in vLLM's server; pydantic models and dataclasses come out as dicts."""
    import torch
    from pydantic import BaseModel, ConfigDict

    class Answer(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        data: Any

    with torch.inference_mode():
        answer = plugin.post_process(outputs, request_id=request_id)
    dumped: Mapping[str, Any] = Answer(data=answer).model_dump()
    return dumped["data"]


def is_refusal(error: Exception) -> bool:
    """Whether vLLM's server would answer 400: a plugin says so that it cannot read its `data`."""
    if isinstance(error, (ValueError, TypeError)):
        return True
    from vllm.exceptions import VLLMValidationError  # a ValueError in vLLM 0.26 only

    return isinstance(error, VLLMValidationError)
