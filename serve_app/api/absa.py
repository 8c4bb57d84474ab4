"""Aspect-based sentiment: our own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, WithJsonSchema

from serve_app.api.base import Call, Limits, Meta, validate
from serve_app.api.fields import ClientFields, TextsField, TruncateField, reader
from serve_app.api.rendering import expect, failures, mark_truncated, usage
from serve_app.api.texts import filled_list, is_blank, string
from serve_app.errors import InternalError, InvalidRequest, TooLarge
from serve_app.messages import AbsaItem, AbsaRequest, AbsaResult, PipelineResult, Truncation
from serve_app.vocabulary import Operation

ROUTE = "POST /v1/absa"

MAX_ASPECTS = 64
"""Aspects of one request; a pair classifier reads every text once per aspect."""


def _read_aspects(value: Any, field: str) -> list[str]:
    """Names that are not blank, each once."""
    names = [string(name, f"{field}[{i}]") for i, name in enumerate(filled_list(value, field, "a list of strings"))]
    if len(names) > MAX_ASPECTS:
        raise TooLarge(f"{field}: {len(names)} items; a request may hold {MAX_ASPECTS} at most", field)
    for i, name in enumerate(names):
        if is_blank(name):
            raise InvalidRequest(f"{field}[{i}]: must not be empty", f"{field}[{i}]")
        if name in names[:i]:
            raise InvalidRequest(f"{field}[{i}]: is the same as {field}[{names.index(name)}]", f"{field}[{i}]")
    return names


AspectsField = Annotated[
    list[str] | None,
    reader(_read_aspects),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_ASPECTS}),
]


class AbsaBody(ClientFields):
    """Body of /v1/absa."""

    inputs: TextsField = Field(
        description='One text or many (strings or `{"text": …}`). A text that is longer than what the model reads at '
        "once is read in overlapping windows."
    )
    aspects: AspectsField = Field(
        default=None,
        description="Only these aspects. A token classifier's spans are filtered; a name that it does not know is an "
        "error, and so are aspects for a model that names none. A pair classifier needs them: it gives each one a "
        "span, which lies where the text names the aspect and is empty (0 to 0) where it does not.",
    )
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Spans of a lower score are left out; left out: as the model is set (0)."
    )
    truncate: TruncateField = Field(
        default=True,
        description='Cut a text at the end that has more windows than the model is set to read (true, "END"), or '
        'refuse it (false, "NONE").',
    )


def absa(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v1/absa."""
    parsed = validate(AbsaBody, body, ROUTE)
    limits.check(len(parsed.inputs), "inputs")

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        found = expect(result, AbsaResult)
        if len(found.items) != len(parsed.inputs):
            raise InternalError(f"the pipeline answered {len(found.items)} of {len(parsed.inputs)} inputs")
        data = [_item(index, item) for index, item in enumerate(found.items)]
        mark_truncated(data, found.served.truncated)
        return {
            "model": found.served.model,
            "model_version": found.served.version,
            "data": data,
            "usage": usage(found.served),
            "errors": failures(found.served.errors).get("errors", []),
        }

    request = AbsaRequest(
        inputs=parsed.inputs,
        aspects=parsed.aspects,
        threshold=parsed.threshold,
        truncation=Truncation(enabled=parsed.truncate),
    )
    return Call(Operation.ABSA, parsed.model, request, len(parsed.inputs), render, parsed.ignored)


def _item(index: int, item: AbsaItem) -> dict[str, Any]:
    return {
        "index": index,
        "sentiment": None
        if item.sentiment is None
        else {"label": item.sentiment[0], "score": np.float32(item.sentiment[1])},
        "spans": [
            {
                "start": span.start,
                "end": span.end,
                "text": span.text,
                "aspect": span.aspect,
                "polarity": span.polarity,
                "score": np.float32(span.score),  # written with a float32's digits
            }
            for span in item.spans
        ],
    }
