"""One request through a vLLM IO Processor plugin: parse_data, pre_process, merge_pooling_params, engine, post_process.

The order, and that only the synchronous methods are called, are those of the server of vLLM 0.32. Existing plugins need
them: some leave in `pre_process` what `merge_pooling_params` picks up.

A plugin's calls run one at a time, on a thread of their own. vLLM runs them on its event loop, so plugins need not be
safe for threads; here the loop stays free, and what scales is the number of IOProcessor replicas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from serve_app.errors import DeadlineExceeded, InternalError, InvalidRequest, PoolserveError
from serve_app.messages import Context, DataRequest, EngineOutput
from serve_app.plugin_host import vllm_side
from serve_app.plugin_host.isolation import private_copy
from serve_app.plugin_host.native import as_json
from serve_app.plugin_host.prompts import token_ids
from serve_app.plugin_host.registration import is_ours
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.vocabulary import PoolingTask

logger = logging.getLogger("ray.serve")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PluginCall:
    """One request between `pre_process` and `post_process`. Holds the only reference to its copy of the plugin."""

    plugin: Any
    request_id: str
    built: ModelInput


class PluginHost:
    """Runs a plugin for one model version.

    Args:
        name: as it is registered; for messages.
        plugin: constructed; the prototype, which no request reaches (see isolation.py).
        model: whose tokenizer reads the plugin's texts.
        executor: one thread for the plugin's calls; None: an own one.
    """

    def __init__(self, name: str, plugin: Any, model: TextModel, executor: Executor | None = None) -> None:
        self.name = name
        self._plugin = plugin
        self._model = model
        self._executor = executor or ThreadPoolExecutor(1, "plugin")
        self._lowercase = vllm_side.lowercases(plugin)
        private_copy(plugin)  # a plugin that cannot be copied must stop the start, not every request

    async def prepare(self, context: Context, request: DataRequest) -> PluginCall:
        """`data` to the engine's input.

        Raises:
            CallerError: the plugin refuses its data, or a prompt is too long.
            InternalError: the plugin failed.
            DeadlineExceeded: the deadline passed while it ran, or waited for its turn.
        """
        return await self._on_thread(context, self._prepare, context.request_id, request)

    async def finish(self, context: Context, call: PluginCall, output: EngineOutput) -> bytes:
        """The plugin's answer as JSON.

        Raises:
            InternalError: the plugin failed, or its answer cannot be written as JSON.
            DeadlineExceeded: the deadline passed while it ran, or waited for its turn.
        """
        return await self._on_thread(context, self._finish, call, output)

    def _prepare(self, request_id: str, request: DataRequest) -> PluginCall:
        plugin = private_copy(self._plugin)
        try:
            prompt = plugin.parse_data(request.data)
            prompts = plugin.pre_process(prompt=prompt, request_id=request_id)
        except Exception as error:
            if vllm_side.is_refusal(error):
                raise InvalidRequest(f"data: {_first_words(error)}", "data") from None
            raise self._failed("pre_process", error) from error
        try:
            ids, cut = token_ids(self._model, prompts, request.truncation, lowercase=self._lowercase)
            params = vllm_side.pooling_params(plugin)
            task = PoolingTask(params["task"])
        except PoolserveError:
            raise
        except Exception as error:
            raise self._failed("merge_pooling_params", error) from error
        offsets = np.cumsum([0, *map(len, ids)]).astype(np.int32)
        flat = np.fromiter((token for sequence in ids for token in sequence), np.int32, int(offsets[-1]))
        return PluginCall(plugin, request_id, ModelInput(task, flat, offsets, None, None, tuple(cut), params=params))

    def _finish(self, call: PluginCall, output: EngineOutput) -> bytes:
        built = call.built
        try:
            outputs = vllm_side.request_outputs(call.request_id, built.token_ids, built.offsets, output)
            return as_json(vllm_side.post_process(call.plugin, outputs, call.request_id))
        except Exception as error:
            raise self._failed("post_process", error) from error

    def _failed(self, step: str, error: Exception) -> InternalError:
        logger.error("the plugin '%s' failed in %s", self.name, step, exc_info=error)
        return InternalError("the model's IO processor plugin failed; it was logged")

    async def _on_thread(self, context: Context, work: Callable[..., T], *args: Any) -> T:
        timeout = asyncio.timeout(max(0.0, context.deadline - time.time()))
        try:
            async with timeout:
                return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)
        except TimeoutError:
            if not timeout.expired():
                raise
            raise DeadlineExceeded("the deadline passed in the IO processor plugin") from None


def plugin_host(model: TextModel) -> PluginHost | None:
    """The host of the plugin that the settings, or else the checkpoint's config, name; None where none is named.

    Our own processors' names mean the pipeline itself.

    Raises:
        PluginError: the plugin cannot be used.
    """
    name = model.settings.io_processor_plugin or model.checkpoint.config.get("io_processor_plugin")
    if name is None or is_ours(str(name)):
        return None
    logger.info("%s: IO Processor plugin '%s'", model.settings.application, name)
    return PluginHost(str(name), vllm_side.construct(str(name), model), model)


def _first_words(error: Exception) -> str:
    """What a plugin says about its data: of pydantic's list of complaints the first, without its link."""
    complaints = getattr(error, "errors", None)
    if callable(complaints):
        first = complaints()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return str(error).partition("\n")[0] or type(error).__name__
