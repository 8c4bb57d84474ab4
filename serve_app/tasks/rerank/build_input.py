"""Pairs to sequences: `[CLS] query [SEP] document [SEP]`, or an LLM reranker's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from serve_app.errors import ContextLengthExceeded
from serve_app.messages import ScoreRequest
from serve_app.settings import TemplateSettings
from serve_app.tasks.model import (
    NO_PREFIX,
    InputBuilder,
    ModelInput,
    Prefix,
    TextModel,
    check_texts,
    require_tokens,
    split_document,
)
from serve_app.tokenization import TokenIds
from serve_app.vocabulary import PoolingTask


@dataclass(frozen=True, slots=True)
class _Frame:
    """What stands around a document: all of it is sent whole, only the document is cut."""

    head: TokenIds
    tail: TokenIds
    segment_start: int | None

    @property
    def length(self) -> int:
        return len(self.head) + len(self.tail)


def build_input(model: TextModel, request: ScoreRequest) -> ModelInput:
    """Sequences for every pair, in the order of the documents.

    Raises:
        ContextLengthExceeded: a query leaves no room for a document, or a document may not be cut.
        InvalidRequest: a pair has no tokens.
    """
    window = model.window(request.truncation)
    template = model.settings.resolved_template
    prefix = NO_PREFIX if template is None else Prefix.of(model, template.document_prefix)
    frames = _frames(model, request, window, prefix)
    documents = cast(Sequence[str], request.documents)  # the pipeline has refused images
    texts = [prefix.text + document for document in documents] if prefix.text else list(documents)
    longest = (window - min(frame.length for frame in frames)) * request.truncation.max_chunks
    ids, unread = model.tokenizer.encode_capped(texts, longest)
    check_texts(model, ids, lambda i: f"{request.document_field}[{i}]")
    builder = InputBuilder(PoolingTask.CLASSIFY)
    for i, tokens in enumerate(ids):
        frame = frames[i] if len(frames) > 1 else frames[0]
        field = f"{request.document_field}[{i}]"
        pieces, cut = split_document(
            model,
            documents[i],
            tokens,
            read_whole=i not in unread,
            room=window - frame.length,
            truncation=request.truncation,
            field=field,
            prefix=prefix,
        )
        if cut:
            builder.truncated.append(i)
        for piece in pieces:
            builder.add(frame.head, piece, frame.tail, owner=i, segment_start=frame.segment_start)
        if frame.length == 0:
            require_tokens(tokens, field)
    return builder.build()


def reads_instruction(model: TextModel) -> bool:
    """Whether a request's instruction reaches the model: only through an LLM reranker's template."""
    template = model.settings.resolved_template
    return template is not None and "{instruction}" in template.head


def _frames(model: TextModel, request: ScoreRequest, window: int, prefix: Prefix) -> list[_Frame]:
    """One frame per query: each query is tokenized once, however many documents it has. `prefix`: the documents'."""
    template = model.settings.resolved_template
    queries = cast(Sequence[str], request.queries)
    if template is None:
        texts, overhead = list(queries), model.tokenizer.pair.overhead(pair=True)
    else:
        texts = [_head_text(template, request, query) for query in queries]
        overhead = 0
    encoded, unread = model.tokenizer.encode_capped(texts, window)
    check_texts(model, encoded, lambda i: _query_field(request, i))
    around = model.tokenizer.encode([template.prefix, template.suffix]) if template is not None else None
    frames = [_frame(model, around, ids) for ids in encoded]
    for i, frame in enumerate(frames):
        if window - frame.length - len(prefix.ids) < 1 or i in unread:
            field = _query_field(request, i)
            count, exact = model.tokenizer.count(texts[i])
            own = frame.length - len(encoded[i]) + len(prefix.ids) if template else overhead
            raise ContextLengthExceeded(
                f"{field}: {'' if exact else 'at least '}{count} tokens leave no room for a document in {window} "
                f"tokens, of which {own} are the model's own; "
                "a query is never cut",
                field,
            )
    return frames


def _query_field(request: ScoreRequest, i: int) -> str:
    return f"{request.query_field}[{i}]" if len(request.queries) > 1 else request.query_field


def _head_text(template: TemplateSettings, request: ScoreRequest, query: str) -> str:
    instruction = request.instruction if request.instruction is not None else template.instruction
    # Not str.format or two replacements: braces in the caller's texts are text.
    before, after = template.head.split("{query}", 1)
    return before.replace("{instruction}", instruction) + query + after.replace("{instruction}", instruction)


def _frame(model: TextModel, around: Sequence[TokenIds] | None, ids: TokenIds) -> _Frame:
    """`around`: a template's prefix and suffix, tokenized; None: the tokenizer's special tokens."""
    if around is None:
        special = model.tokenizer.pair
        head = [*special.before, *ids, *special.between]
        start = len(head) if special.typed and model.checkpoint.has_token_types else None
        return _Frame(head, list(special.after), start)
    prefix, suffix = around
    return _Frame([*prefix, *ids], suffix, None)
