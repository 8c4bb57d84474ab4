"""`data` of our own tasks: the body of the task's own route, without `model`. The same in both hosts.

Here it is answered by the pipeline, in a plain `vllm serve` by `serve_app.vllm_plugin.io_processors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from serve_app.api.absa import absa
from serve_app.api.base import Adapter, Call, Limits
from serve_app.api.rerank import rerank
from serve_app.api.wording import kind_of
from serve_app.errors import InvalidRequest
from serve_app.vocabulary import Task

_ROUTES: dict[Task, tuple[str, Adapter]] = {
    Task.RERANK: ("/v1/rerank", rerank),
    Task.IMAGE_RANK: ("/v1/rerank", rerank),
    Task.ABSA: ("/v1/absa", absa),
}
"""Tasks that have a processor: the route whose body `data` is, and its adapter."""


def read_data(task: Task, data: Any, limits: Limits, beside: Mapping[str, Any] | None = None) -> Call:
    """The request that `data` stands for.

    Args:
        beside: fields that were sent beside `data` and mean the same in there; see `DataRequest.beside`.

    Raises:
        CallerError: `data` is wrong, what stands beside it contradicts it or is no field of the task's route, or models
            of this task have no processor.
    """
    if task not in _ROUTES:
        raise InvalidRequest(f"data: models for {task} have no IO processor; send 'input'", "data")
    route, adapter = _ROUTES[task]
    if not isinstance(data, dict):
        raise InvalidRequest(f"data: must be an object, the body of {route}; got {kind_of(data)}", "data")
    if data.get("model") is not None:
        raise InvalidRequest("data.model: send 'model' beside 'data'", "data")
    return adapter(_merged(data, beside or {}), limits)


def _merged(data: dict[str, Any], beside: Mapping[str, Any]) -> dict[str, Any]:
    """`data` with what was sent beside it; a value in it stays as it is, for the route's adapter to check."""
    for name, value in beside.items():
        said = data.get(name)
        if said is not None and value != (said == "END" if said in ("END", "NONE") else said):
            raise InvalidRequest(f"{name} and data.{name} contradict each other", name)
    return data | {name: value for name, value in beside.items() if data.get(name) is None}


def as_json(answer: Any) -> bytes:
    """A rendered answer as JSON.

    Raises:
        TypeError: it cannot be written.
    """
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
