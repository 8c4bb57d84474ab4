"""Texts and images to sequences, with the model's prompt before each text.

An image is a sequence of one marker token. Images of equal content are one sequence, and those whose vector is known
are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import EmbedRequest, ImageRef, ScoreRequest, Truncation
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import (
    InputBuilder,
    ModelInput,
    TextModel,
    check_token_ids,
    require_tokens,
    split_document,
)
from serve_app.vocabulary import PoolingTask


def build_input(model: TextModel, request: EmbedRequest, images: RequestImages | None = None) -> ModelInput:
    """One sequence per input. Ready token ids are taken as they are.

    Raises:
        InvalidRequest: unknown prompt name, token id outside the vocabulary, input without tokens.
        ContextLengthExceeded: an input may not be cut.
    """
    prompt = ""
    if request.prompt is not None:
        known = model.checkpoint.prompts
        # A model without any prompts treats queries and documents alike, so their names change nothing.
        if request.prompt not in known and (known or request.prompt not in {"query", "document"}):
            raise InvalidRequest(
                f"prompt: this model has no prompt '{request.prompt[:60]}'; it has: {', '.join(known) or 'none'}",
                "prompt",
            )
        prompt = known.get(request.prompt, "")
    builder = InputBuilder(PoolingTask.EMBED)
    texts = [prompt + item if isinstance(item, str) else item for item in request.inputs]
    fields = [f"{request.input_field}[{i}]" for i in range(len(texts))]
    add_texts(builder, model, texts, fields, request.truncation)
    _add_images(builder, model, images)
    return builder.build()


def build_pair_input(model: TextModel, request: ScoreRequest, images: RequestImages | None = None) -> ModelInput:
    """Queries first, then documents (chunks of one behind the other), then images; each query once.

    The sequences' owners are numbered through: query i is i, document j is `len(queries) + j`.
    """
    prompts = model.checkpoint.prompts
    builder = InputBuilder(PoolingTask.EMBED)
    queries = [_prompted(prompts.get("query", ""), query) for query in request.queries]
    single = len(queries) == 1
    fields = [request.query_field if single else f"{request.query_field}[{i}]" for i in range(len(queries))]
    add_texts(builder, model, queries, fields, Truncation(enabled=False, max_input_tokens=None))
    documents = [_prompted(prompts.get("document", ""), document) for document in request.documents]
    fields = [f"{request.document_field}[{i}]" for i in range(len(documents))]
    add_texts(builder, model, documents, fields, request.truncation, first_owner=len(queries))
    _add_images(builder, model, images)
    return builder.build()


def _prompted(prompt: str, item: str | ImageRef) -> str | ImageRef:
    return prompt + item if isinstance(item, str) else item


def _add_images(builder: InputBuilder, model: TextModel, images: RequestImages | None) -> None:
    """A sequence for every image whose vector is not known, in the order of the keys."""
    if images is None:
        return
    facts = model.checkpoint.images
    assert facts is not None
    for key in dict.fromkeys(images.keys.values()):
        if key not in images.vectors:
            builder.add_images([key], [images.rows.get(key, -1)], facts.marker)


def add_texts(
    builder: InputBuilder,
    model: TextModel,
    inputs: Sequence[str | Sequence[int] | ImageRef],
    fields: Sequence[str],
    truncation: Truncation,
    first_owner: int = 0,
) -> None:
    """Appends single texts, or ready token ids, each within the model's window; leaves images out."""
    special = model.tokenizer.single
    window = model.window(truncation)
    room = window - special.overhead(pair=False)
    if room < 1:
        raise ContextLengthExceeded(f"{window} tokens leave no room for a text", fields[0])
    texts = [item for item in inputs if isinstance(item, str)]
    encoded, unread = model.tokenizer.encode_capped(texts, room * truncation.max_chunks)
    position = 0
    for i, item in enumerate(inputs):
        owner = first_owner + i
        if isinstance(item, ImageRef):
            continue
        if not isinstance(item, str):
            _add_ready_ids(builder, model, item, fields[i], window, truncation, owner)
            continue
        ids, text_index = encoded[position], position
        position += 1
        pieces, cut = split_document(
            model,
            item,
            ids,
            read_whole=text_index not in unread,
            room=room,
            truncation=truncation,
            field=fields[i],
        )
        if cut:
            builder.truncated.append(i)
        if special.overhead(pair=False) == 0:
            require_tokens(ids, fields[i])
        for piece in pieces:
            filling = model.padding[special.overhead(pair=False) + len(piece) :]
            builder.add(special.before, piece, special.after, filling, owner=owner)


def _add_ready_ids(
    builder: InputBuilder,
    model: TextModel,
    ids: Sequence[int],
    field: str,
    window: int,
    truncation: Truncation,
    owner: int,
) -> None:
    require_tokens(ids, field)
    check_token_ids(ids, model.tokenizer.vocab_size, field)
    if len(ids) > window:
        if not truncation.enabled:
            raise ContextLengthExceeded(
                f"{field}: {len(ids)} tokens; there is room for {window} and truncation is off", field
            )
        builder.truncated.append(owner)
    builder.add(ids[:window], model.padding[len(ids) :], owner=owner)
