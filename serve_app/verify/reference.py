"""The reference's answers: the task's own reference on what reading.py found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from serve_app.checkpoint import find_prompt
from serve_app.messages import ByteArray, FloatArray
from serve_app.settings import ModelSettings, TemplateSettings
from serve_app.tasks.activation import activate
from serve_app.verify.answers import Answer, Tick, Ticking
from serve_app.verify.inputs import (
    ClassifyLine,
    ImageLine,
    ImageRankLine,
    InputError,
    Inputs,
    Line,
    PairLine,
    RerankLine,
    TextLine,
)
from serve_app.verify.reading import Reading
from serve_app.vocabulary import DType, Task

T = TypeVar("T")


def reference_answers(
    settings: ModelSettings, inputs: Inputs, reading: Reading, dtype: DType, tick: Tick
) -> list[Answer]:
    """Answers to every line, in their order.

    Args:
        settings: for the task, and for what only they say about ABSA's answers (verify/absa.py).
        dtype: what Transformers computes in.

    Raises:
        InputError: Transformers cannot read an input, e.g. a query that leaves no room for a document.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # of loading weights; it would break ours
    match settings.task:
        case Task.RERANK:
            return _rerank(inputs, reading, dtype, tick)
        case Task.IMAGE_RANK:
            return _image_rank(inputs, reading, dtype, tick)
        case Task.EMBED:
            return _embed(inputs, reading, dtype, tick)
        case Task.CLASSIFY:
            return _classify(inputs, reading, dtype, tick)
        case Task.ABSA:
            from serve_app.verify.absa import reference_items

            return [Answer(item=item) for item in reference_items(inputs, reading, settings.absa, dtype, tick)]


def _rerank(inputs: Inputs, reading: Reading, dtype: DType, tick: Tick) -> list[Answer]:
    from serve_app.tasks.rerank.reference import reference_logits

    by_instruction: dict[str | None, list[tuple[int, str, str]]] = {}
    for i, line in enumerate(inputs.lines):
        content = line.content
        if isinstance(content, RerankLine):
            pairs = [(i, content.query, document) for document in content.documents]
        else:
            assert isinstance(content, PairLine)
            pairs = [(i, content.text_1, content.text_2)]
        by_instruction.setdefault(content.instruction, []).extend(pairs)
    logits: dict[int, FloatArray] = {}
    for instruction, items in by_instruction.items():
        owners = np.array([i for i, _, _ in items])
        values = _walk(
            inputs.lines,
            [i for i, _, _ in items],
            [(query, document) for _, query, document in items],
            tick,
            lambda pairs, told=instruction: reference_logits(  # type: ignore[misc]
                reading.checkpoint.folder,
                pairs,
                dtype=dtype,
                max_length=reading.max_length,
                template=_instructed(reading.template, told),
                answers=reading.answers,
            ),
        )
        logits |= {int(i): values[owners == i] for i in np.unique(owners)}
    return [_scored(logits[i], reading) for i in range(len(inputs.lines))]


def _instructed(template: TemplateSettings | None, instruction: str | None) -> TemplateSettings | None:
    if template is None or instruction is None:
        return template
    return template.model_copy(update={"instruction": instruction})


def _image_rank(inputs: Inputs, reading: Reading, dtype: DType, tick: Tick) -> list[Answer]:
    from serve_app.tasks.image_rank.reference import reference_logits

    owners: list[int] = []
    pairs: list[tuple[str, ByteArray]] = []
    prepare = _image_processor(reading)
    for i, line in enumerate(inputs.lines):
        assert isinstance(line.content, ImageRankLine)
        for path in line.content.images:
            owners.append(i)
            pairs.append((line.content.query, prepare(_picture(inputs.picture(path), path))))
    values = _walk(
        inputs.lines,
        owners,
        pairs,
        tick,
        lambda items: reference_logits(reading.checkpoint.folder, items, dtype=dtype, max_length=reading.max_length),
    )
    of = np.array(owners)
    return [_scored(values[of == i], reading) for i in range(len(inputs.lines))]


def _embed(inputs: Inputs, reading: Reading, dtype: DType, tick: Tick) -> list[Answer]:
    from serve_app.tasks.embed.image_reference import reference_image_vectors, reference_text_vectors
    from serve_app.tasks.embed.reference import reference_vectors

    folder = reading.checkpoint.folder
    texts, pictures = [], []
    for i, line in enumerate(inputs.lines):
        if isinstance(line.content, TextLine):
            prompt = find_prompt(reading.prompts, line.content.prompt) if line.content.prompt is not None else None
            texts.append((i, (prompt or "") + line.content.text))
        else:
            assert isinstance(line.content, ImageLine)
            pictures.append((i, _picture(inputs.picture(line.content.image), line.content.image)))
    vectors: dict[int, FloatArray] = {}

    def texts_of(items: Sequence[str]) -> FloatArray:
        if reading.pooling is None:
            return reference_text_vectors(folder, items, dtype=dtype, max_length=reading.max_length)
        return reference_vectors(
            folder,
            items,
            dtype=dtype,
            max_length=reading.max_length,
            pooling=reading.pooling,
            normalize=False,
            dense=reading.checkpoint.dense,
        )

    def pictures_of(items: Sequence[ByteArray]) -> FloatArray:
        return reference_image_vectors(folder, items, dtype=dtype)

    for kept, run in ((texts, texts_of), (pictures, pictures_of)):
        if kept:
            owners = [i for i, _ in kept]
            rows = _walk(inputs.lines, owners, [item for _, item in kept], tick, run)  # type: ignore[arg-type]
            vectors |= dict(zip(owners, rows, strict=True))
    if reading.normalize:
        vectors = {i: vector / max(float(np.linalg.norm(vector)), 1e-12) for i, vector in vectors.items()}
    return [Answer(values=vectors[i]) for i in range(len(inputs.lines))]


def _classify(inputs: Inputs, reading: Reading, dtype: DType, tick: Tick) -> list[Answer]:
    from transformers import AutoConfig

    from serve_app.tasks.classify.reference import reference_logits

    folder = reading.checkpoint.folder
    # Transformers' own reading of the names, not ours.
    names = AutoConfig.from_pretrained(folder).id2label
    labels = tuple(str(names[i]) for i in range(len(names)))
    texts: list[str | tuple[str, str]] = []
    for line in inputs.lines:
        assert isinstance(line.content, ClassifyLine)
        second = line.content.text_pair
        texts.append(line.content.text if second is None else (line.content.text, second))
    logits = _walk(
        inputs.lines,
        list(range(len(texts))),
        texts,
        tick,
        lambda items: reference_logits(folder, items, dtype=dtype, max_length=reading.max_length),
    )
    return [replace(_scored(row, reading), labels=labels) for row in logits]


def _scored(logits: FloatArray, reading: Reading) -> Answer:
    return Answer(values=logits, scores=activate(logits, reading.checkpoint.activation))


def _walk(
    lines: Sequence[Line],
    owners: Sequence[int],
    items: Sequence[T],
    tick: Tick,
    run: Callable[[Sequence[T]], FloatArray],
) -> FloatArray:
    """`run` on items that move the progress bar; what fails is named by the line that it belongs to."""
    ticking = Ticking(items, tick)
    try:
        return run(ticking)
    except Exception as error:
        if not ticking.started:  # the model or the tokenizer could not be loaded
            raise InputError(f"Transformers cannot load the checkpoint: {_brief(error)}") from error
        number = lines[owners[ticking.started - 1]].number
        raise InputError(f"line {number}: Transformers cannot read it: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def _picture(data: bytes, path: str) -> ByteArray:
    """uint8 RGB [height, width, 3] as Pillow itself reads it: turned as EXIF says, transparency on white."""
    import io

    from PIL import Image, ImageOps

    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        if image.has_transparency_data:
            rgba = image.convert("RGBA")
            image = Image.new("RGBA", rgba.size, "white")
            image.alpha_composite(rgba)
        return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{path}: not a picture ({type(error).__name__})") from None


def _image_processor(reading: Reading) -> Callable[[ByteArray], ByteArray]:
    """The checkpoint's own image processor up to the pixels: uint8 [height, width, 3] of the model's size."""
    from transformers import AutoImageProcessor

    processor: Any = AutoImageProcessor.from_pretrained(reading.checkpoint.folder, use_fast=False)

    def prepare(picture: ByteArray) -> ByteArray:
        made = processor(picture, do_rescale=False, do_normalize=False, return_tensors="np").pixel_values[0]
        return np.ascontiguousarray(made.transpose(1, 2, 0)).round().astype(np.uint8)

    return prepare
