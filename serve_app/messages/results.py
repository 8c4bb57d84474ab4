"""IOProcessor → Gateway: the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from serve_app.messages.common import FloatArray, ItemError


@dataclass(frozen=True, slots=True)
class Served:
    """What every result carries, whatever the operation.

    Attributes:
        model, version: what served it.
        prompt_tokens: tokens the engine read, special tokens and templates included.
        truncated: indexes of the inputs that were cut.
        timings: milliseconds by stage name (`serve_app.vocabulary.Stage`).
        errors: items without an answer, by index; their rows of the result are NaN and never leave the gateway.
        ignored: the caller's names of fields that have no effect on this model.
    """

    model: str
    version: str
    prompt_tokens: int
    truncated: Sequence[int] = ()
    timings: dict[str, float] = field(default_factory=dict)
    errors: Sequence[ItemError] = ()
    ignored: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ScoreResult:
    """scores: float32 [documents], in the order of the request's documents; NaN only where `served.errors` says why."""

    scores: FloatArray
    served: Served


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """vectors: float32 [inputs, dimensions]; rows of NaN only where `served.errors` says why."""

    vectors: FloatArray
    served: Served


@dataclass(frozen=True, slots=True)
class ClassifyResult:
    """scores: float32 [inputs, labels], probabilities or logits; labels: the label names in the columns' order."""

    scores: FloatArray
    labels: Sequence[str]
    served: Served


@dataclass(frozen=True, slots=True)
class Span:
    """A place of a text with an opinion.

    Attributes:
        start, end: code points of the caller's own string; `text` is `input[start:end]`.
        aspect: what the opinion is about; None: the model's labels name no aspects.
        polarity: the model's own word.
        score: 0 to 1.
    """

    start: int
    end: int
    text: str
    aspect: str | None
    polarity: str
    score: float


@dataclass(frozen=True, slots=True)
class AbsaItem:
    """One text's answer: the whole text's sentiment (label, score), None where the model has no head for it; spans by
    their places."""

    sentiment: tuple[str, float] | None
    spans: Sequence[Span]


@dataclass(frozen=True, slots=True)
class AbsaResult:
    """items: one per input, in their order."""

    items: Sequence[AbsaItem]
    served: Served


@dataclass(frozen=True, slots=True)
class PoolResult:
    """rows: one float32 array per input, [width] or, for the tasks of tokens, [tokens, width]."""

    rows: Sequence[FloatArray]
    served: Served


@dataclass(frozen=True, slots=True)
class DataResult:
    """json: the processor's answer, already as JSON, whatever it is."""

    json: bytes
    served: Served


PipelineResult = ScoreResult | EmbedResult | ClassifyResult | AbsaResult | PoolResult | DataResult
