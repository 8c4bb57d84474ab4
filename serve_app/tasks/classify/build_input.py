"""Texts and text pairs to sequences."""

from __future__ import annotations

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import ClassifyRequest
from serve_app.tasks.embed.build_input import add_texts
from serve_app.tasks.model import InputBuilder, ModelInput, TextModel, check_texts, split_document
from serve_app.vocabulary import PoolingTask


def build_input(model: TextModel, request: ClassifyRequest) -> ModelInput:
    """One sequence per input: all of them pairs, or none.

    Raises:
        InvalidRequest: pairs and single texts mixed, a token id outside the vocabulary, an input without tokens.
        ContextLengthExceeded: an input may not be cut, or a pair's first text leaves no room for the second.
    """
    builder = InputBuilder(PoolingTask.CLASSIFY)
    pairs = [item for item in request.inputs if isinstance(item, tuple)]
    if pairs and len(pairs) < len(request.inputs):
        raise InvalidRequest(
            f"{request.input_field}: single texts and pairs cannot be mixed in one request", request.input_field
        )
    if pairs:
        _add_pairs(builder, model, request, pairs)
    else:
        singles = [item for item in request.inputs if not isinstance(item, tuple)]
        fields = [f"{request.input_field}[{i}]" for i in range(len(singles))]
        add_texts(builder, model, singles, fields, request.truncation)
    return builder.build()


def _add_pairs(builder: InputBuilder, model: TextModel, request: ClassifyRequest, pairs: list[tuple[str, str]]) -> None:
    special = model.tokenizer.pair
    window = model.window(request.truncation)
    texts = [text for pair in pairs for text in pair]
    ids, unread = model.tokenizer.encode_capped(texts, window)
    check_texts(model, ids, lambda i: f"{request.input_field}[{i // 2}][{i % 2}]")
    for i, (_, second) in enumerate(pairs):
        field = f"{request.input_field}[{i}]"
        first_ids, second_ids = ids[2 * i], ids[2 * i + 1]
        room = window - special.overhead(pair=True) - len(first_ids)
        if room < 1 or 2 * i in unread:
            raise ContextLengthExceeded(
                f"{field}[0]: {len(first_ids)} tokens leave no room for the second text in {window} tokens",
                f"{field}[0]",
            )
        pieces, cut = split_document(
            model,
            second,
            second_ids,
            read_whole=2 * i + 1 not in unread,
            room=room,
            truncation=request.truncation,
            field=f"{field}[1]",
        )
        if cut:
            builder.truncated.append(i)
        head = [*special.before, *first_ids, *special.between]
        typed = special.typed and model.checkpoint.has_token_types
        builder.add(head, pieces[0], special.after, owner=i, segment_start=len(head) if typed else None)
