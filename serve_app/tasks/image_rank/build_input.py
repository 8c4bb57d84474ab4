"""A query and its images to sequences: `BOS query EOS marker marker …`, or one sequence per image."""

from __future__ import annotations

from collections.abc import Iterable

from serve_app.errors import ContextLengthExceeded, InvalidRequest
from serve_app.messages import ImageRef, ScoreRequest
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import InputBuilder, ModelInput, TextModel, check_texts
from serve_app.tokenization import TokenIds
from serve_app.vocabulary import PoolingTask


def build_input(model: TextModel, request: ScoreRequest, images: RequestImages | None) -> ModelInput:
    """Sequences for every query, with its images' markers; images of equal content share one.

    Raises:
        InvalidRequest: a query that is no text, or a document that is no image.
        ContextLengthExceeded: a query is too long; it is never cut.
    """
    texts = [_text(request, i) for i in range(len(request.queries))]
    for i, document in enumerate(request.documents):
        if not isinstance(document, ImageRef):
            field = f"{request.document_field}[{i}]"
            raise InvalidRequest(f"{field}: '{model.settings.name}' ranks images; send {{\"image\": …}}", field)
    facts = model.checkpoint.images
    assert facts is not None
    assert images is not None
    settings = model.settings.images
    per_sequence = model.settings.markers_per_sequence
    builder = InputBuilder(PoolingTask.CLASSIFY)
    marker_owners: list[tuple[int, ...]] = []
    for ids, members in zip(_encode(model, request, texts), _groups(texts, request, images), strict=True):
        keys = list(members)
        for start in range(0, len(keys), per_sequence):
            part = keys[start : start + per_sequence]
            rows = [images.rows.get(key, -1) for key in part]
            if settings.mode == "query":
                builder.add_images(part, rows, facts.marker, before=ids)
            else:
                builder.add_images(part, rows, ids[-1], before=ids[:-1])
            marker_owners += [tuple(members[key]) for key in part]
    return builder.build(marker_owners=tuple(marker_owners))


def _text(request: ScoreRequest, i: int) -> str:
    query = request.queries[i]
    if isinstance(query, str):
        return query
    field = request.query_field if len(request.queries) == 1 else f"{request.query_field}[{i}]"
    raise InvalidRequest(f"{field}: this model ranks images by a text", field)


def _encode(model: TextModel, request: ScoreRequest, texts: list[str]) -> list[TokenIds]:
    """Token ids of each distinct query, special tokens included."""
    special = model.tokenizer.single
    window = model.window(request.truncation)
    distinct = list(dict.fromkeys(texts))
    encoded, unread = model.tokenizer.encode_capped(distinct, window)

    def name(i: int) -> str:
        return request.query_field if len(texts) == 1 else f"{request.query_field}[{texts.index(distinct[i])}]"

    check_texts(model, encoded, name)
    sequences = []
    for i, ids in enumerate(encoded):
        sequence = [*special.before, *ids, *special.after]
        if len(sequence) > window or i in unread:
            field = name(i)
            raise ContextLengthExceeded(
                f"{field}: {len(sequence)} tokens, {special.overhead(pair=False)} of them the model's own; there is "
                f"room for {window}, and a query is never cut",
                field,
            )
        sequences.append(sequence)
    return sequences


def _groups(texts: list[str], request: ScoreRequest, images: RequestImages) -> Iterable[dict[str, list[int]]]:
    """For each distinct query its images: key → the documents that it is."""
    groups: dict[str, dict[str, list[int]]] = {text: {} for text in texts}
    for i in range(len(request.documents)):
        key = images.keys.get(len(texts) + i)
        if key is not None:
            text = texts[0] if len(texts) == 1 else texts[i]
            groups[text].setdefault(key, []).append(i)
    return groups.values()
