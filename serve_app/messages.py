"""What travels between the stages. A request's whole state is in its message and dies with it.

Gateway → IOProcessor: `ScoreRequest`, `EmbedRequest` or `ClassifyRequest`; back come `ScoreResult`, `EmbedResult`,
`ClassifyResult`. IOProcessor → PoolingEngine: `EngineBatch`; back comes `EngineOutput`. All cross process boundaries
by value: token ids and scores as flat numpy arrays, which cost half of what lists cost (1.5-3 ms for 500 pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from serve_app.vocabulary import PoolingTask

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Context:
    """What every stage needs to know about a request.

    Attributes:
        request_id: the caller's `X-Request-Id`, or one made by the gateway.
        deadline: wall-clock time (`time.time()`, seconds) at which the answer is worth nothing any more.
        operation: the route's operation, for error texts and logs.
    """

    request_id: str
    deadline: float
    operation: str = ""


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
        queries: one query for all documents, or one per document.
        documents: at least one.
        query_field, document_field: the caller's names of both, for error messages (`documents[3] is too long`).
        instruction: replaces the default instruction of an LLM reranker's template.
        raw_scores: logits (cosine for a bi-encoder) instead of activated scores.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    query_field: str = "query"
    document_field: str = "documents"
    instruction: str | None = None
    raw_scores: bool = False
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts, or ready token ids, to embed.

    Attributes:
        inputs: one text each, or one list of token ids each (special tokens included).
        input_field: the caller's name of the field.
        prompt: name of the model's prompt to put before each text (`query`, `document`, …); None: none.
        dimensions: first components kept (Matryoshka); None: all.
        normalize: unit length; None: as the checkpoint says.
    """

    inputs: Sequence[str | Sequence[int]]
    input_field: str = "input"
    prompt: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    truncation: Truncation = Truncation()


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


PipelineRequest = ScoreRequest | EmbedRequest | ClassifyRequest


@dataclass(frozen=True, slots=True)
class Served:
    """What every result carries, whatever the operation.

    Attributes:
        model, version: what served it.
        prompt_tokens: tokens the engine read, special tokens and templates included.
        truncated: indexes of the inputs that were cut.
        timings: milliseconds by stage name (`serve_app.vocabulary.Stage`).
    """

    model: str
    version: str
    prompt_tokens: int
    truncated: Sequence[int] = ()
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """scores: float32 [documents], in the order of the request's documents; never NaN."""

    scores: FloatArray
    served: Served


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """vectors: float32 [inputs, dimensions]; input_tokens: tokens of each input, int32 [inputs]."""

    vectors: FloatArray
    served: Served


@dataclass(frozen=True, slots=True)
class ClassifyResult:
    """scores: float32 [inputs, labels], probabilities or logits; labels: the label names in the columns' order."""

    scores: FloatArray
    labels: Sequence[str]
    served: Served


PipelineResult = ScoreResult | EmbedResult | ClassifyResult


@dataclass(frozen=True, slots=True)
class EngineBatch:
    """All sequences of one request, ready for the engine.

    Attributes:
        request_id: unique per call; the engine's sequence ids start with it.
        task: what the pooler computes.
        token_ids: int32 [total tokens], the sequences one behind the other.
        offsets: int32 [sequences + 1]; sequence i is `token_ids[offsets[i]:offsets[i + 1]]`.
        segment_starts: int32 [sequences], position at which token type 1 begins in each sequence, for models that
            have token types (BERT); None for all others. Leaving it out for BERT pairs is silently wrong.
        deadline: wall-clock seconds after which the work is dropped.
    """

    request_id: str
    task: PoolingTask
    token_ids: IntArray
    offsets: IntArray
    segment_starts: IntArray | None
    deadline: float

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """The engine's answer to a batch.

    Attributes:
        values: float32 [sequences, width]: logits (before any activation) or embeddings (before normalisation).
        queue_ms: time from the arrival in the engine to the first forward pass that held one of the sequences.
        engine_ms: time from there to the last output.
    """

    values: FloatArray
    queue_ms: float
    engine_ms: float
