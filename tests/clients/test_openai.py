"""OpenAI's SDK."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.clients.plain import DOCUMENTS, EMBEDDER, assert_same_vectors, vectors
from tests.cluster import Server


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    import openai

    return openai.OpenAI(api_key="test", base_url=f"{server.url}/v1", max_retries=0)


def _vectors(answer: Any) -> list[list[float]]:
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return [item.embedding for item in answer.data]


@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_embeddings(server: Server, client: Any, options: dict[str, Any]) -> None:
    """Without an encoding the SDK asks for base64 and decodes it."""
    answer = client.embeddings.create(model=EMBEDDER, input=DOCUMENTS, **options)
    assert_same_vectors(_vectors(answer), vectors(server, DOCUMENTS))
    assert answer.model == EMBEDDER
    assert answer.usage.total_tokens == answer.usage.prompt_tokens > len(DOCUMENTS)


def test_one_text(server: Server, client: Any) -> None:
    answer = client.embeddings.create(model=EMBEDDER, input=DOCUMENTS[0], user="someone")
    assert_same_vectors(_vectors(answer), vectors(server, DOCUMENTS[:1]))


def test_base64_as_it_is(server: Server, client: Any) -> None:
    """Asked for by name, the SDK hands it over undecoded."""
    import base64

    answer = client.embeddings.create(model=EMBEDDER, input=DOCUMENTS, encoding_format="base64")
    decoded = [np.frombuffer(base64.b64decode(item.embedding), "<f4") for item in answer.data]
    assert_same_vectors(decoded, vectors(server, DOCUMENTS))


def test_dimensions(server: Server, client: Any) -> None:
    answer = client.embeddings.create(model=EMBEDDER, input=DOCUMENTS, dimensions=64)
    whole = vectors(server, DOCUMENTS)[:, :64]
    assert_same_vectors(_vectors(answer), whole / np.linalg.norm(whole, axis=1, keepdims=True))


async def test_async(server: Server) -> None:
    import openai

    async with openai.AsyncOpenAI(api_key="test", base_url=f"{server.url}/v1", max_retries=0) as client:
        answer = await client.embeddings.create(model=EMBEDDER, input=DOCUMENTS)
    assert_same_vectors(_vectors(answer), vectors(server, DOCUMENTS))


def test_unknown_model(client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError, match=r"'nope' does not exist; there are: .*minilm") as caught:
        client.embeddings.create(model="nope", input=DOCUMENTS)
    assert caught.value.param == "model"


def test_wrong_value(client: Any) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="dimensions") as caught:
        client.embeddings.create(model=EMBEDDER, input=DOCUMENTS, dimensions=0)
    assert caught.value.param == "dimensions"


def test_models(server: Server, client: Any) -> None:
    models = {model.id: model for model in client.models.list()}
    assert models[EMBEDDER].object == "model"
    assert models[EMBEDDER].owned_by == "poolserve"
