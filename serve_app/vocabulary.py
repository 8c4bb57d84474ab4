"""The field's words as types. This module imports nothing from the package."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """What a model was trained for; one per model in the configuration."""

    RERANK = "rerank"
    """Cross-encoder or LLM reranker: a (query, document) pair in, one logit out."""
    EMBED = "embed"
    """Bi-encoder: a text (or, for a dual encoder such as CLIP, an image) in, one vector out; ranks by cosine."""
    IMAGE_RANK = "image_rank"
    """Fusion ranker: a (query, image) pair in, one logit out."""
    CLASSIFY = "classify"
    """Sequence classifier: a text in, one logit per label out."""


class Operation(StrEnum):
    """What a caller asks for; one per group of routes."""

    RERANK = "rerank"
    SCORE = "score"
    EMBED = "embed"
    CLASSIFY = "classify"


OPERATIONS: dict[Task, frozenset[Operation]] = {
    Task.RERANK: frozenset({Operation.RERANK, Operation.SCORE}),
    Task.EMBED: frozenset({Operation.RERANK, Operation.SCORE, Operation.EMBED}),
    Task.IMAGE_RANK: frozenset({Operation.RERANK, Operation.SCORE}),
    Task.CLASSIFY: frozenset({Operation.CLASSIFY}),
}
"""Which operations a model of a task can answer."""

MADE_FOR: dict[Operation, Task] = {
    Operation.RERANK: Task.RERANK,
    Operation.SCORE: Task.RERANK,
    Operation.EMBED: Task.EMBED,
    Operation.CLASSIFY: Task.CLASSIFY,
}
"""The task that an operation is the purpose of; others may serve it as well."""


class PoolingTask(StrEnum):
    """vLLM's names for what the engine's pooler computes."""

    CLASSIFY = "classify"
    EMBED = "embed"


class Stage(StrEnum):
    """Stages of a request, in order; the metric names of the `Server-Timing` header."""

    FETCH = "fetch"
    DECODE = "decode"
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    ENGINE = "engine"
    POST = "post"
    TOTAL = "total"


class DType(StrEnum):
    """Number format of weights and activations; never implicit."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class Activation(StrEnum):
    """What turns a model's logits into scores."""

    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"
    NONE = "none"


class PoolingType(StrEnum):
    """How token states become one vector."""

    CLS = "CLS"
    MEAN = "MEAN"
    LAST = "LAST"


class Resample(StrEnum):
    """Interpolation of an image that is resized, as Pillow names it."""

    NEAREST = "nearest"
    LANCZOS = "lanczos"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"


class MediaErrorCode(StrEnum):
    """Why one image could not be used; the `code` of its entry in an answer's `errors`."""

    UNREACHABLE = "media_unreachable"
    """Name, connection, status, timeout, or a body that broke off."""
    FORBIDDEN = "media_forbidden"
    """A scheme, address, port or redirect that may not be fetched."""
    TOO_LARGE = "media_too_large"
    """More bytes or pixels than the limits allow."""
    UNDECODABLE = "media_undecodable"
    """Not an image of a supported format, or a broken one."""
