"""What travels between the stages. A request's whole state is in its message and dies with it.

Gateway → IOProcessor: `ScoreRequest`, `EmbedRequest`, `ClassifyRequest` or `AbsaRequest`; back come `ScoreResult`,
`EmbedResult`, `ClassifyResult`, `AbsaResult`. IOProcessor → ImageLoader: `LoadRequest`; back comes `LoadedImages`, by
reference. IOProcessor → PoolingEngine: `EngineBatch`; back comes `EngineOutput`. All but pixels cross process
boundaries by value: token ids and scores as flat numpy arrays, which cost half of what lists cost (1.5-3 ms for 500
pairs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from serve_app.vocabulary import MediaErrorCode, PoolingTask, Resample

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Context:
    """What every stage needs to know about a request.

    Attributes:
        request_id: the caller's `X-Request-Id`, or one made by the gateway.
        deadline: wall-clock time (`time.time()`, seconds) at which the answer is worth nothing any more.
        operation: the route's operation, for error texts and logs.
        trace: W3C `traceparent` of the span that the stage belongs to; "": the request is not traced.
    """

    request_id: str
    deadline: float
    operation: str = ""
    trace: str = ""


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
class ImageRef:
    """An image as the caller named it: exactly one of both.

    Attributes:
        url: where it is; any string, not checked yet.
        data: its bytes, as sent in the request.
    """

    url: str | None = None
    data: bytes | None = None

    def __repr__(self) -> str:  # neither URLs nor bytes belong into logs
        return f"ImageRef({'url' if self.data is None else f'{len(self.data)} bytes'})"


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """Pairs to score: rerank (one query) and score (one query or as many as documents).

    Attributes:
        queries: one query for all documents, or one per document; texts or images.
        documents: at least one; texts or images, as the model's task allows.
        query_field, document_field: the caller's names of both, for error messages (`documents[3] is too long`).
        instruction: replaces the default instruction of an LLM reranker's template.
        raw_scores: logits (cosine for a bi-encoder) instead of activated scores.
    """

    queries: Sequence[str | ImageRef]
    documents: Sequence[str | ImageRef]
    query_field: str = "query"
    document_field: str = "documents"
    instruction: str | None = None
    raw_scores: bool = False
    truncation: Truncation = Truncation()


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts, ready token ids, or images to embed.

    Attributes:
        inputs: one text each, one list of token ids each (special tokens included), or one image each.
        input_field: the caller's name of the field.
        prompt: name of the model's prompt to put before each text (`query`, `document`, …); None: none.
        dimensions: first components kept (Matryoshka); None: all.
        normalize: unit length; None: as the checkpoint says.
    """

    inputs: Sequence[str | Sequence[int] | ImageRef]
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
        truncation: of the texts that a plugin makes; our own tasks have it in their data.
    """

    data: Any
    max_documents: int
    max_images: int
    truncation: Truncation = Truncation(enabled=False)


PipelineRequest = ScoreRequest | EmbedRequest | ClassifyRequest | AbsaRequest | PoolRequest | DataRequest


@dataclass(frozen=True, slots=True)
class ItemError:
    """One document or input that has no answer, while the others have theirs.

    Attributes:
        index: its place in the request's documents or inputs.
        code: why.
        message: in the caller's words; names the field, tells nothing of what was found at a URL.
    """

    index: int
    code: MediaErrorCode
    message: str


@dataclass(frozen=True, slots=True)
class Served:
    """What every result carries, whatever the operation.

    Attributes:
        model, version: what served it.
        prompt_tokens: tokens the engine read, special tokens and templates included.
        truncated: indexes of the inputs that were cut.
        timings: milliseconds by stage name (`serve_app.vocabulary.Stage`).
        errors: items without an answer, by index; their rows of the result are NaN and never leave the gateway.
    """

    model: str
    version: str
    prompt_tokens: int
    truncated: Sequence[int] = ()
    timings: dict[str, float] = field(default_factory=dict)
    errors: Sequence[ItemError] = ()


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


@dataclass(frozen=True, slots=True)
class PixelSpec:
    """How a model wants its pixels: what its image processor does before it rescales and normalises.

    Attributes:
        shortest_edge: resize so that the shorter side has this length, keeping the proportions; None: see `size`.
        size: (height, width) to resize to, proportions given up; None: see `shortest_edge`. One of both is set, or
            neither, when the model takes pictures as they are.
        resample: interpolation of the resize.
        crop: (height, width) cut from the middle after the resize, padded with black where the picture is smaller.
        scaled_decoding: let libjpeg decode large JPEGs at a half, a quarter or an eighth of their size, never below
            what the resize needs. Faster; not bit-equal to decoding whole.
    """

    shortest_edge: int | None
    size: tuple[int, int] | None
    resample: Resample
    crop: tuple[int, int] | None
    scaled_decoding: bool = True

    @property
    def output_size(self) -> tuple[int, int]:
        """(height, width) of every picture that comes out."""
        size = self.crop or self.size
        assert size is not None  # checkpoint.py refuses specifications without a fixed size
        return size

    @property
    def fingerprint(self) -> str:
        """Part of every cache key: pixels made in another way are other pixels."""
        size = "x".join(map(str, self.size)) if self.size else f"s{self.shortest_edge}"
        crop = "x".join(map(str, self.crop)) if self.crop else "none"
        return f"{size}-{self.resample}-{crop}-{'scaled' if self.scaled_decoding else 'whole'}"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Images to fetch, decode and resize.

    Attributes:
        images: what the caller named, repetitions included.
        fields: the caller's name of each, for error messages (`documents[3].image`).
        spec: how the model wants its pixels.
        deadline: wall-clock seconds after which the work is dropped.
        trace: see `Context`.
    """

    images: Sequence[ImageRef]
    fields: Sequence[str]
    spec: PixelSpec
    deadline: float
    trace: str = ""


@dataclass(frozen=True, slots=True)
class LoadedImages:
    """The loader's answer, images in the request's order.

    Attributes:
        hashes: content hash of each image's bytes (BLAKE3, 32 hex digits); "" for a failed one.
        rows: int32 [images], each image's row in `pixels`; -1 for a failed one. Images of equal content share a row.
        pixels: uint8 [distinct images, height, width, 3], RGB.
        errors: the failed ones; `index` is the place in `LoadRequest.images`.
        fetch_ms, decode_ms: until the last image was fetched; from there until the last was decoded.
        reference: what stands for the whole answer in a call to another process, where pixels lie in a store that both
            reach; None: they travel by value.
    """

    hashes: Sequence[str]
    rows: IntArray
    pixels: ByteArray
    errors: Sequence[ItemError]
    fetch_ms: float
    decode_ms: float
    reference: Any = None


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
