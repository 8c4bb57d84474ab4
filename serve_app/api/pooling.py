"""POST /pooling: the pooler's own numbers for `input`, or a model's IO processor for `data`, in vLLM's shapes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import Field

from serve_app.api.base import Call, Limits, Meta, Refused, validate
from serve_app.api.fields import TextFields, TextInputsField
from serve_app.api.packing import as_wire
from serve_app.api.rendering import expect, listing, mark_truncated
from serve_app.errors import InvalidRequest, UnknownField
from serve_app.messages import DataRequest, DataResult, FloatArray, PipelineResult, PoolRequest, PoolResult, Truncation
from serve_app.vocabulary import Operation, PoolingTask

ROUTE = "POST /pooling"
ONLY_INPUT = ("use_activation",)
"""Fields that `data` has no use for and that would change an answer to `input`."""
NO_EFFECT = ("encoding_format", "embed_dtype")
"""Fields that vLLM takes beside `data` as well, without effect."""
TRUNCATION = ("truncate", "truncate_prompt_tokens")
"""Fields that mean the same beside `data` as in the data of our own tasks."""


class PoolingBody(TextFields):
    """Body of /pooling: `input` or `data`."""

    input: TextInputsField | None = Field(
        default=None,
        description="One text or many, one list of token ids or many. Token ids include the special tokens; no prompt "
        "and no template is put around a text.",
    )
    data: Any = Field(
        default=None,
        description="For a model with an IO Processor plugin: whatever the plugin takes. For models for rerank, absa "
        "and image_rank: the body of /v1/rerank or /v1/absa without `model`; the answer's `data` is that route's, "
        "and `truncate` and `truncate_prompt_tokens` may stand beside it as well as in it. A plugin's texts are cut "
        "only if one of them is sent.",
    )
    task: Literal["embed", "classify", "token_embed", "token_classify", "plugin"] | None = Field(
        default=None,
        description="With `input`: what the pooler computes, as far as the model's does; left out: what the model was "
        'made for. With `data`: only "plugin".',
    )
    use_activation: bool | None = Field(
        default=None,
        description="With `input`: probabilities and unit vectors (true, the default), or logits and vectors as they "
        "are.",
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None,
        description='With `input`: "float" (the default): numbers. "base64": the bytes of each array, little-endian, '
        "rows one behind the other.",
    )
    embed_dtype: Literal["float32", "float16"] | None = Field(
        default=None, description='Number format inside base64: "float32" (the default) or "float16", half the bytes.'
    )
    endianness: Annotated[Any, Refused("bytes are little-endian", ("little", "native"))] = None
    dimensions: Annotated[Any, Refused("vectors are whole here; /v1/embeddings cuts them")] = None
    add_special_tokens: Annotated[Any, Refused("texts always get the model's special tokens", (True,))] = None
    messages: Annotated[Any, Refused("send texts in 'input'")] = None


def pooling(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /pooling."""
    parsed = validate(PoolingBody, body, ROUTE)
    if (parsed.input is None) == (parsed.data is None):
        raise InvalidRequest(f"{ROUTE} needs one of 'input' and 'data'", "input")
    return _data(parsed, limits) if parsed.input is None else _input(parsed, parsed.input, limits)


def _input(parsed: PoolingBody, inputs: list[str | list[int]], limits: Limits) -> Call:
    if parsed.task == "plugin":
        raise InvalidRequest("task: 'plugin' needs 'data' in place of 'input'", "task")
    limits.check(len(inputs), "input")
    as_bytes = parsed.encoding_format == "base64"
    dtype = np.dtype("<f2" if parsed.embed_dtype == "float16" else "<f4")

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        pooled = expect(result, PoolResult)
        data: list[dict[str, Any]] = [
            {"index": index, "object": "pooling", "data": _packed(row, dtype) if as_bytes else row}
            for index, row in enumerate(pooled.rows)
        ]
        mark_truncated(data, pooled.served.truncated)
        return listing(data, pooled.served, meta)

    request = PoolRequest(
        inputs=inputs,
        task=PoolingTask(parsed.task) if parsed.task else None,
        use_activation=parsed.use_activation is not False,
        truncation=parsed.truncation(),
    )
    no_bytes = ("embed_dtype",) if parsed.embed_dtype == "float16" and not as_bytes else ()
    return Call(Operation.POOLING, parsed.model, request, len(inputs), render, tuple(sorted(parsed.ignored + no_bytes)))


def _packed(row: FloatArray, dtype: np.dtype[Any]) -> str:
    return base64.b64encode(as_wire(row, dtype, "embed_dtype").tobytes()).decode("ascii")


def _data(parsed: PoolingBody, limits: Limits) -> Call:
    if parsed.task not in (None, "plugin"):
        raise InvalidRequest(f"task: with 'data' only 'plugin' is accepted; got '{parsed.task}'", "task")
    for name in ONLY_INPUT:
        if name in parsed.model_fields_set:
            raise UnknownField(f"field '{name}' of {ROUTE} goes with 'input'; with 'data' it is not honoured", name)
    count = size(parsed.data)
    limits.check(count, "data")

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        answer = expect(result, DataResult)
        return {
            "request_id": meta.request_id,
            "created_at": meta.created,
            "model": answer.served.model,
            "model_version": answer.served.version,
            "data": orjson.Fragment(answer.json),
        }

    beside = {name: getattr(parsed, name) for name in TRUNCATION if name in parsed.model_fields_set}
    truncation = parsed.truncation() if beside else Truncation(enabled=False)
    request = DataRequest(parsed.data, limits.max_documents, limits.max_images, truncation, beside)
    without_effect = tuple(name for name in NO_EFFECT if name in parsed.model_fields_set)
    return Call(Operation.POOLING, parsed.model, request, count, render, tuple(sorted(parsed.ignored + without_effect)))


def size(data: Any) -> int:
    """What `data` costs at admission: the longest list in it, at its top or one level down; one if there is none."""
    lists = [data] if isinstance(data, list) else []
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
    return max([1, *map(len, lists)])
