"""Logits of tokens, of whole texts and of pairs to sentiment and spans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serve_app.errors import InternalError
from serve_app.messages import AbsaItem, AbsaRequest, EngineOutput, FloatArray, IntArray, Span
from serve_app.tasks.absa.build_input import chosen_aspects, is_silent, scheme_of
from serve_app.tasks.absa.labels import AbsaKind, AbsaScheme
from serve_app.tasks.absa.spans import find_spans
from serve_app.tasks.absa.terms import Terms
from serve_app.tasks.absa.windows import merge_windows
from serve_app.tasks.absa.words import make_units
from serve_app.tasks.activation import activate, finite
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.vocabulary import Activation


def postprocess(
    model: TextModel, request: AbsaRequest, built: ModelInput, output: EngineOutput
) -> tuple[AbsaItem, ...]:
    """One item per input.

    Sentiment is the second head's answer, and None for models without one: it is not made up from spans. Of a text in
    several windows it is the mean of the windows' probabilities, weighted by their tokens.

    Raises:
        InternalError: the engine's numbers do not fit the input, or are none.
    """
    scheme = scheme_of(model)
    threshold = model.settings.absa.threshold if request.threshold is None else request.threshold
    if scheme.kind is AbsaKind.PAIRS:
        items = _pairs(scheme, request, built, output)
    else:
        items = _texts(model, scheme, request, built, output)
    kept = chosen_aspects(scheme, request)
    return tuple(
        AbsaItem(
            item.sentiment,
            [span for span in item.spans if span.score >= threshold and (kept is None or span.aspect in kept)],
        )
        for item in items
    )


def _texts(
    model: TextModel, scheme: AbsaScheme, request: AbsaRequest, built: ModelInput, output: EngineOutput
) -> list[AbsaItem]:
    rows = _rows(scheme, built, output)
    owners = np.arange(len(rows)) if built.owners is None else built.owners
    first = np.searchsorted(owners, np.arange(len(request.inputs) + 1)).tolist()
    assert built.starts is not None
    starts = built.starts.tolist()
    special = model.tokenizer.single
    before, after = built.rows_before + len(special.before), len(special.after)
    items = []
    for i, text in enumerate(request.inputs):
        windows = rows[first[i] : first[i + 1]]
        if not windows:
            items.append(AbsaItem(None, ()))
            continue
        parts = [window[before : len(window) - after, : len(scheme.tokens)] for window in windows]
        probabilities = activate(merge_windows(parts, starts[first[i] : first[i + 1]]), Activation.SOFTMAX)
        encoded = built.encoded[i]
        units = make_units(probabilities, encoded.words, encoded.offsets, model.settings.absa.aggregation)
        items.append(AbsaItem(_sentiment(scheme, windows), find_spans(text, units, scheme.tokens)))
    return items


def _rows(scheme: AbsaScheme, built: ModelInput, output: EngineOutput) -> list[FloatArray]:
    """Each sequence's rows."""
    sequences = len(built.offsets) - 1
    if not sequences:
        return []
    ends: IntArray = built.offsets + np.arange(sequences + 1, dtype=np.int32) * built.rows_before
    if output.values.shape != (ends[-1], scheme.width):
        raise InternalError(
            f"the engine gave {list(output.values.shape)} values for {ends[-1]} rows of {scheme.width} labels"
        )
    return np.split(finite(output.values), ends[1:-1])


def _sentiment(scheme: AbsaScheme, windows: Sequence[FloatArray]) -> tuple[str, float] | None:
    if not scheme.sentiment:
        return None
    logits = np.stack([window[0, : len(scheme.sentiment)] for window in windows])
    tokens = np.array([len(window) - 1 for window in windows], dtype=np.float32)
    probabilities = tokens @ activate(logits, Activation.SOFTMAX) / tokens.sum()
    best = int(probabilities.argmax())
    return scheme.sentiment[best], float(probabilities[best])


def _pairs(scheme: AbsaScheme, request: AbsaRequest, built: ModelInput, output: EngineOutput) -> list[AbsaItem]:
    """A span per aspect of which the model has an opinion, in the aspects' order. It lies where the text first names
    the aspect; an aspect that the text does not name gets an empty span at 0."""
    aspects = request.aspects or ()
    asked = [i for i, text in enumerate(request.inputs) if not is_silent(text)]
    if not asked:
        return [AbsaItem(None, ())] * len(request.inputs)
    if output.values.shape != (len(asked) * len(aspects), scheme.width):
        raise InternalError(f"the engine gave {list(output.values.shape)} values for {len(built.offsets) - 1} pairs")
    probabilities = activate(finite(output.values), Activation.SOFTMAX).reshape(len(asked), len(aspects), -1)
    spans: dict[int, list[Span]] = {}
    for i, rows in zip(asked, probabilities, strict=True):
        text = request.inputs[i]
        terms = Terms(text)
        spans[i] = []
        for aspect, row in zip(aspects, rows, strict=True):
            best = int(row.argmax())
            polarity = scheme.polarities[best]
            if polarity is not None:
                start, end = terms.find(aspect)
                spans[i].append(Span(start, end, text[start:end], aspect, polarity, float(row[best])))
    return [AbsaItem(None, spans.get(i, ())) for i in range(len(request.inputs))]
