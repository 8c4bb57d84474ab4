"""The HTTP side gives what the pipeline itself gives, through the real front end; what is wrong is said."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import EngineDead, InvalidRequest
from serve_app.frontend import Frontend
from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader
from serve_app.messages import (
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    EmbedRequest,
    EmbedResult,
    ImageRef,
    PipelineRequest,
    ScoreRequest,
)
from serve_app.pipeline import Pipeline
from serve_app.settings import GatewaySettings, ImageLoaderSettings, ModelSettings, RoutingSettings
from serve_app.verify.asking import BATCH, served_answers
from serve_app.verify.inputs import ClassifyLine, Inputs, Line, PairLine, ReferenceSettings, RerankLine
from serve_app.verify.served import CannotServe, HttpServed, LocalServed
from tests.app.conftest import LocalBackend
from tests.checkpoints import Checkpoints
from tests.parity import images
from tests.unit.models import text_model


class InProcess(httpx.BaseTransport):
    """An ASGI application as a server for a synchronous client."""

    def __init__(self, runner: asyncio.Runner, application: Any) -> None:
        self._runner = runner
        self._transport = httpx.ASGITransport(application)
        self.requests: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        async def run() -> httpx.Response:
            response = await self._transport.handle_async_request(
                httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            )
            return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())

        self.requests.append(request.url.path)
        return self._runner.run(run())


class Both:
    """A model behind a front end, and its pipeline."""

    def __init__(self, runner: asyncio.Runner, models: dict[str, tuple[Path, str, int]]) -> None:
        self.runner = runner
        self.executor = ThreadPoolExecutor(1)
        self.backend = LocalBackend()
        self.settings: dict[str, ModelSettings] = {}
        loader = runner.run(self._loader())
        for name, (folder, task, width) in models.items():
            model = text_model(folder, task, name=name, max_model_len=24)
            engine = FakeEngine(model.settings, width=width or model.checkpoint.width)
            self.settings[name] = model.settings
            self.backend.pipelines[f"{name}-1"] = Pipeline(model, engine, self.executor, loader)
        table = {
            name: {"versions": {"1": {"application": f"{name}-1", "task": settings.task}}}
            for name, settings in self.settings.items()
        }
        frontend = Frontend(GatewaySettings(api_keys=("secret",)), self.backend, {"vllm": "9.9"})

        async def route() -> None:
            frontend.reconfigure(RoutingSettings.model_validate({"models": table}))

        runner.run(route())
        self.transport = InProcess(runner, frontend.app())

    async def _loader(self) -> ImageLoader:
        settings = ImageLoaderSettings()
        return ImageLoader(settings, Fetcher(settings), self.executor)

    def http(self, name: str, key: str = "secret", **changes: Any) -> HttpServed:
        headers = {"Authorization": f"Bearer {key}"}
        client = httpx.Client(transport=self.transport, base_url="http://server", headers=headers)
        return HttpServed(client, self.settings[name].model_copy(update=changes))

    def local(self, name: str) -> LocalServed:
        return LocalServed(self.runner, self.backend.pipelines[f"{name}-1"], "here", {})


@pytest.fixture
def both(checkpoints: Checkpoints, tmp_path: Path) -> Iterator[Both]:
    models = {
        "ce": (checkpoints.bert(), "rerank", 1),
        "clip": (images.clip(tmp_path), "embed", 8),
        "clf": (checkpoints.bert(3), "classify", 3),
        "absa": (checkpoints.two_heads(["O", "B-food-pos", "I-food-pos"], ["neg", "pos"]), "absa", 0),
    }
    with asyncio.Runner() as runner:
        made = Both(runner, models)
        yield made
        made.executor.shutdown()


PICTURES = [ImageRef(data=images.picture(seed)) for seed in range(2)]
LONG = "waterproof boots " * 30
REQUESTS: dict[str, tuple[str, PipelineRequest]] = {
    "query": ("ce", ScoreRequest(["fox"], ["a", "", LONG])),
    "raw": ("ce", ScoreRequest(["fox"], ["a", "b"], raw_scores=True)),
    "pairs": ("ce", ScoreRequest(["fox", "dog"], ["a", "b"])),
    "texts": ("clip", EmbedRequest(["red circle", "blue"], prompt="query")),
    "pictures": ("clip", EmbedRequest(PICTURES)),
    "classes": ("clf", ClassifyRequest(["good", LONG], raw_scores=True)),
    "probabilities": ("clf", ClassifyRequest(["good"])),
}


@pytest.mark.parametrize("case", REQUESTS)
def test_http_gives_what_the_pipeline_gives(both: Both, case: str) -> None:
    name, request = REQUESTS[case]
    got, want = both.http(name).run(request), both.local(name).run(request)
    assert type(got) is type(want)
    field = "vectors" if name == "clip" else "scores"
    np.testing.assert_allclose(getattr(got, field), getattr(want, field), rtol=1e-6)
    assert tuple(got.served.truncated) == tuple(want.served.truncated)
    assert case == "pictures" or got.served.prompt_tokens == want.served.prompt_tokens  # their vectors are kept
    assert getattr(got, "labels", None) == getattr(want, "labels", None)


def test_spans_and_sentiments_are_what_the_pipeline_gives(both: Both) -> None:
    request = AbsaRequest(["the food was good and the service was bad", "", "좋아요"])
    got, want = both.http("absa").run(request), both.local("absa").run(request)
    assert isinstance(got, AbsaResult)
    assert isinstance(want, AbsaResult)
    assert sum(len(item.spans) for item in want.items) > 0
    for theirs, ours in zip(got.items, want.items, strict=True):
        assert [replace(span, score=0) for span in theirs.spans] == [replace(span, score=0) for span in ours.spans]
        assert [span.score for span in theirs.spans] == pytest.approx([span.score for span in ours.spans], rel=1e-6)
        assert (theirs.sentiment or ("", 0))[0] == (ours.sentiment or ("", 0))[0]


def test_pairs_to_classify_are_read_by_label(both: Both) -> None:
    request = ClassifyRequest([("the food", LONG), ("a", "b")], raw_scores=True)
    got, want = both.http("clf").run(request), both.local("clf").run(request)
    columns = [got.labels.index(label) for label in want.labels]  # type: ignore[union-attr]
    np.testing.assert_allclose(got.scores[:, columns], want.scores, rtol=1e-6)  # type: ignore[union-attr]


def test_a_picture_that_cannot_be_used_is_an_error_of_its_own(both: Both) -> None:
    request = EmbedRequest([PICTURES[0], ImageRef(data=b"no picture")])
    for served in (both.http("clip"), both.local("clip")):
        result = served.run(request)
        assert isinstance(result, EmbedResult)
        assert [(error.index, str(error.code)) for error in result.served.errors] == [(1, "media_undecodable")]
        assert np.isnan(result.vectors[1]).all()
        assert np.isfinite(result.vectors[0]).all()


def test_a_refused_body_is_the_callers_error(both: Both) -> None:
    with pytest.raises(InvalidRequest, match=r"^input: 2000 items"):
        both.http("clip").run(EmbedRequest(["a"] * 2_000))


def test_what_is_wrong_with_a_server(both: Both) -> None:
    assert both.http("ce").versions["vllm"] == "9.9"
    with pytest.raises(CannotServe, match=r"does not serve ce@7; it serves ce@1, clip@1, clf@1, absa@1"):
        both.http("ce", version="7")
    with pytest.raises(CannotServe, match="for task rerank, not embed"):
        both.http("ce", task="embed")
    with pytest.raises(CannotServe, match="/version answered 401: a valid key is required"):
        both.http("ce", key="wrong")
    served = both.http("ce")
    both.backend.failures += [EngineDead("dead"), EngineDead("dead")]
    with pytest.raises(CannotServe, match="answered 503: dead"):
        served.run(ScoreRequest(["a"], ["b"]))
    other = httpx.Client(base_url="http://x", transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    with pytest.raises(CannotServe, match="is no server of this package"):
        HttpServed(other, both.settings["ce"])
    refused = httpx.Client(base_url="http://127.0.0.1:1")
    with pytest.raises(CannotServe, match="cannot be reached: ConnectError"):
        HttpServed(refused, both.settings["ce"])


def test_lines_are_asked_for_in_batches_and_one_refused_line_alone(both: Both) -> None:
    contents = [PairLine(text_1="fox", text_2=str(i)) for i in range(BATCH)]
    contents.append(PairLine(text_1=LONG, text_2="refused"))
    inputs = _inputs([*contents, RerankLine(query="fox", documents=["0", LONG])])
    served = both.http("ce")
    ticks: list[int] = []
    answers = served_answers(inputs, served, ticks.append)
    assert both.transport.requests.count("/v1/score") == 2 + 2 + 2  # a batch, a line tried twice, a line: raw and not
    assert sum(ticks) == BATCH + 3
    assert "leave no room" in (answers[BATCH].error or "")
    alone = both.local("ce").run(ScoreRequest(["fox"], ["5"], raw_scores=True))
    assert answers[5].values == pytest.approx(alone.scores)  # type: ignore[union-attr]
    assert answers[-1].truncated == {1}


def test_single_texts_and_pairs_do_not_share_a_request(both: Both) -> None:
    lines = [ClassifyLine(text="a"), ClassifyLine(text="a", text_pair="b"), ClassifyLine(text="c")]
    answers = served_answers(_inputs(lines), both.local("clf"), lambda done: None)
    assert [answer.error for answer in answers] == [None, None, None]
    assert answers[0].labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def _inputs(contents: list[Any]) -> Inputs:
    lines = tuple(Line(i + 1, content) for i, content in enumerate(contents))
    return Inputs(ReferenceSettings(), lines, Path())
