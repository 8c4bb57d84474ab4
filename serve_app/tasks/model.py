"""A loaded model as the tasks see it, and the input they build for the engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve_app.checkpoint import Checkpoint, read_checkpoint
from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.materialized import locate
from serve_app.messages import EngineImages, IntArray, Truncation
from serve_app.settings import ModelSettings
from serve_app.sources import fetch_metadata
from serve_app.startup import Phase, StartClock
from serve_app.tokenization import EncodedText, TextTokenizer, TokenIds
from serve_app.vocabulary import PoolingTask, Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TextModel:
    """Settings, checkpoint facts and tokenizer of one model version. Built once per replica.

    `padding`: token ids that a text of no tokens is filled up with, for models that want texts of one length.
    """

    settings: ModelSettings
    checkpoint: Checkpoint
    tokenizer: TextTokenizer
    padding: tuple[int, ...] = ()

    @classmethod
    def of(cls, settings: ModelSettings, checkpoint: Checkpoint, tokenizer: TextTokenizer) -> TextModel:
        """Puts the parts together.

        Raises:
            ValueError: see `check_tokenizer`.
        """
        check_tokenizer(settings, checkpoint, tokenizer)
        pad_to = checkpoint.images.pad_to if checkpoint.images is not None else None
        model = cls(settings, checkpoint, tokenizer, () if pad_to is None else (tokenizer.pad_id(),) * pad_to)
        if model.vocab_size < tokenizer.vocab_size:
            logger.warning(
                "%s@%s: the tokenizer has ids up to %d, the model's embedding %d rows; texts with tokens beyond them "
                "are refused",
                *(settings.name, settings.version, tokenizer.vocab_size - 1, model.vocab_size),
            )
        return model

    @property
    def vocab_size(self) -> int:
        """Token ids that the tokenizer gives and the model's embedding has are below it."""
        rows = self.checkpoint.vocab_size
        return self.tokenizer.vocab_size if rows is None else min(rows, self.tokenizer.vocab_size)

    def window(self, truncation: Truncation) -> int:
        """Tokens of one input, special tokens included, under the caller's limit and the model's."""
        limit = truncation.max_input_tokens
        return self.settings.max_model_len if limit is None else min(limit, self.settings.max_model_len)


def check_tokenizer(settings: ModelSettings, checkpoint: Checkpoint, tokenizer: TextTokenizer) -> None:
    """Refuses a tokenizer that does not make inputs of the model's.

    Raises:
        ValueError: a query and a document would run into each other, or every text would get a token that the model's
            embedding does not have.
    """
    if settings.task is Task.RERANK and settings.template is None and not tokenizer.pair.between:
        kind = checkpoint.config.get("model_type")
        raise ValueError(
            "template: the checkpoint's tokenizer puts nothing between a query and a document; name or spell out the "
            "prompt that the model was trained with" + (" (`qwen3-reranker`)" if kind == "qwen3" else "")
        )
    around = [[*t.before, *t.between, *t.after] for t in (tokenizer.single, tokenizer.pair)]
    if (template := settings.resolved_template) is not None:
        around += tokenizer.encode([template.prefix, template.suffix])
    highest = max((token for ids in around for token in ids), default=-1)
    if checkpoint.vocab_size is not None and highest >= checkpoint.vocab_size:
        raise ValueError(
            f"source: the tokenizer puts token {highest} around texts; the model's embedding has "
            f"{checkpoint.vocab_size} rows"
        )


def load_text_model(settings: ModelSettings, clock: StartClock | None = None) -> TextModel:
    """Reads config and tokenizer; downloads them for a hub id. `clock` takes the phases' times.

    Raises:
        ValueError: the checkpoint does not fit the settings, or is not the one that was materialized.
    """
    clock = clock if clock is not None else StartClock()
    with clock.phase(Phase.VERIFY):
        # The weights are the engine's: here their sizes do.
        settings = locate(settings, check="sizes").settings
    with clock.phase(Phase.RESOLVE):
        folder = fetch_metadata(settings.source, settings.revision)
        checkpoint = read_checkpoint(folder, settings)
    with clock.phase(Phase.TOKENIZER):
        tokenizer = TextTokenizer(folder, trust_remote_code=settings.engine.trust_remote_code)
    return TextModel.of(settings, checkpoint, tokenizer)


@dataclass(frozen=True, slots=True)
class ModelInput:
    """All sequences of a request, and what post-processing needs to know about them.

    Attributes:
        task: what the engine's pooler computes.
        token_ids, offsets, segment_starts: as in `messages.EngineBatch`.
        owners: int32 [sequences], index of the document that each sequence is a chunk of; None: one each.
        truncated: indexes of the inputs that were cut.
        images: the images whose markers are among the tokens.
        marker_owners: with `images` and a score per marker: the documents that each marker stands for.
        rows_before, params: as in `messages.EngineBatch`.
        encoded: token classifiers: each input's tokens and their places.
        starts: token classifiers: int32 [sequences], the first of its input's tokens that each sequence holds.
    """

    task: PoolingTask
    token_ids: IntArray
    offsets: IntArray
    segment_starts: IntArray | None
    owners: IntArray | None
    truncated: tuple[int, ...]
    images: EngineImages | None = None
    marker_owners: tuple[tuple[int, ...], ...] | None = None
    rows_before: int = 0
    params: Mapping[str, Any] | None = None
    encoded: tuple[EncodedText, ...] = ()
    starts: IntArray | None = None

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the engine reads."""
        return int(self.offsets[-1])


class InputBuilder:
    """Collects sequences into the flat arrays that travel to the engine."""

    def __init__(self, task: PoolingTask) -> None:
        self._task = task
        self._ids: list[int] = []
        self._offsets = [0]
        self._segments: list[int] = []
        self._owners: list[int] = []
        self._keys: dict[str, int] = {}
        self._rows: list[int] = []
        self._members: list[int] = []
        self._marker_offsets: dict[int, int] = {}
        self.truncated: list[int] = []

    def add(self, *pieces: Sequence[int], owner: int, segment_start: int | None = None) -> None:
        """Appends one sequence made of `pieces`; `segment_start` is where token type 1 begins."""
        for piece in pieces:
            self._ids.extend(piece)
        self._offsets.append(len(self._ids))
        self._owners.append(owner)
        if segment_start is not None:
            self._segments.append(segment_start)

    def add_images(self, keys: Sequence[str], rows: Sequence[int], marker: int, before: Sequence[int] = ()) -> None:
        """Appends one sequence: the tokens `before`, then a `marker` per image. It has no owner (-1).

        Args:
            keys: the images' cache keys.
            rows: each image's row of pixels; -1: it is not sent.
        """
        for key, row in zip(keys, rows, strict=True):
            if key not in self._keys:
                self._keys[key] = len(self._keys)
                self._rows.append(row)
            self._members.append(self._keys[key])
        self.add(before, [marker] * len(keys), owner=-1)
        self._marker_offsets[len(self._owners)] = len(self._members)

    def _images(self) -> EngineImages | None:
        if not self._keys:
            return None
        offsets, last = [0], 0
        for i in range(1, len(self._owners) + 1):
            last = self._marker_offsets.get(i, last)
            offsets.append(last)
        return EngineImages(
            keys=tuple(self._keys),
            rows=np.array(self._rows, dtype=np.int32),
            members=np.array(self._members, dtype=np.int32),
            offsets=np.array(offsets, dtype=np.int32),
        )

    def build(self, marker_owners: tuple[tuple[int, ...], ...] | None = None) -> ModelInput:
        """The finished input; the builder is not used again. `marker_owners` asks for a score per marker."""
        chunked = self._owners != list(range(len(self._owners)))
        return ModelInput(
            task=self._task,
            token_ids=np.array(self._ids, dtype=np.int32),
            offsets=np.array(self._offsets, dtype=np.int32),
            segment_starts=np.array(self._segments, dtype=np.int32) if self._segments else None,
            owners=np.array(self._owners, dtype=np.int32) if chunked else None,
            truncated=tuple(self.truncated),
            images=self._images(),
            marker_owners=marker_owners,
        )


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the model wants before each text: an embedder's prompt, or what an LLM reranker's template has there."""

    text: str = ""
    ids: Sequence[int] = ()

    @classmethod
    def of(cls, model: TextModel, text: str) -> Prefix:
        """`text` with its tokens."""
        return cls(text, tuple(model.tokenizer.encode([text])[0])) if text else cls()

    def shared(self, ids: Sequence[int]) -> int:
        """Tokens at the start of `ids`, which are those of prefix and text together, that are the prefix's alone.

        A token that the text has grown into (" " and "fox" are one) is the text's.
        """
        pairs = zip(self.ids, ids, strict=False)
        return next((i for i, (mine, found) in enumerate(pairs) if mine != found), min(len(self.ids), len(ids)))


NO_PREFIX = Prefix()


def split_document(
    model: TextModel,
    text: str,
    ids: TokenIds,
    *,
    read_whole: bool,
    room: int,
    truncation: Truncation,
    field: str,
    prefix: Prefix = NO_PREFIX,
) -> tuple[list[TokenIds], bool]:
    """The pieces of a document that are read, and whether something was cut.

    One piece of at most `room` tokens, or up to `truncation.max_chunks` of them, each with the prefix before it: no
    model was trained on a piece without. The first piece is a slice of prefix and document tokenized together, as the
    official prompt is; later ones begin in the middle of the document's tokens, so the prefix's own tokens are put
    before them. Limits and lengths that the caller sees count the document's own tokens.

    Args:
        text: the document's own.
        ids: tokens of prefix and document together.
        room: tokens for prefix and document; more than the prefix has.

    Raises:
        ContextLengthExceeded: it does not fit and may not be cut; names the field and both lengths.
    """
    shared = prefix.shared(ids)
    first, later = room - shared, room - len(prefix.ids)
    if truncation.max_document_tokens is not None:
        first, later = min(first, truncation.max_document_tokens), min(later, truncation.max_document_tokens)
    fits = first + later * (truncation.max_chunks - 1)
    cut = not read_whole or len(ids) - shared > fits
    if cut and not truncation.enabled:
        count, exact = (len(ids), True) if read_whole else model.tokenizer.count(prefix.text + text)
        raise ContextLengthExceeded(
            f"{field}: {'' if exact else 'at least '}{count - shared} tokens; there is room for {fits} "
            f"(max_model_len {model.settings.max_model_len}) and truncation is off",
            field,
        )
    end, begin = min(len(ids), shared + fits), shared + first
    return [ids[:begin], *([*prefix.ids, *ids[i : min(i + later, end)]] for i in range(begin, end, later))], cut


def require_tokens(ids: Sequence[int], field: str) -> None:
    """Refuses an input that has no tokens at all; engines cannot run an empty sequence."""
    if not ids:
        raise InvalidRequest(f"{field}: has no tokens, and this model adds none of its own", field)


def check_texts(model: TextModel, encoded: Sequence[TokenIds], field: Callable[[int], str]) -> None:
    """Refuses texts with a token that the model's embedding does not have: it would fail every text of its step.

    Of nearly all models the embedding has the whole vocabulary, and nothing is looked at.

    Args:
        model: whose tokenizer has read the texts.
        encoded: their token ids.
        field: name of the i-th text in the request.
    """
    if model.vocab_size == model.tokenizer.vocab_size:
        return
    for i, ids in enumerate(encoded):
        if (token := max(ids, default=0)) >= model.vocab_size:
            raise InvalidRequest(
                f"{field(i)}: has the token {token}, which the tokenizer knows and the model does not; its embedding "
                f"has {model.vocab_size} rows",
                field(i),
            )


def check_token_ids(ids: Sequence[int], vocab_size: int, field: str) -> None:
    """Refuses ready token ids that the model does not have."""
    for i, token in enumerate(ids):
        if not 0 <= token < vocab_size:
            raise InvalidRequest(f"{field}[{i}]: token id {token} is outside the model's 0 to {vocab_size - 1}", field)
