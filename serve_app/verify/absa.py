"""The reference's answers for aspect-based sentiment.

Weights, labels and heads are the checkpoint's. Windows, their overlap, how words get labels and the threshold are the
configuration's: no checkpoint knows them, they say what an answer is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from serve_app.messages import AbsaItem
from serve_app.settings import AbsaSettings
from serve_app.tasks.absa.labels import AbsaKind
from serve_app.verify.answers import Tick, Ticking
from serve_app.verify.inputs import AbsaLine, InputError, Inputs
from serve_app.verify.reading import Reading
from serve_app.vocabulary import DType


def reference_items(
    inputs: Inputs, reading: Reading, settings: AbsaSettings, dtype: DType, tick: Tick
) -> list[AbsaItem]:
    """One item per line.

    Raises:
        InputError: a pair classifier's line names no aspects.
    """
    from serve_app.tasks.absa.reference import reference_answers, reference_pair_answers

    scheme = reading.checkpoint.absa
    assert scheme is not None  # read_checkpoint reads it for task absa
    folder = reading.checkpoint.folder
    items: dict[int, AbsaItem] = {}
    for aspects, members in _by_aspects(inputs).items():
        texts = Ticking([text for _, text in members], tick)
        if scheme.kind is AbsaKind.PAIRS:
            if aspects is None:
                raise InputError(f"line {inputs.lines[members[0][0]].number}: this model needs aspects")
            answers = reference_pair_answers(folder, texts, aspects, dtype=dtype, max_length=reading.max_length)
        else:
            answers = reference_answers(
                folder,
                texts,
                dtype=dtype,
                max_length=reading.max_length,
                stride=settings.stride,
                aggregation=settings.aggregation,
            )
        for (i, _), answer in zip(members, answers, strict=True):
            items[i] = _kept(answer.item, aspects, settings.threshold)
    return [items[i] for i in range(len(inputs.lines))]


def _by_aspects(inputs: Inputs) -> dict[tuple[str, ...] | None, list[tuple[int, str]]]:
    """(place among the lines, text) by the aspects asked for: the checkpoint is loaded once for each."""
    found: dict[tuple[str, ...] | None, list[tuple[int, str]]] = {}
    for i, line in enumerate(inputs.lines):
        assert isinstance(line.content, AbsaLine)
        aspects = None if line.content.aspects is None else tuple(line.content.aspects)
        found.setdefault(aspects, []).append((i, line.content.text))
    return found


def _kept(item: AbsaItem, aspects: Sequence[str] | None, threshold: float) -> AbsaItem:
    wanted = None if aspects is None else {_folded(aspect) for aspect in aspects}
    spans = [
        span
        for span in item.spans
        if span.score >= threshold and (wanted is None or span.aspect is None or _folded(span.aspect) in wanted)
    ]
    return replace(item, spans=spans)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().strip()
