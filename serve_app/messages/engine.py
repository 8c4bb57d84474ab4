"""IOProcessor ↔ PoolingEngine: sequences to run, and their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serve_app.messages.common import FloatArray, IntArray
from serve_app.vocabulary import PoolingTask


@dataclass(frozen=True, slots=True)
class EngineImages:
    """The images of an `EngineBatch`. Each one's marker is a single token; markers are the last tokens of a sequence.

    The pixels travel beside the batch, in the `LoadedImages` that they came in.

    Attributes:
        keys: cache key of each distinct image (content hash, model and preprocessing version).
        rows: int32 [keys], each image's row of pixels; -1: the engine is thought to hold it and it is not sent.
        members: int32 [markers], index into `keys` of each marker, sequences one behind the other.
        offsets: int32 [sequences + 1]; the markers of sequence i are `members[offsets[i]:offsets[i + 1]]`.
    """

    keys: Sequence[str]
    rows: IntArray
    members: IntArray
    offsets: IntArray


@dataclass(frozen=True, slots=True)
class MissingImages:
    """The engine's answer when it does not hold images that were left out: nothing was run, send them."""

    keys: Sequence[str]


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
        images: the images whose markers are among the tokens; None: there are none.
        score_per_marker: every marker has a score of its own, instead of every sequence.
        values_per_token: every token has values of its own, special tokens included, instead of every sequence.
        rows_before: with `values_per_token`: rows that the model puts before each sequence's tokens. A two-head model
            has 1, the logits of the whole text, filled up with zeros to the width of the tokens'.
        params: all fields of vLLM's `PoolingParams`, as a plugin set them; None: the engine's own for `task`. The
            values then come in `EngineOutput.shapes`.
        trace: see `Context`.
        lane: parts of one split request have consecutive ones and go to different replicas; None: it is whole.
    """

    request_id: str
    task: PoolingTask
    token_ids: IntArray
    offsets: IntArray
    segment_starts: IntArray | None
    deadline: float
    images: EngineImages | None = None
    score_per_marker: bool = False
    values_per_token: bool = False
    rows_before: int = 0
    params: Mapping[str, Any] | None = None
    trace: str = ""
    lane: int | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class EngineOutput:
    """The engine's answer to a batch.

    Attributes:
        values: float32 [sequences, width]: logits (before any activation) or embeddings (before normalisation);
            [markers, 1] for a batch with `score_per_marker`; [tokens of the batch, labels] for one with
            `values_per_token`, the sequences one behind the other, each with `rows_before` rows before its tokens.
            For a batch with `params`: float32 [all of them], the sequences one behind the other.
        queue_ms: time from the arrival in the engine to the first forward pass that held one of the sequences.
        engine_ms: time from there to the last output.
        shapes: for a batch with `params`: the shape of each sequence's values, which a plugin's pooler decides.
        version: version of the model that the engine runs; "": an engine in this process, which has no other.
    """

    values: FloatArray
    queue_ms: float
    engine_ms: float
    shapes: Sequence[tuple[int, ...]] | None = None
    version: str = ""
