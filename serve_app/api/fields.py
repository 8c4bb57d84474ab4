"""Fields that several bodies share: what they are called, what they mean, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema

from serve_app.api.base import Body, IgnoredField, Refused
from serve_app.api.inputs import PairInputs, read_inputs, read_pair_inputs, read_text_inputs
from serve_app.api.texts import (
    read_documents,
    read_items,
    read_queries,
    read_query,
    read_text_documents,
    read_text_query,
    read_texts,
)
from serve_app.api.wording import brief, kind_of
from serve_app.errors import InvalidRequest, UnknownField
from serve_app.messages import ImageRef, Truncation

MAX_COUNT = 2**31 - 1
"""Upper bound of every count in a body; token counts end up in int32."""

IMAGE_FORMS = (
    'An image is `{"image": …}`, `{"image_url": …}` or `{"content": [one image_url part]}`, and in there an http(s) '
    "URL, a `data:` URL or bare base64; `detail` has no effect. A plain string is always a text, even one like a URL."
)
"""What the description of a field says that takes images."""

Schema = dict[str, Any]
T = TypeVar("T")


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


_STRING: Schema = {"type": "string"}
_TOKENS = _list_of({"type": "integer", "minimum": 0, "maximum": MAX_COUNT})
_PART = _object(type={"const": "text"}, text=_STRING)
_TEXT: Schema = {"anyOf": [_STRING, _object(text=_STRING), _object(content=_list_of(_PART))]}
_TEXTS: Schema = {"anyOf": [_list_of(_TEXT), _TEXT]}
_TEXT_INPUTS: Schema = {"anyOf": [_TEXT, _list_of(_TEXT), _TOKENS, _list_of(_TOKENS)]}
_IMAGE_URL: Schema = {"anyOf": [_object(url=_STRING), _STRING]}
_IMAGE_PARTS: Schema = {
    **_list_of(_object(type={"const": "image_url"}, image_url=_IMAGE_URL)),
    "maxItems": 1,
}
_ITEM: Schema = {
    "anyOf": [*_TEXT["anyOf"], _object(image=_STRING), _object(image_url=_IMAGE_URL), _object(content=_IMAGE_PARTS)]
}
_ITEMS: Schema = {"anyOf": [_list_of(_ITEM), _ITEM]}
_INPUTS: Schema = {"anyOf": [_ITEM, _list_of(_ITEM), _TOKENS, _list_of(_TOKENS)]}
_PAIR: Schema = {"type": "array", "items": _STRING, "minItems": 1, "maxItems": 2}
_PAIRS: Schema = {"anyOf": [_STRING, _PAIR, _list_of(_PAIR)]}
_TRUNCATE: Schema = {"anyOf": [{"type": "boolean"}, {"enum": ["NONE", "END"]}]}
_INSTRUCTION: Schema = {"type": "object", "properties": {"instruction": _STRING}, "additionalProperties": False}


def reader(read: Callable[[Any, str], Any]) -> PlainValidator:
    """A field that `read(value, field name)` checks and converts in pydantic's place; it raises CallerError itself."""

    def check(value: Any, info: ValidationInfo) -> Any:
        return read(value, info.field_name or "body")

    return PlainValidator(check)


def _read_truncate(value: Any, field: str) -> bool:
    if isinstance(value, bool):
        return value
    if value == "NONE" or value == "END":
        return bool(value == "END")
    if value == "START":
        raise UnknownField(f"{field}: 'START' is not honoured: texts are cut at their end", field)
    raise InvalidRequest(f"{field}: must be true, false, 'NONE' or 'END'; got {brief(value)}", field)


def _read_window(value: Any, field: str) -> int:
    if type(value) is not int or value == 0 or not -1 <= value <= MAX_COUNT:
        raise InvalidRequest(f"{field}: must be -1 (the model's window) or at least 1; got {brief(value)}", field)
    return value


def _read_template_arguments(value: Any, field: str) -> str | None:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f'{field}: must be {{"instruction": …}}; got {kind_of(value)}', field)
    for key in value:
        if key != "instruction":
            raise UnknownField(f"{field}: only 'instruction' is honoured; got {brief(key)}", field)
    instruction = value.get("instruction")
    if instruction is not None and not isinstance(instruction, str):
        raise InvalidRequest(f"{field}.instruction: must be a string; got {kind_of(instruction)}", field)
    return instruction


QueryField = Annotated[str | ImageRef, reader(read_query), WithJsonSchema(_ITEM)]
OptionalQueriesField = Annotated[list[str | ImageRef] | None, reader(read_queries), WithJsonSchema(_ITEMS)]
OptionalItemsField = Annotated[list[str | ImageRef] | None, reader(read_items), WithJsonSchema(_ITEMS)]
DocumentsField = Annotated[list[str | ImageRef], reader(read_documents), WithJsonSchema(_ITEMS)]
InputsField = Annotated[list[str | list[int] | ImageRef], reader(read_inputs), WithJsonSchema(_INPUTS)]
TextQueryField = Annotated[str, reader(read_text_query), WithJsonSchema(_TEXT)]
TextsField = Annotated[list[str], reader(read_texts), WithJsonSchema(_TEXTS)]
TextDocumentsField = Annotated[list[str], reader(read_text_documents), WithJsonSchema(_TEXTS)]
TextInputsField = Annotated[list[str | list[int]], reader(read_text_inputs), WithJsonSchema(_TEXT_INPUTS)]
PairInputsField = Annotated[PairInputs, reader(read_pair_inputs), WithJsonSchema(_PAIRS)]
TruncateField = Annotated[bool, reader(_read_truncate), WithJsonSchema(_TRUNCATE)]
WindowField = Annotated[int | None, reader(_read_window), WithJsonSchema({"type": "integer", "minimum": -1})]
TemplateField = Annotated[str | None, reader(_read_template_arguments), WithJsonSchema(_INSTRUCTION)]


class ClientFields(Body):
    """Fields that clients and gateways add for their own bookkeeping."""

    user: IgnoredField = None
    priority: IgnoredField = None
    request_id: IgnoredField = None
    cache_salt: IgnoredField = None
    metadata: IgnoredField = None
    client_name: IgnoredField = None


class TextFields(ClientFields):
    """How texts become tokens, in the words of vLLM and of Cohere."""

    truncate: TruncateField = Field(
        default=True,
        description='Cut a text that is too long at its end (true, "END"), or refuse it (false, "NONE"). '
        "A query is never cut, and an item that was cut says so.",
    )
    truncate_prompt_tokens: WindowField = Field(
        default=None, description="Tokens of the whole input, special tokens included, that are read; -1: the window."
    )
    truncation_side: Annotated[Any, Refused("texts are cut at their end", ("right",))] = None
    padding: Annotated[Any, Refused("inputs are never padded", ("do_not_pad",))] = None
    mm_processor_kwargs: Annotated[Any, Refused("images are prepared as the model's checkpoint says", ({},))] = None

    def truncation(self, max_document_tokens: int | None = None) -> Truncation:
        window = self.truncate_prompt_tokens
        return Truncation(self.truncate, max_document_tokens, None if window == -1 else window)


class PairFields(TextFields):
    """What rerank and score have in common."""

    max_tokens_per_doc: int | None = Field(
        default=None,
        ge=0,
        le=MAX_COUNT,
        description="Tokens of each document's own text that are read, with `max_chunks_per_doc` of each of its "
        "pieces; 0: no limit.",
    )
    max_tokens_per_query: Annotated[Any, Refused("a query is never cut", (0,))] = None
    instruction: str | None = Field(
        default=None,
        description="Replaces the default instruction in the template of an LLM reranker. Other models have no use for "
        "it, and `X-Ignored-Fields` says so.",
    )
    chat_template_kwargs: TemplateField = Field(
        default=None, description='`{"instruction": …}`, the same as `instruction`.'
    )

    def truncation(self, max_document_tokens: int | None = None) -> Truncation:
        return super().truncation(max_document_tokens or self.max_tokens_per_doc or None)

    def instructed(self) -> dict[str, Any]:
        """The instruction as a ScoreRequest has it, with the names under which it was sent; {} when it was not."""
        sent = {"instruction": self.instruction, "chat_template_kwargs": self.chat_template_kwargs}
        chosen = agreed(sent)
        names = tuple(sorted(name for name, value in sent.items() if value is not None))
        return {} if chosen is None else {"instruction": chosen, "instruction_fields": names}


class RawScoresFields(Body):
    """Logits or activated scores, under each of its names."""

    raw_scores: bool | None = Field(
        default=None, description="Logits instead of scores after the model's activation (default: false)."
    )
    use_activation: bool | None = Field(default=None, description="vLLM's name: false is `raw_scores: true`.")
    activation: bool | None = Field(default=None, description="vLLM's older name of `use_activation`.")

    def wants_raw_scores(self) -> bool:
        activated = agreed(
            {
                "use_activation": self.use_activation,
                "activation": self.activation,
                "raw_scores": None if self.raw_scores is None else not self.raw_scores,
            }
        )
        return activated is False


class TeiFields(Body):
    """What the bodies of text-embeddings-inference have in common; like there, a long text is refused by default."""

    truncate: TruncateField = Field(
        default=False, description="Cut a text that is too long at its end instead of refusing it."
    )
    truncation_direction: Annotated[Any, Refused("texts are cut at their end", ("right", "Right"))] = None

    def truncation(self) -> Truncation:
        return Truncation(enabled=self.truncate)


def agreed(named: Mapping[str, T | None]) -> T | None:
    """The value of fields that mean the same; None when none was sent, InvalidRequest when they disagree."""
    sent = {name: value for name, value in named.items() if value is not None}
    values = list(sent.values())
    if any(value != values[0] for value in values):
        raise InvalidRequest(f"{' and '.join(sent)} contradict each other", next(iter(sent)))
    return values[0] if values else None
