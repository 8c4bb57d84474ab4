"""Texts and images to sequences, with the model's prompt before each text.

An image is a sequence of one marker token. Images of equal content are one sequence, and those whose vector is known
are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from serve_app.checkpoint import find_prompt
from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import EmbedRequest, ImageRef, ScoreRequest, Truncation
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import (
    NO_PREFIX,
    InputBuilder,
    ModelInput,
    Prefix,
    TextModel,
    check_texts,
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
    prefix = Prefix.of(model, _prompt(model, request))
    builder = InputBuilder(PoolingTask.EMBED)
    fields = [f"{request.input_field}[{i}]" for i in range(len(request.inputs))]
    add_texts(builder, model, request.inputs, fields, request.truncation, prefix=prefix)
    _add_images(builder, model, images)
    return builder.build()


def build_pair_input(model: TextModel, request: ScoreRequest, images: RequestImages | None = None) -> ModelInput:
    """Queries first, then documents (chunks of one behind the other), then images; each query once.

    The sequences' owners are numbered through: query i is i, document j is `len(queries) + j`.
    """
    builder = InputBuilder(PoolingTask.EMBED)
    before_query, before_document = (
        Prefix.of(model, find_prompt(model.checkpoint.prompts, kind) or "") for kind in ("query", "document")
    )
    queries, documents = request.queries, request.documents
    single = len(queries) == 1
    fields = [request.query_field if single else f"{request.query_field}[{i}]" for i in range(len(queries))]
    whole = Truncation(enabled=False, max_input_tokens=None)
    add_texts(builder, model, queries, fields, whole, prefix=before_query)
    fields = [f"{request.document_field}[{i}]" for i in range(len(documents))]
    add_texts(builder, model, documents, fields, request.truncation, len(queries), before_document)
    _add_images(builder, model, images)
    return builder.build()


def _prompt(model: TextModel, request: EmbedRequest) -> str:
    """The model's text for the prompt that the request names, under the caller's own word first."""
    if request.prompt is None:
        return ""
    known = model.checkpoint.prompts
    sent = request.prompt if request.prompt_sent is None else request.prompt_sent
    found = find_prompt(known, sent if sent in known else request.prompt)
    if found is None:
        field = request.prompt_field
        raise InvalidRequest(
            f"{field}: this model has no prompt '{sent[:60]}'; it has: {', '.join(known) or 'none'}", field
        )
    return found


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
    prefix: Prefix = NO_PREFIX,
) -> None:
    """Appends single texts, or ready token ids, each within the model's window; leaves images out.

    `prefix` stands before every text, and before none of the token ids.
    """
    special = model.tokenizer.single
    window = model.window(truncation)
    room = window - special.overhead(pair=False)
    texts = [prefix.text + item for item in inputs if isinstance(item, str)]
    if room < 1 or (texts and room <= len(prefix.ids)):
        behind = f" behind the {len(prefix.ids)} tokens of the model's prompt" if prefix.ids else ""
        raise ContextLengthExceeded(f"{window} tokens leave no room for a text{behind}", fields[0])
    encoded, unread = model.tokenizer.encode_capped(texts, room * truncation.max_chunks)
    texts_fields = [field for field, item in zip(fields, inputs, strict=True) if isinstance(item, str)]
    check_texts(model, encoded, texts_fields.__getitem__)
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
            prefix=prefix,
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
    check_token_ids(ids, model.vocab_size, field)
    if len(ids) > window:
        if not truncation.enabled:
            raise ContextLengthExceeded(
                f"{field}: {len(ids)} tokens; there is room for {window} and truncation is off", field
            )
        builder.truncated.append(owner)
    builder.add(ids[:window], model.padding[len(ids) :], owner=owner)
