"""Texts to windows of tokens, or (text, aspect) pairs to sequences."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from serve_app.errors import ContextLengthExceeded, InvalidRequest, TooLarge
from serve_app.messages import AbsaRequest
from serve_app.tasks.absa.labels import AbsaKind, AbsaScheme
from serve_app.tasks.absa.windows import window_starts
from serve_app.tasks.model import InputBuilder, ModelInput, TextModel, check_texts
from serve_app.tokenization import TokenIds


def build_input(model: TextModel, request: AbsaRequest) -> ModelInput:
    """Token classifiers: each text's windows, in order. Pair classifiers: each text's aspects, in order.

    Raises:
        InvalidRequest: aspects that the model cannot answer, or none where it needs them.
        ContextLengthExceeded: a text may not be cut, or an aspect leaves no room for one.
        TooLarge: more than the engine may hold at a time.
    """
    scheme = scheme_of(model)
    chosen_aspects(scheme, request)
    built = _pairs(model, request, scheme) if scheme.kind is AbsaKind.PAIRS else _windows(model, request, scheme)
    limit = model.settings.admission.max_tokens_in_flight
    if built.prompt_tokens > limit:
        raise TooLarge(
            f"{request.input_field}: {built.prompt_tokens} tokens together; the model takes {limit} at a time",
            request.input_field,
        )
    return built


def scheme_of(model: TextModel) -> AbsaScheme:
    """What the model's labels mean."""
    scheme = model.checkpoint.absa
    assert scheme is not None  # read_checkpoint reads it for task absa
    return scheme


def chosen_aspects(scheme: AbsaScheme, request: AbsaRequest) -> frozenset[str] | None:
    """The aspects that a token classifier's spans are kept for, in the model's spelling; None: all of them.

    Names are compared without regard to case and to composition.

    Raises:
        InvalidRequest: see `build_input`.
    """
    if request.aspects is None:
        if scheme.kind is AbsaKind.PAIRS:
            raise InvalidRequest("aspects: is required; this model rates the aspects that it is given", "aspects")
        return None
    if scheme.kind is AbsaKind.PAIRS:
        return None
    if not scheme.aspects:
        raise InvalidRequest(
            "aspects: this model finds opinions and their polarity, not what they are about; leave it out", "aspects"
        )
    known = {_folded(aspect): aspect for aspect in scheme.aspects}
    for i, aspect in enumerate(request.aspects):
        if _folded(aspect) not in known:
            raise InvalidRequest(
                f"aspects[{i}]: this model does not know '{aspect[:60]}'; it knows {', '.join(scheme.aspects)}",
                f"aspects[{i}]",
            )
    return frozenset(known[_folded(aspect)] for aspect in request.aspects)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().strip()


def window_room(model: TextModel) -> tuple[int, int]:
    """(tokens of a text in one window, tokens from one window's start to the next one's)."""
    room = model.settings.max_model_len - model.tokenizer.single.overhead(pair=False)
    stride = model.settings.absa.stride
    return max(1, room), max(1, room - (room // 4 if stride is None else stride))


def _windows(model: TextModel, request: AbsaRequest, scheme: AbsaScheme) -> ModelInput:
    special = model.tokenizer.single
    room, step = window_room(model)
    limit = min(
        _least(request.truncation.max_input_tokens, special.overhead(pair=False)),
        _least(request.truncation.max_document_tokens, 0),
        room + (model.settings.absa.max_windows - 1) * step,
    )
    builder = InputBuilder(scheme.task)
    encoded, unread = model.tokenizer.encode_places_capped(request.inputs, limit)
    check_texts(model, [text.ids for text in encoded], lambda i: f"{request.input_field}[{i}]")
    starts: list[int] = []
    for i, text in enumerate(encoded):
        if i in unread or len(text) > limit:
            _cut(model, request, i, limit, None if i in unread else len(text))
            builder.truncated.append(i)
            encoded[i] = text = text.head(limit)
        if not len(text) and not special.overhead(pair=False):
            continue  # nothing for the engine to read
        for start in window_starts(len(text), room, step):
            builder.add(special.before, text.ids[start : start + room], special.after, owner=i)
            starts.append(start)
    return replace(
        builder.build(),
        rows_before=scheme.rows_before,
        encoded=tuple(encoded),
        starts=np.array(starts, dtype=np.int32),
    )


def _least(limit: int | None, overhead: int) -> int:
    return 1 << 31 if limit is None else max(1, limit - overhead)


def _cut(model: TextModel, request: AbsaRequest, index: int, limit: int, tokens: int | None) -> None:
    """Refuses a text that is too long, if it may not be cut; `tokens`: how many it has, if that is known."""
    if request.truncation.enabled:
        return
    count, exact = (tokens, True) if tokens is not None else model.tokenizer.count(request.inputs[index])
    field = f"{request.input_field}[{index}]"
    raise ContextLengthExceeded(
        f"{field}: {'' if exact else 'at least '}{count} tokens; there is room for {limit} and truncation is off", field
    )


def is_silent(text: str) -> bool:
    """Whether a text has nothing to have an opinion in."""
    return not text.strip()


def _pairs(model: TextModel, request: AbsaRequest, scheme: AbsaScheme) -> ModelInput:
    """The text comes first and is the one that is cut; an aspect never is. Silent texts are not asked about."""
    aspects = list(request.aspects or ())
    count, limit = len(request.inputs) * len(aspects), model.settings.admission.max_documents_in_flight
    if count > limit:
        raise TooLarge(
            f"aspects: {len(request.inputs)} texts with {len(aspects)} aspects each are {count} pairs; the model takes "
            f"{limit} at a time",
            "aspects",
        )
    special, window = model.tokenizer.pair, model.window(request.truncation)
    typed = special.typed and model.checkpoint.has_token_types
    builder = InputBuilder(scheme.task)
    terms, unread_terms = model.tokenizer.encode_capped(aspects, window)
    check_texts(model, terms, lambda j: f"aspects[{j}]")
    longest = _least(request.truncation.max_document_tokens, 0)
    rooms = [min(longest, window - special.overhead(pair=True) - len(term)) for term in terms]
    for j, room in enumerate(rooms):
        if room < 1 or j in unread_terms:
            raise ContextLengthExceeded(f"aspects[{j}]: leaves no room for a text in {window} tokens", f"aspects[{j}]")
    encoded, unread = model.tokenizer.encode_capped(request.inputs, window)
    check_texts(model, encoded, lambda i: f"{request.input_field}[{i}]")
    for i, ids in enumerate(encoded):
        if is_silent(request.inputs[i]):
            continue
        if i in unread or len(ids) > min(rooms):
            _cut(model, request, i, min(rooms), None if i in unread else len(ids))
            builder.truncated.append(i)
        for j, term in enumerate(terms):
            _add_pair(builder, model, ids[: rooms[j]], term, i * len(aspects) + j, typed=typed)
    return builder.build()


def _add_pair(
    builder: InputBuilder, model: TextModel, text: Sequence[int], term: TokenIds, owner: int, *, typed: bool
) -> None:
    special = model.tokenizer.pair
    head = [*special.before, *text, *special.between]
    builder.add(head, term, special.after, owner=owner, segment_start=len(head) if typed else None)
