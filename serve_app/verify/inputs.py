"""The file of inputs: JSON lines, one shape or two per task, and a first line that may say what the reference reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serve_app.settings import TemplateSettings
from serve_app.vocabulary import PoolingType


class InputError(ValueError):
    """The file of inputs, or what was said about the reference, is wrong; the message names the line and the field."""


class Shape(BaseModel):
    """Base of every line: strict types, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RerankLine(Shape):
    """A query and its documents. A file of these has agreement of the best documents."""

    query: str
    documents: list[str] = Field(min_length=1)
    instruction: str | None = None


class PairLine(Shape):
    """One pair to score."""

    text_1: str
    text_2: str
    instruction: str | None = None


class ImageRankLine(Shape):
    """A query and its pictures; paths are relative to the file of inputs."""

    query: str
    images: list[str] = Field(min_length=1)


class TextLine(Shape):
    """A text to embed. prompt: kind of the model's prompt before it (`query`, `document`); left out: none."""

    text: str
    prompt: str | None = None


class ImageLine(Shape):
    """A picture to embed; the path is relative to the file of inputs."""

    image: str


class ClassifyLine(Shape):
    """A text, or a pair of texts, to classify."""

    text: str
    text_pair: str | None = None


class AbsaLine(Shape):
    """A text whose aspects are looked for."""

    text: str
    aspects: list[str] | None = None


Content = RerankLine | PairLine | ImageRankLine | TextLine | ImageLine | ClassifyLine | AbsaLine

SHAPES: dict[str, dict[str, type[Content]]] = {
    "rerank": {"documents": RerankLine, "text_1": PairLine},
    "image_rank": {"images": ImageRankLine},
    "embed": {"text": TextLine, "image": ImageLine},
    "classify": {"text": ClassifyLine},
    "absa": {"text": AbsaLine},
}
"""By task: the field that tells a line's shape, and the shape."""


class ReferenceSettings(Shape):
    """What the reference reads where the checkpoint does not say it: the first line's `settings`, and options.

    Attributes:
        template: an LLM reranker's prompt: a known name, `none`, or spelled out as in the configuration.
        prompts: texts before an embedder's inputs, by kind.
        pooling: how an embedder's token states become a vector.
        max_length: tokens of one input, special tokens included.
    """

    template: str | TemplateSettings | None = None
    prompts: dict[str, str] | None = None
    pooling: PoolingType | None = Field(default=None, strict=False)
    max_length: int | None = Field(default=None, ge=2)

    def over(self, other: ReferenceSettings) -> ReferenceSettings:
        """These settings, and the other's where these say nothing."""
        return other.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of inputs. number: counted from 1."""

    number: int
    content: Content


@dataclass(frozen=True, slots=True)
class Inputs:
    """A file of inputs. settings: its first line's, or empty ones. folder: what picture paths are relative to."""

    settings: ReferenceSettings
    lines: tuple[Line, ...]
    folder: Path

    def picture(self, path: str) -> bytes:
        """A picture's bytes.

        Raises:
            InputError: it cannot be read.
        """
        try:
            return (self.folder / path).read_bytes()
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None


def read_inputs(path: Path, task: str) -> Inputs:
    """Reads the file.

    Raises:
        InputError: it cannot be read, holds no inputs, or a line is not of the task's shapes.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__})") from None
    settings = ReferenceSettings()
    lines: list[Line] = []
    # Not splitlines: a text may hold U+2028 and others that are line ends for Python and not for JSON.
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            value = json.loads(raw)
        except json.JSONDecodeError as error:
            raise InputError(f"{where}: not JSON: {error.msg} at character {error.pos}") from None
        if not isinstance(value, dict):
            raise InputError(f"{where}: must be a JSON object")
        if "settings" in value and not lines:
            if value.keys() != {"settings"}:
                raise InputError(f"{where}: a line of settings holds nothing else")
            settings = read_settings(value["settings"], where)
            continue
        lines.append(Line(number, _content(value, task, where)))
    if not lines:
        raise InputError(f"{path.name}: no inputs")
    return Inputs(settings, tuple(lines), path.resolve().parent)


def read_settings(value: Any, where: str) -> ReferenceSettings:
    """Settings of the reference out of JSON or YAML; `where` begins the message of an InputError."""
    try:
        return ReferenceSettings.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{where}: {_first(error)}") from None


def _content(value: Mapping[str, Any], task: str, where: str) -> Content:
    shapes = SHAPES[task]
    shape = next((shape for field, shape in shapes.items() if field in value), None)
    if shape is None:
        known = " or ".join(_described(shape) for shape in shapes.values())
        raise InputError(f"{where}: not an input of task {task}; those are {known}")
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        raise InputError(f"{where}: {_first(error)}") from None


def _described(shape: type[Content]) -> str:
    fields = [f'"{name}"' if field.is_required() else f'"{name}"?' for name, field in shape.model_fields.items()]
    return "{" + ", ".join(fields) + "}"


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return f"{field}: {'unknown field' if first['type'] == 'extra_forbidden' else first['msg']}"
