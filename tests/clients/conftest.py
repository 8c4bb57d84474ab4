"""Client libraries as their users install them, kept off the internet."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.cluster import Server

# Read by the libraries when they are imported, so before any test is.
os.environ.update(
    {
        "ANONYMIZED_TELEMETRY": "False",
        "DO_NOT_TRACK": "1",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "LANGCHAIN_TRACING_V2": "false",
        "LANGSMITH_TRACING": "false",
        "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
        "LITELLM_LOCAL_BLOG_POSTS": "True",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_OFFLINE_MODE": "True",
        "LITELLM_TELEMETRY": "False",
    }
)


@pytest.fixture(scope="module", autouse=True)
def elsewhere() -> Iterator[list[str]]:
    """No other host is found. The names that were looked up; none may be left when a module ends."""
    look_up = socket.getaddrinfo
    names: list[str] = []

    def local_only(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in (None, "localhost", "127.0.0.1", "::1"):
            return look_up(host, *args, **kwargs)
        names.append(name)
        raise socket.gaierror(socket.EAI_NONAME, f"{name} is not this server")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", local_only)
        for proxy in ("http_proxy", "https_proxy", "all_proxy"):
            patch.delenv(proxy, raising=False)
            patch.delenv(proxy.upper(), raising=False)
        yield names
    assert not names, f"a client looked up {names}"


@pytest.fixture(params=["minilm", "ce-mini"])
def rerank_model(request: pytest.FixtureRequest, server: Server) -> str:
    """An embedding model, ranking by cosine, and a cross-encoder."""
    name: str = request.param
    if name not in {model["id"] for model in httpx.get(server.url + "/v1/models").json()["data"]}:
        # The default configuration has both; only a server that somebody started by hand may lack one.
        assert server.process is None, f"the default configuration serves no {name}"
        pytest.skip(f"this server has no {name}")
    return name
