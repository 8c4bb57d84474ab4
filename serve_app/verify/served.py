"""The served side: a running server over HTTP, or the pipeline with an engine in this process. Both take the same
messages, so that what is asked and how the answers are read is written once (asking.py).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import httpx
import numpy as np

from serve_app import __version__
from serve_app.errors import InvalidRequest
from serve_app.messages import (
    AbsaItem,
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    Context,
    EmbedRequest,
    EmbedResult,
    ImageRef,
    ItemError,
    PipelineRequest,
    PipelineResult,
    ScoreRequest,
    ScoreResult,
    Span,
)
from serve_app.messages import Served as ServedBy
from serve_app.pipeline import Pipeline
from serve_app.settings import ImageLoaderSettings, ModelSettings

TIMEOUT_S = 300.0
"""Time for one request; engines on CPU are slow."""


class CannotServe(RuntimeError):
    """The served side does not work at all, or is not what was to be verified."""


class Served(Protocol):
    """Whatever serves the model.

    Attributes:
        place: where, for the report.
        versions: of the libraries that serve.
    """

    place: str
    versions: Mapping[str, str]

    def run(self, request: PipelineRequest) -> PipelineResult:
        """Answers one request.

        Raises:
            CallerError: this request is refused; others may not be.
            CannotServe, ServerError: there is no point in going on.
        """
        ...


class LocalServed:
    """A pipeline in this process, driven from synchronous code.

    Args:
        runner: of the event loop that the pipeline's engine lives in.
        pipeline: the model's.
        place: for the report.
    """

    def __init__(self, runner: asyncio.Runner, pipeline: Pipeline, place: str, versions: Mapping[str, str]) -> None:
        self._runner = runner
        self._pipeline = pipeline
        self.place = place
        self.versions = versions

    def run(self, request: PipelineRequest) -> PipelineResult:
        """See `Served.run`."""
        return self._runner.run(self._pipeline.run(Context("verify", time.time() + TIMEOUT_S, "verify"), request))


@contextlib.contextmanager
def in_this_process(settings: ModelSettings, images: ImageLoaderSettings) -> Iterator[LocalServed]:
    """Starts the model's engine without Ray, and ends it.

    Args:
        settings: the model's.
        images: limits of the ImageLoader; nothing is fetched, pictures come as bytes.

    Raises:
        CannotServe: the engine does not start.
    """
    from serve_app.engine.factory import engine_of
    from serve_app.engine.vllm_options import platform_version
    from serve_app.media.fetch import Fetcher
    from serve_app.media.loader import ImageLoader
    from serve_app.tasks.model import load_text_model

    model = load_text_model(settings)
    engine = engine_of(settings, model.checkpoint)
    versions = {"poolserve": __version__, "vllm": platform_version()}
    with asyncio.Runner() as runner, ThreadPoolExecutor(1, "verify") as executor:

        async def loader() -> ImageLoader:
            return ImageLoader(images, Fetcher(images), executor)

        try:
            try:
                runner.run(engine.start())
            except Exception as error:
                raise CannotServe(f"the engine does not start: {type(error).__name__}: {str(error)[:300]}") from error
            loading = runner.run(loader())
            yield LocalServed(runner, Pipeline(model, engine, executor, loading), "an engine in this process", versions)
            runner.run(loading.close())
        finally:
            runner.run(engine.shutdown())


class HttpServed:
    """A running server.

    Args:
        client: with the server's base URL, and its key if it wants one.
        settings: of the model as the configuration file has it; the server must know its name and version.

    Raises:
        CannotServe: it cannot be reached, or does not serve the model.
    """

    def __init__(self, client: httpx.Client, settings: ModelSettings) -> None:
        self._client = client
        self._model = f"{settings.name}@{settings.version}"
        self.place = str(client.base_url)
        try:
            versions = self._send("GET", "/version")
            self.versions: Mapping[str, str] = {str(name): str(version) for name, version in versions.items()}
            models = self._send("GET", "/v1/models")["data"]
            found = next((m for m in models if (m["id"], m["version"]) == (settings.name, settings.version)), None)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CannotServe(f"{self.place} is no server of this package: {type(error).__name__}") from error
        if found is None:
            known = ", ".join(f"{model['id']}@{model['version']}" for model in models)
            raise CannotServe(f"{self.place} does not serve {self._model}; it serves {known or 'nothing'}")
        if found["task"] != settings.task:
            raise CannotServe(f"{self.place} serves {self._model} for task {found['task']}, not {settings.task}")

    def run(self, request: PipelineRequest) -> PipelineResult:
        """See `Served.run`."""
        match request:
            case ScoreRequest():
                return self._score(request)
            case EmbedRequest():
                return self._embed(request)
            case ClassifyRequest():
                return self._classify(request)
            case AbsaRequest():
                return self._absa(request)
            case _:
                raise TypeError(f"verify does not send {type(request).__name__}")

    def _score(self, request: ScoreRequest) -> ScoreResult:
        """Scores come from /v1/score: in the order of the documents, and pairs one to one."""
        answer = self._send(
            "POST",
            "/v1/score",
            queries=_items(request.queries),
            documents=_items(request.documents),
            raw_scores=request.raw_scores,
            instruction=request.instruction,
        )
        scores = np.full(len(request.documents), np.nan, dtype=np.float32)
        for item in answer["data"]:
            scores[item["index"]] = item["score"]
        return ScoreResult(scores, _served(answer, answer["data"]))

    def _embed(self, request: EmbedRequest) -> EmbedResult:
        answer = self._send(
            "POST",
            "/v1/embeddings",
            input=_items(request.inputs),
            prompt_name=request.prompt,
            encoding_format="base64",
        )
        vectors = [
            np.frombuffer(base64.b64decode(item["embedding"]), "<f4") if item["embedding"] is not None else None
            for item in answer["data"]
        ]
        width = next((len(vector) for vector in vectors if vector is not None), 0)
        missing = np.full(width, np.nan, dtype=np.float32)
        rows = np.stack([missing if vector is None else vector for vector in vectors]).astype(np.float32)
        return EmbedResult(rows, _served(answer, answer["data"]))

    def _classify(self, request: ClassifyRequest) -> ClassifyResult:
        if any(isinstance(item, tuple) for item in request.inputs):
            return self._classify_pairs(request)
        inputs = list(request.inputs)
        answer = self._send("POST", "/v1/classify", input=inputs, raw_scores=request.raw_scores)
        scores = np.array([item["probs"] for item in answer["data"]], dtype=np.float32)
        return ClassifyResult(scores, tuple(answer["labels"]), _served(answer, answer["data"]))

    def _classify_pairs(self, request: ClassifyRequest) -> ClassifyResult:
        """/predict is the one route that takes pairs; its rows are sorted by score, so they are read by label."""
        inputs = [list(item) for item in request.inputs]
        rows = self._send("POST", "/predict", inputs=inputs, raw_scores=request.raw_scores, truncate=True)
        labels = tuple(sorted(str(entry["label"]) for entry in rows[0]))
        scores = np.array(
            [[{entry["label"]: entry["score"] for entry in row}[label] for label in labels] for row in rows],
            dtype=np.float32,
        )
        name, _, version = self._model.partition("@")
        return ClassifyResult(scores, labels, ServedBy(name, version, 0))

    def _absa(self, request: AbsaRequest) -> AbsaResult:
        aspects = None if request.aspects is None else list(request.aspects)
        answer = self._send(
            "POST", "/v1/absa", inputs=list(request.inputs), aspects=aspects, threshold=request.threshold
        )
        items = []
        for entry in answer["data"]:
            sentiment = entry.get("sentiment")
            spans = [Span(**{name: span[name] for name in Span.__slots__}) for span in entry["spans"]]
            items.append(AbsaItem((sentiment["label"], sentiment["score"]) if sentiment else None, spans))
        return AbsaResult(items, _served(answer, answer["data"]))

    def _send(self, method: str, path: str, **fields: Any) -> Any:
        """The answer's JSON.

        Raises:
            InvalidRequest: the server refuses this body.
            CannotServe: anything else that is no answer.
        """
        body = {name: value for name, value in fields.items() if value is not None}
        if method == "POST":
            body["model"] = self._model
        headers = {"X-Request-Timeout-Ms": str(int(TIMEOUT_S * 1e3))}
        try:
            response = self._client.request(method, path, json=body if method == "POST" else None, headers=headers)
        except httpx.HTTPError as error:
            raise CannotServe(f"{self.place} cannot be reached: {type(error).__name__}") from error
        if response.status_code == 200:
            return response.json()
        message = _message(response)
        if response.status_code in (400, 413, 422):
            raise InvalidRequest(message)
        raise CannotServe(f"{self.place}{path} answered {response.status_code}: {message}")


def connect(url: str, settings: ModelSettings, key: str | None) -> HttpServed:
    """A client of a running server.

    Args:
        key: its API key; None: none.

    Raises:
        CannotServe: as in `HttpServed`.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return HttpServed(httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S + 10), settings)


def _items(items: Sequence[Any]) -> list[Any]:
    """Texts as they are, pictures as base64."""
    return [
        {"image": base64.b64encode(item.data or b"").decode()} if isinstance(item, ImageRef) else item for item in items
    ]


def _served(answer: Mapping[str, Any], data: Sequence[Mapping[str, Any]]) -> ServedBy:
    errors = [ItemError(error["index"], error["code"], error["message"]) for error in answer.get("errors", ())]
    return ServedBy(
        model=answer["model"],
        version=answer["model_version"],
        prompt_tokens=answer["usage"]["prompt_tokens"],
        truncated=tuple(item["index"] for item in data if item.get("truncated")),
        errors=errors,
    )


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200]
