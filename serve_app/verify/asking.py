"""Lines of inputs as requests to the served side, and its results as answers to lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import numpy as np

from serve_app.errors import CallerError
from serve_app.messages import (
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    EmbedRequest,
    EmbedResult,
    FloatArray,
    ImageRef,
    PipelineRequest,
    PipelineResult,
    ScoreRequest,
    ScoreResult,
)
from serve_app.verify.answers import Answer, Tick
from serve_app.verify.inputs import (
    AbsaLine,
    ClassifyLine,
    Content,
    ImageLine,
    ImageRankLine,
    Inputs,
    Line,
    PairLine,
    RerankLine,
    TextLine,
)
from serve_app.verify.served import Served

BATCH = 32
"""Lines of one request: what is served in a batch must equal the reference, which computes one by one."""


def size_of(content: Content) -> int:
    """Inputs of a line, for the progress bar."""
    match content:
        case RerankLine():
            return len(content.documents)
        case ImageRankLine():
            return len(content.images)
        case _:
            return 1


def served_answers(inputs: Inputs, served: Served, tick: Tick) -> list[Answer]:
    """Answers to every line, in their order. A line that is refused has its error instead.

    Raises:
        CannotServe, ServerError: there is no point in going on.
    """
    answers: list[Answer] = []
    for batch in _batches(inputs.lines):
        try:
            made = _ask(batch, inputs, served)
        except CallerError:
            made = [_ask_one(line, inputs, served) for line in batch]
        answers += made
        tick(sum(size_of(line.content) for line in batch))
    return answers


def _batches(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Neighbours that fit one request: a query with its documents is one by itself."""
    batch: list[Line] = []
    for line in lines:
        if batch and (len(batch) == BATCH or _kind(line.content) != _kind(batch[0].content)):
            yield batch
            batch = []
        batch.append(line)
    yield batch


def _kind(content: Content) -> object:
    match content:
        case RerankLine() | ImageRankLine():
            return id(content)
        case PairLine():
            return ("pair", content.instruction)
        case TextLine():
            return ("text", content.prompt)
        case ImageLine():
            return "image"
        case ClassifyLine():
            return ("classify", content.text_pair is None)
        case AbsaLine():
            return ("absa", None if content.aspects is None else tuple(content.aspects))
    assert_never(content)


def _ask_one(line: Line, inputs: Inputs, served: Served) -> Answer:
    try:
        return _ask([line], inputs, served)[0]
    except CallerError as error:
        return Answer(error=error.message)


def _ask(batch: Sequence[Line], inputs: Inputs, served: Served) -> list[Answer]:
    """Scores and classes are asked for twice: the logits, and what users get after the activation."""
    raw = served.run(_request(batch, inputs, raw=True))
    match raw:
        case AbsaResult():
            return [Answer(item=item, truncated=_cut(raw, i)) for i, item in enumerate(raw.items)]
        case EmbedResult():
            failed = {error.index: error.message for error in raw.served.errors}
            return [
                Answer(error=failed[i]) if i in failed else Answer(values=vector, truncated=_cut(raw, i))
                for i, vector in enumerate(raw.vectors)
            ]
        case ScoreResult() | ClassifyResult():
            activated = served.run(_request(batch, inputs, raw=False))
            assert isinstance(activated, type(raw))
            return _scored(batch, raw, raw.scores, activated.scores)
        case _:
            raise TypeError(f"the pipeline answered {type(raw).__name__}")


def _cut(result: PipelineResult, i: int) -> frozenset[int]:
    return frozenset({0} if i in set(result.served.truncated) else ())


def _scored(
    batch: Sequence[Line], raw: ScoreResult | ClassifyResult, logits: FloatArray, scores: FloatArray
) -> list[Answer]:
    if isinstance(raw, ClassifyResult):
        labels = tuple(raw.labels)
        return [
            Answer(values=logits[i], scores=scores[i], labels=labels, truncated=_cut(raw, i)) for i in range(len(batch))
        ]
    failed = {error.index: error.message for error in raw.served.errors}
    if isinstance(batch[0].content, (RerankLine, ImageRankLine)):
        cut = frozenset(raw.served.truncated)
        return [Answer(values=logits, scores=scores, truncated=cut, failed=failed)]
    return [
        Answer(values=np.array([logit]), scores=np.array([score]), truncated=_cut(raw, i))
        for i, (logit, score) in enumerate(zip(logits, scores, strict=True))
    ]


def _request(batch: Sequence[Line], inputs: Inputs, *, raw: bool) -> PipelineRequest:
    contents = [line.content for line in batch]
    match contents[0]:
        case RerankLine(query=query, documents=documents, instruction=instruction):
            return ScoreRequest([query], documents, instruction=instruction, raw_scores=raw)
        case ImageRankLine(query=query, images=images):
            pictures = [ImageRef(data=inputs.picture(path)) for path in images]
            return ScoreRequest([query], pictures, raw_scores=raw)
        case PairLine(instruction=instruction):
            pairs = [(c.text_1, c.text_2) for c in contents if isinstance(c, PairLine)]
            return ScoreRequest([a for a, _ in pairs], [b for _, b in pairs], instruction=instruction, raw_scores=raw)
        case TextLine(prompt=prompt):
            return EmbedRequest([c.text for c in contents if isinstance(c, TextLine)], prompt=prompt)
        case ImageLine():
            return EmbedRequest([ImageRef(data=inputs.picture(c.image)) for c in contents if isinstance(c, ImageLine)])
        case ClassifyLine():
            texts = [
                c.text if c.text_pair is None else (c.text, c.text_pair)
                for c in contents
                if isinstance(c, ClassifyLine)
            ]
            return ClassifyRequest(texts, raw_scores=raw)
        case AbsaLine(aspects=aspects):
            return AbsaRequest([c.text for c in contents if isinstance(c, AbsaLine)], aspects=aspects)
    assert_never(contents[0])
