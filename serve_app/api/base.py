"""The adapter's contract: a caller's JSON object in, a `Call` out; and the one place where bodies are validated.

Three kinds of fields, told apart by their annotation so that the check, the `X-Ignored-Fields` header and the OpenAPI
page cannot disagree: honoured (plain), `Ignored` (known elsewhere, cannot change a result), and `Refused` (known
elsewhere, would change the result, so any value but a harmless one is an error that names the field).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from serve_app.api.wording import brief, complaint, field_path, kind_of
from serve_app.errors import InvalidRequest, TooLarge, UnknownField
from serve_app.messages import ImageRef, PipelineRequest, PipelineResult
from serve_app.vocabulary import Operation


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold.

    Attributes:
        max_documents: documents, pairs or inputs.
        max_images: images, those among the queries included.
    """

    max_documents: int
    max_images: int = 200

    def check(self, count: int, field: str) -> None:
        """Raises TooLarge, naming the cap and the count, when a request holds too many."""
        if count > self.max_documents:
            raise TooLarge(f"{field}: {count} items; a request may hold {self.max_documents} at most", field)

    def check_images(self, **items: Sequence[Any]) -> None:
        """Raises TooLarge when a request's fields hold too many images together; items: what was read, by field."""
        counts = {field: count for field, found in items.items() if (count := list(map(type, found)).count(ImageRef))}
        total = sum(counts.values())
        if total > self.max_images:
            images = "1 image" if total == 1 else f"{total} images"
            raise TooLarge(
                f"{' and '.join(counts)}: {images}; a request may hold {self.max_images} at most", next(iter(counts))
            )


@dataclass(frozen=True, slots=True)
class Meta:
    """What an answer says about its request; created: unix seconds."""

    request_id: str
    created: int


@dataclass(frozen=True, slots=True)
class Call:
    """A request in our words, and how to put its result back into the caller's.

    Attributes:
        operation: what a model must be able to do to serve it.
        model: as the caller wrote it, "name" or "name@version"; None when left out.
        documents: admission cost.
        render: makes an object for `orjson.dumps(…, option=orjson.OPT_SERIALIZE_NUMPY)`.
        ignored: names of fields that were sent and have no effect, sorted.
    """

    operation: Operation
    model: str | None
    request: PipelineRequest
    documents: int
    render: Callable[[PipelineResult, Meta], Any]
    ignored: tuple[str, ...] = ()


Adapter = Callable[[Mapping[str, Any], Limits], Call]
"""Turns the JSON object that a caller sent into a Call. Raises CallerError and nothing else."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Marks a field that is accepted without effect."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "description": "Accepted without effect.", "x-accepted-without-effect": True}


@dataclass(frozen=True, slots=True)
class Refused:
    """Marks a field that other servers honour and we do not.

    Attributes:
        why: what we do instead, as the end of a sentence.
        harmless: values that ask for what we do anyway; accepted, and listed as ignored.
    """

    why: str
    harmless: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        # By type as well: False == 0 and True == 1 in Python, not in JSON.
        return any(type(value) is type(other) and value == other for other in self.harmless)

    @property
    def advice(self) -> str:
        if not self.harmless:
            return self.why
        return f"{self.why}; only {' or '.join(brief(value) for value in self.harmless)} is accepted"

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        extra = {"enum": list(self.harmless), "x-accepted-without-effect": True} if self.harmless else {"not": {}}
        return {**handler(schema), "description": f"Not honoured: {self.advice}.", **extra}


IgnoredField = Annotated[Any, Ignored()]


class Body(BaseModel):
    """Base of every request body: strict types (true is no number, "3" is none either), unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    ignored_fields: ClassVar[frozenset[str]] = frozenset()
    refused_fields: ClassVar[Mapping[str, Refused]] = {}

    model: str | None = Field(
        default=None,
        description='"name" (the routing table picks the version) or "name@version". '
        "May be left out where one model only serves, or is made for, the operation.",
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        marks = [(name, mark) for name, field in cls.model_fields.items() for mark in field.metadata]
        cls.ignored_fields = frozenset(name for name, mark in marks if isinstance(mark, Ignored))
        cls.refused_fields = {name: mark for name, mark in marks if isinstance(mark, Refused)}

    @property
    def ignored(self) -> tuple[str, ...]:
        """Fields the caller sent that have no effect, sorted."""
        return tuple(sorted(self.model_fields_set & (self.ignored_fields | self.refused_fields.keys())))

    @classmethod
    def honoured(cls) -> tuple[str, ...]:
        """Names of the fields that have an effect, in their order of declaration."""
        return tuple(name for name in cls.model_fields if name not in cls.ignored_fields | cls.refused_fields.keys())


B = TypeVar("B", bound=Body)


def validate(body_class: type[B], body: Mapping[str, Any], route: str) -> B:
    """Check a caller's JSON object against a body.

    Args:
        body: the JSON object; a null is the same as leaving the field out.
        route: as the caller knows it, e.g. `POST /v1/rerank`.

    Raises:
        UnknownField: a field nobody knows, or one that is known and not honoured.
        InvalidRequest: a value is missing or wrong; names the field and the index.
        TooLarge: from a field's own check.
    """
    if not isinstance(body, Mapping):
        raise InvalidRequest(f"the body of {route} must be a JSON object; got {kind_of(body)}")
    sent = {name: value for name, value in body.items() if value is not None}
    for name, value in sent.items():
        refused = body_class.refused_fields.get(name)
        if refused is not None and not refused.allows(value):
            raise UnknownField(f"field '{name}' of {route} is not honoured: {refused.advice}; got {brief(value)}", name)
        if name not in body_class.model_fields:
            known = ", ".join(body_class.honoured())
            raise UnknownField(f"unknown field {brief(name)} of {route}; known: {known}", field_path((name,)))
    try:
        return body_class.model_validate(sent)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = field_path(first["loc"])
        text = complaint(first["type"], first["msg"], first.get("ctx", {}), first["input"])
        raise InvalidRequest(f"{path}: {text}", path) from None
