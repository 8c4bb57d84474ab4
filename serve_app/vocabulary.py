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
    ABSA = "absa"
    """Aspect-based sentiment: a text in, spans with an aspect and a polarity out."""


class Operation(StrEnum):
    """What a caller asks for; one per group of routes."""

    RERANK = "rerank"
    SCORE = "score"
    EMBED = "embed"
    CLASSIFY = "classify"
    ABSA = "absa"
    POOLING = "pooling"
    """The pooler's own numbers, or whatever a model's IO processor makes of its `data`."""


OPERATIONS: dict[Task, frozenset[Operation]] = {
    Task.RERANK: frozenset({Operation.RERANK, Operation.SCORE, Operation.POOLING}),
    Task.EMBED: frozenset({Operation.RERANK, Operation.SCORE, Operation.EMBED, Operation.POOLING}),
    Task.IMAGE_RANK: frozenset({Operation.RERANK, Operation.SCORE, Operation.POOLING}),
    Task.CLASSIFY: frozenset({Operation.CLASSIFY, Operation.POOLING}),
    Task.ABSA: frozenset({Operation.ABSA, Operation.POOLING}),
}
"""Which operations a model of a task can answer."""

MADE_FOR: dict[Operation, Task] = {
    Operation.RERANK: Task.RERANK,
    Operation.SCORE: Task.RERANK,
    Operation.EMBED: Task.EMBED,
    Operation.CLASSIFY: Task.CLASSIFY,
    Operation.ABSA: Task.ABSA,
}
"""The task that an operation is the purpose of; others may serve it as well. POOLING is no task's purpose."""


class PoolingTask(StrEnum):
    """vLLM's names for what the engine's pooler computes."""

    CLASSIFY = "classify"
    EMBED = "embed"
    TOKEN_CLASSIFY = "token_classify"
    TOKEN_EMBED = "token_embed"
    EMBED_AND_TOKEN_CLASSIFY = "embed&token_classify"
    PLUGIN = "plugin"


class Stage(StrEnum):
    """Stages of a request, in order; the metric names of the `Server-Timing` header."""

    FETCH = "fetch"
    DECODE = "decode"
    TOKENIZE = "tokenize"
    QUEUE = "queue"
    ENGINE = "engine"
    POST = "post"
    TOTAL = "total"


class Measure(StrEnum):
    """What a deployment's work is counted in, for autoscaling."""

    DOCUMENTS = "documents"
    IMAGES = "images"
    PIXELS = "pixels"
    TOKENS = "tokens"


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


class Aggregation(StrEnum):
    """How a word gets one label from its tokens; Transformers' `aggregation_strategy` has the same words."""

    NONE = "none"
    FIRST = "first"
    AVERAGE = "average"
    MAX = "max"


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
