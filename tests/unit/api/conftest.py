"""Shared by the wire tests: limits, results as the pipeline makes them, and JSON as the gateway writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from serve_app.api.base import Adapter, Call, Limits, Meta
from serve_app.errors import PoolserveError
from serve_app.messages import ClassifyResult, EmbedResult, PipelineResult, ScoreResult, Served

LIMITS = Limits(max_documents=1000)


class Wire:
    """Calls adapters and renders results the way the gateway does."""

    limits = LIMITS

    def call(self, adapter: Adapter, body: Any) -> Call:
        return adapter(body, LIMITS)

    def refusal(self, adapter: Adapter, body: Any) -> PoolserveError:
        with pytest.raises(PoolserveError) as caught:
            adapter(body, LIMITS)
        return caught.value

    def answer(self, call: Call, result: PipelineResult) -> Any:
        rendered = call.render(result, Meta(request_id="req-1", created=1764000000))
        return orjson.loads(orjson.dumps(rendered, option=orjson.OPT_SERIALIZE_NUMPY))

    def served(self, truncated: Sequence[int] = ()) -> Served:
        return Served(model="m", version="7", prompt_tokens=12, truncated=truncated)

    def scores(self, *values: float, truncated: Sequence[int] = ()) -> ScoreResult:
        return ScoreResult(np.array(values, dtype=np.float32), self.served(truncated))

    def vectors(self, rows: Sequence[Sequence[float]], truncated: Sequence[int] = ()) -> EmbedResult:
        return EmbedResult(np.array(rows, dtype=np.float32), self.served(truncated))

    def classes(self, rows: Sequence[Sequence[float]], truncated: Sequence[int] = ()) -> ClassifyResult:
        labels = ("negative", "neutral", "positive")[: len(rows[0])]
        return ClassifyResult(np.array(rows, dtype=np.float32), labels, self.served(truncated))


@pytest.fixture(scope="session")
def wire() -> Wire:
    return Wire()


@pytest.fixture(scope="session")
def without() -> Callable[[Mapping[str, Any], str], dict[str, Any]]:
    """A body without one of its fields."""
    return lambda body, name: {key: value for key, value in body.items() if key != name}
