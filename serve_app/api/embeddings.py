"""Embeddings of texts and images: OpenAI's shape with Jina's and vLLM's extras, and TEI's /embed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, WithJsonSchema

from serve_app.api.base import Call, Limits, Meta, Refused, validate
from serve_app.api.fields import IMAGE_FORMS, InputsField, TeiFields, TextFields, TextsField, agreed, reader
from serve_app.api.packing import WIRE_TYPES, as_wire
from serve_app.api.rendering import answered, expect, listing, mark_truncated
from serve_app.api.wording import brief
from serve_app.errors import InvalidRequest
from serve_app.messages import EmbedRequest, EmbedResult, FloatArray, PipelineResult
from serve_app.vocabulary import Operation

ROUTE = "POST /v1/embeddings"

MAX_DIMENSIONS = 65_536

PROMPTS = {
    "retrieval.query": "query",
    "search_query": "query",
    "retrieval.passage": "document",
    "search_document": "document",
    "passage": "document",
}
"""Jina's and Cohere's names of what a text is for, as names of a model's prompts. Others pass unchanged."""


def _read_embedding_type(value: Any, field: str) -> str:
    """Jina sends a name or a list with one name in it."""
    name = value[0] if isinstance(value, list) and len(value) == 1 else value
    if name == "float" or name == "base64":
        return str(name)
    raise InvalidRequest(f"{field}: must be 'float' or 'base64'; got {brief(name)}", field)


EmbeddingType = Annotated[str | None, reader(_read_embedding_type), WithJsonSchema({"enum": ["float", "base64"]})]
Dimensions = Annotated[int | None, Field(ge=1, le=MAX_DIMENSIONS)]


class EmbeddingsBody(TextFields):
    """Body of /v1/embeddings."""

    input: InputsField = Field(
        description='One text or many (strings or `{"text": …}`), images where the model takes them, one list of token '
        f"ids or many. {IMAGE_FORMS} Token ids are taken as they are: special tokens included, no prompt added. "
        'An image that cannot be used keeps its place, with `"embedding": null`.'
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description='"float" (the default): numbers. "base64": the bytes of each vector, little-endian.'
    )
    embedding_type: EmbeddingType = Field(default=None, description="Jina's name of `encoding_format`.")
    embed_dtype: Literal["float32", "float16"] | None = Field(
        default=None,
        description='Number format inside base64: "float32" (the default) or "float16", half the bytes; vectors with a '
        "component over 65504 do not fit it and are refused.",
    )
    dimensions: Dimensions = Field(default=None, description="Keep the first N components, then normalise again.")
    normalize: bool | None = Field(default=None, description="Unit length; left out: as the model was made.")
    normalized: bool | None = Field(default=None, description="Jina's name of `normalize`.")
    use_activation: bool | None = Field(default=None, description="vLLM's name of `normalize`.")
    task: str | None = Field(
        default=None, description='What the texts are for: "retrieval.query" or "retrieval.passage" (Jina).'
    )
    input_type: str | None = Field(
        default=None, description='The same: "query", "document", "search_query" or "search_document" (Cohere).'
    )
    prompt_name: str | None = Field(default=None, description="The same, as the name of one of the model's prompts.")
    endianness: Annotated[Any, Refused("bytes are little-endian", ("little", "native"))] = None
    add_special_tokens: Annotated[Any, Refused("texts always get the model's special tokens", (True,))] = None
    late_chunking: Annotated[Any, Refused("each input gets its own vector", (False,))] = None
    return_multivector: Annotated[Any, Refused("each input gets one vector", (False,))] = None
    messages: Annotated[Any, Refused("send texts in 'input'")] = None

    def prompt(self) -> dict[str, str]:
        """The prompt as an EmbedRequest has it, with the caller's own field and word; {} when none was asked for."""
        words = {"task": self.task or None, "input_type": self.input_type or None, "prompt_name": self.prompt_name}
        sent = {field: word for field, word in words.items() if word is not None}
        # prompt_name is a name of the model's and no purpose: of the other words only `passage` means another name.
        known = {"task": PROMPTS, "input_type": PROMPTS, "prompt_name": {"passage": "document"}}
        prompt = agreed({field: known[field].get(word, word) for field, word in sent.items()})
        if prompt is None:
            return {}
        field, word = list(sent.items())[-1]
        return {"prompt": prompt, "prompt_field": field, "prompt_sent": word}


class TeiEmbedBody(TeiFields):
    """Body of /embed."""

    inputs: TextsField = Field(description="One text or many.")
    normalize: bool = Field(default=True, description="Unit length.")
    prompt_name: str | None = Field(default=None, description="Name of the model's prompt to put before each text.")
    dimensions: Dimensions = Field(default=None, description="Keep the first N components, then normalise again.")


def embeddings(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /v1/embeddings."""
    parsed = validate(EmbeddingsBody, body, ROUTE)
    limits.check(len(parsed.input), "input")
    limits.check_images(input=parsed.input)
    encoding = agreed({"encoding_format": parsed.encoding_format, "embedding_type": parsed.embedding_type}) or "float"
    dtype = parsed.embed_dtype or "float32"
    no_bytes = ("embed_dtype",) if encoding == "float" and dtype != "float32" else ()

    def render(result: PipelineResult, meta: Meta) -> dict[str, Any]:
        embedded = expect(result, EmbedResult)
        kept = answered(embedded.vectors, embedded.served.errors)
        data: list[dict[str, Any]] = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(encode(embedded.vectors, encoding, dtype))
        ]
        # A failed input keeps its place: clients pair inputs and vectors by position.
        for index in np.flatnonzero(~kept).tolist():
            data[index]["embedding"] = None
        mark_truncated(data, embedded.served.truncated)
        return listing(data, embedded.served, meta)

    request = EmbedRequest(
        inputs=parsed.input,
        dimensions=parsed.dimensions,
        normalize=agreed(
            {
                "normalize": parsed.normalize,
                "normalized": parsed.normalized,
                "use_activation": parsed.use_activation,
            }
        ),
        truncation=parsed.truncation(),
        **parsed.prompt(),
    )
    ignored = tuple(sorted(parsed.ignored + no_bytes))
    return Call(Operation.EMBED, parsed.model, request, len(parsed.input), render, ignored)


def embed_tei(body: Mapping[str, Any], limits: Limits) -> Call:
    """Adapter of /embed, answered by the bare vectors."""
    parsed = validate(TeiEmbedBody, body, "POST /embed")
    limits.check(len(parsed.inputs), "inputs")

    def render(result: PipelineResult, meta: Meta) -> FloatArray:
        vectors = expect(result, EmbedResult).vectors
        answered(vectors, ())  # texts only: each one has a vector, and the bare list has no place for errors
        return np.ascontiguousarray(vectors)

    request = EmbedRequest(
        inputs=parsed.inputs,
        input_field="inputs",
        prompt=parsed.prompt_name,
        dimensions=parsed.dimensions,
        normalize=parsed.normalize,
        truncation=parsed.truncation(),
    )
    return Call(Operation.EMBED, parsed.model, request, len(parsed.inputs), render, parsed.ignored)


def encode(vectors: FloatArray, encoding: str, dtype: str) -> list[FloatArray] | list[str]:
    """Each row as orjson can write it: a contiguous row, or base64 of its little-endian bytes.

    Args:
        vectors: float32 [inputs, dimensions].
        encoding: `float` or `base64`.
        dtype: `float32` or `float16`, for base64 only.

    Raises:
        InvalidRequest: a value does not fit float16.
    """
    if encoding == "float":
        return list(np.ascontiguousarray(vectors))
    packed = as_wire(vectors, WIRE_TYPES[dtype], "embed_dtype")
    return [base64.b64encode(row.tobytes()).decode("ascii") for row in packed]
