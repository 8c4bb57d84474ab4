"""Rerank and absa: texts in, token ids to the engine."""

from __future__ import annotations

from serve_app.vllm_plugin.io_processors.base import TaskProcessor
from serve_app.vocabulary import Task


class Rerank(TaskProcessor):
    """`data`: the body of /v1/rerank without `model`."""

    served_task = Task.RERANK


class Absa(TaskProcessor):
    """`data`: the body of /v1/absa without `model`."""

    served_task = Task.ABSA
