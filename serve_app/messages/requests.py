"""Gateway → IOProcessor: what is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from serve_app.messages.common import ImageRef
from serve_app.vocabulary import PoolingTask


@dataclass(frozen=True, slots=True)
class Truncation:
    """How a text that is too long is treated.

    Attributes:
        enabled: False refuses it with its index and both lengths.
        max_document_tokens: tokens of a document's own text that are read at most (`max_tokens_per_doc`);
            None: as many as fit.
        max_input_tokens: tokens of the whole input, special tokens included (`truncate_prompt_tokens`);
            None: the model's window.
        max_chunks: pieces of a long document that are scored, of which the best counts; 1 reads only the first.
    """

    enabled: bool = True
    max_document_tokens: int | None = None
    max_input_tokens: int | None = None
    max_chunks: int = 1


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Pairs to score: rerank (one query) and score (one query or as many as documents).

    Attributes:
        queries: one query for all documents, or one per document; texts or images.
        documents: at least one; texts or images, as the model's task allows.
        query_field, document_field: the caller's names of both, for error messages (`documents[3] is too long`).
        instruction: replaces the default instruction of an LLM reranker's template.
        raw_scores: logits (cosine for a bi-encoder) instead of activated scores.
        instruction_fields: the caller's names of `instruction`, for `Served.ignored`.
    """

    queries: Sequence[str | ImageRef]
    documents: Sequence[str | ImageRef]
    query_field: str = "query"
    document_field: str = "documents"
    instruction: str | None = None
    raw_scores: bool = False
    truncation: Truncation = Truncation()
    instruction_fields: tuple[str, ...] = ("instruction",)


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts, ready token ids, or images to embed.

    Attributes:
        inputs: one text each, one list of token ids each (special tokens included), or one image each.
        input_field: the caller's name of the field.
        prompt: name of the model's prompt to put before each text (`query`, `document`, …); None: none.
        dimensions: first components kept (Matryoshka); None: all.
        normalize: unit length; None: as the checkpoint says.
        prompt_field: the caller's name of the field that asked for the prompt, for error messages.
        prompt_sent: the caller's own word for it (`search_query`, `retrieval.query`, …), which comes first if the model
            has a prompt of that name; None: `prompt` itself.
    """

    inputs: Sequence[str | Sequence[int] | ImageRef]
    input_field: str = "input"
    prompt: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    truncation: Truncation = Truncation()
    prompt_field: str = "prompt_name"
    prompt_sent: str | None = None


@dataclass(frozen=True, slots=True)
class ClassifyRequest:
    """Texts to classify, or (text, text_pair) pairs.

    Attributes:
        inputs: one text each, one list of token ids each, or one (text, text_pair) tuple each.
        raw_scores: logits instead of probabilities.
    """

    inputs: Sequence[str | Sequence[int] | tuple[str, str]]
    input_field: str = "input"
    raw_scores: bool = False
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class AbsaRequest:
    """Texts whose opinions are asked for.

    Attributes:
        inputs: one text each; any string, also an empty one.
        aspects: names of the aspects that are asked for; None: all that the model knows. A pair classifier needs them.
        threshold: spans of a lower score are left out; None: the model's setting.
    """

    inputs: Sequence[str]
    aspects: Sequence[str] | None = None
    threshold: float | None = None
    input_field: str = "inputs"
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Inputs whose pooled values are asked for as they are (`POST /pooling` with `input`).

    Attributes:
        inputs: one text each, or one list of token ids each.
        task: what the pooler computes; None: what the model was made for.
        use_activation: probabilities and unit vectors; False: logits and vectors as they are.
    """

    inputs: Sequence[str | Sequence[int]]
    task: PoolingTask | None = None
    use_activation: bool = True
    input_field: str = "input"
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class DataRequest:
    """Whatever a model's IO processor takes (`POST /pooling` with `data`).

    Attributes:
        data: any JSON value; the processor checks it.
        max_documents, max_images: what one request may hold, for the processors of our own tasks.
        truncation: of the texts that a plugin makes.
        beside: the fields about truncation that the caller sent beside `data`, by the body's names; unset ones are
            absent. Our own tasks take them into their data.
    """

    data: Any
    max_documents: int
    max_images: int
    truncation: Truncation = Truncation(enabled=False)
    beside: Mapping[str, Any] = field(default_factory=dict)


PipelineRequest = ScoreRequest | EmbedRequest | ClassifyRequest | AbsaRequest | PoolRequest | DataRequest
