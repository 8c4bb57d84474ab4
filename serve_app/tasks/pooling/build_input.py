"""Texts and ready token ids to sequences, and what the model's pooler can be asked for."""

from __future__ import annotations

from dataclasses import replace

from serve_app.errors import InvalidRequest
from serve_app.messages import PoolRequest
from serve_app.tasks.embed.build_input import add_texts
from serve_app.tasks.model import InputBuilder, ModelInput, TextModel
from serve_app.vocabulary import PoolingTask, Task

PER_TOKEN = frozenset({PoolingTask.TOKEN_CLASSIFY, PoolingTask.TOKEN_EMBED})
"""Tasks that give every token values, special tokens included."""


def build_input(model: TextModel, request: PoolRequest) -> ModelInput:
    """One sequence per input. No prompt and no template is put around a text.

    Raises:
        InvalidRequest: the model's pooler does not compute the task, a token id outside the vocabulary, an input
            without tokens.
        ContextLengthExceeded: an input may not be cut.
    """
    task = _task(model, request)
    builder = InputBuilder(task)
    fields = [f"{request.input_field}[{i}]" for i in range(len(request.inputs))]
    add_texts(builder, model, request.inputs, fields, request.truncation)
    scheme = model.checkpoint.absa
    return builder.build() if scheme is None else replace(builder.build(), rows_before=scheme.rows_before)


def pooling_tasks(model: TextModel) -> tuple[PoolingTask, ...]:
    """What the model's pooler can be asked for; the first is what the model was made for. Empty: it needs images."""
    match model.settings.task:
        case Task.RERANK | Task.CLASSIFY:
            return (PoolingTask.CLASSIFY,)
        case Task.EMBED if model.checkpoint.images is None:
            return (PoolingTask.EMBED, PoolingTask.TOKEN_EMBED)
        case Task.EMBED:
            return (PoolingTask.EMBED,)
        case Task.ABSA:
            assert model.checkpoint.absa is not None
            return (model.checkpoint.absa.task,)
        case Task.IMAGE_RANK:
            return ()


def _task(model: TextModel, request: PoolRequest) -> PoolingTask:
    known, name = pooling_tasks(model), model.settings.name
    if not known:
        raise InvalidRequest(f"{request.input_field}: '{name}' ranks images by a text; send 'data'", "input")
    if request.task is None:
        return known[0]
    if request.task not in known:
        raise InvalidRequest(f"task: '{name}' computes {' or '.join(known)}; got {request.task}", "task")
    return request.task
