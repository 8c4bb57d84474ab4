"""What our processors have in common: the task's own code between vLLM's `data` and vLLM's engine.

`data` is read, built, post-processed and answered by the functions that the pipeline uses, so both hosts answer alike.

vLLM has no call for a request that ends without an answer. What `pre_process` must leave for `post_process` is
therefore tied to the asyncio task of the request: when that ends, answered or not, the entry goes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar

import numpy as np
import orjson
from vllm import PoolingParams
from vllm.exceptions import VLLMValidationError
from vllm.plugins.io_processors.interface import IOProcessor

from serve_app.api.base import Call, Limits, Meta
from serve_app.errors import CallerError
from serve_app.messages import EngineOutput
from serve_app.pipeline import build_input, result_of
from serve_app.plugin_host.native import as_json, read_data
from serve_app.settings import NAME, GatewaySettings, ModelSettings
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import ModelInput, load_text_model
from serve_app.vocabulary import PoolingTask, Task

OPTIONS = "poolserve"
"""Key of the checkpoint's config (or of `--hf-overrides`) with settings of ours: template, activation, absa, …"""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What one request's `pre_process` leaves for its `post_process`."""

    call: Call
    built: ModelInput
    images: RequestImages | None


class _PerPrompt(list[PoolingParams]):
    """Parameters that differ from prompt to prompt, where vLLM expects one object for all of a request's.

    Its server spreads a sequence over the prompts, and asks the whole for `task` and `verify`.
    """

    @property
    def task(self) -> str | None:
        """All prompts' task."""
        return str(self[0].task)

    def verify(self, model_config: Any) -> None:
        """See `PoolingParams.verify`."""
        for params in self:
            params.verify(model_config)


class TaskProcessor(IOProcessor[Call, Any]):
    """One of our tasks as vLLM's IO processor.

    Args:
        vllm_config, renderer: vLLM's own.

    Raises:
        ValueError: the checkpoint does not fit the task.
    """

    served_task: ClassVar[Task]

    def __init__(self, vllm_config: Any, renderer: Any) -> None:
        super().__init__(vllm_config, renderer)
        self.model = load_text_model(settings_of(vllm_config, self.served_task))
        limits = GatewaySettings()
        self._limits = Limits(max_documents=limits.max_documents, max_images=limits.max_images)
        self._kept: dict[str | None, _Kept] = {}
        self._params: Sequence[PoolingParams] = ()

    def parse_data(self, data: object) -> Call:
        """Reads and checks `data`: the body of the task's own route, without `model`."""
        try:
            return read_data(self.served_task, data, self._limits)
        except CallerError as error:
            raise VLLMValidationError(str(error), parameter=error.param) from None

    def pre_process(self, prompt: Call, request_id: str | None = None, **_: Any) -> list[Any]:
        """Ready token ids, one prompt per sequence."""
        try:
            images = self.load_images(prompt)
            built = build_input(self.model, prompt.request, images)
        except CallerError as error:
            raise VLLMValidationError(str(error), parameter=error.param) from None
        self._keep(request_id, _Kept(prompt, built, images))
        # Read by merge_pooling_params, which vLLM calls next, on the same thread and without a pause in between.
        self._params = [self.pooling_params(built, i) for i in range(len(built.offsets) - 1)]
        return [self.prompt(built, images, i) for i in range(len(built.offsets) - 1)]

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        """Parameters of the request that `pre_process` has just built; offline vLLM asks once per prompt."""
        if params is not None:
            first, *self._params = self._params
            return first
        if any(other != self._params[0] for other in self._params):
            return _PerPrompt(self._params)
        return self._params[0] if self._params else PoolingParams(task="plugin")

    def post_process(self, model_output: Sequence[Any], request_id: str | None = None, **_: Any) -> Any:
        """The answer of the task's own route."""
        kept = self._kept.pop(request_id)
        rows = [output.outputs.data for output in model_output]
        output = EngineOutput(_values(rows, kept.built), 0.0, 0.0)
        result = result_of(self.model, kept.call.request, kept.built, output, kept.images, {})
        rendered = kept.call.render(result, Meta(request_id or "", int(time.time())))
        return orjson.loads(as_json(rendered))  # arrays as lists: vLLM may write its answers without orjson

    # --- what tasks with images do otherwise -------------------------------------------------------------------------

    def load_images(self, call: Call) -> RequestImages | None:
        """The request's images, fetched and decoded."""
        return None

    def prompt(self, built: ModelInput, images: RequestImages | None, sequence: int) -> Any:
        """One sequence as vLLM's prompt."""
        return {"prompt_token_ids": _tokens(built, sequence)}

    def pooling_params(self, built: ModelInput, sequence: int) -> PoolingParams:
        """Logits, as our engine asks for them; activation is the task's."""
        segment = None if built.segment_starts is None else int(built.segment_starts[sequence])
        extra = {"compressed_token_type_ids": segment} if segment is not None else None
        return PoolingParams(task=built.task.value, use_activation=False, extra_kwargs=extra)

    def _keep(self, request_id: str | None, kept: _Kept) -> None:
        if request_id is not None and request_id in self._kept:
            raise VLLMValidationError(f"request id '{request_id[:100]}' is under way", parameter="request_id")
        self._kept[request_id] = kept
        try:
            task = asyncio.current_task()
        except RuntimeError:  # offline, where requests run one after the other to their end
            return
        if task is not None:
            task.add_done_callback(lambda _: self._forget(request_id, kept))

    def _forget(self, request_id: str | None, kept: _Kept) -> None:
        if self._kept.get(request_id) is kept:
            del self._kept[request_id]


def _tokens(built: ModelInput, sequence: int) -> list[int]:
    return [int(token) for token in built.token_ids[built.offsets[sequence] : built.offsets[sequence + 1]]]


def _values(rows: Sequence[Any], built: ModelInput) -> Any:
    """Tensors as `EngineOutput.values` has them."""
    arrays = [row.float().cpu().numpy() for row in rows]
    if built.task is PoolingTask.TOKEN_CLASSIFY:
        return np.concatenate(arrays)
    flat = [array.reshape(-1) for array in arrays]
    return np.concatenate(flat)[:, None] if built.marker_owners is not None else np.stack(flat)


def settings_of(vllm_config: Any, task: Task) -> ModelSettings:
    """Our settings of a model that vLLM serves: its own options, and ours from the config's key `poolserve`.

    Raises:
        ValueError: an option of ours is unknown or wrong.
    """
    config, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    served = config.served_model_name
    name = str(served[0] if isinstance(served, list) else served)
    overrides = config.hf_overrides if isinstance(config.hf_overrides, dict) else {}
    ours = overrides.get(OPTIONS) or getattr(config.hf_config, OPTIONS, None) or {}
    values = {
        "name": name if NAME.fullmatch(name) else PurePath(name).name,
        "version": "1",
        "source": config.model,
        "revision": config.revision,
        "task": task,
        "device": "cpu",  # of the work that is done here
        "dtype": str(config.dtype).removeprefix("torch."),
        "max_model_len": config.max_model_len,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": max(scheduler.max_num_batched_tokens, config.max_model_len),
        "engine": {
            "hf_overrides": {key: value for key, value in overrides.items() if key != OPTIONS},
            "trust_remote_code": config.trust_remote_code,
        },
    }
    if task is Task.IMAGE_RANK:
        # Several images in a sequence take overrides of the model's config that only our own engine sets.
        values["images"] = {"mode": "pair"}
    return ModelSettings.model_validate(values | dict(ours))
