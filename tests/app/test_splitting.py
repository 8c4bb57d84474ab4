"""Split requests through the whole application: every operation answers as it does unsplit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import Overloaded
from serve_app.messages import EngineBatch, EngineOutput, LoadedImages, MissingImages
from serve_app.settings import EngineReplicaSettings
from serve_app.splitting import SplittingEngine
from tests.app.conftest import App
from tests.parity.images import picture

WORDS = "the quick brown fox jumps over a lazy dog and 음식 was good".split()
URLS = [f"http://host/{i}.png" for i in range(7)]
DEAD = "http://host/dead"


class Replicas:
    """Engines that know nothing of each other; each part goes to the next one."""

    def __init__(self, engine: FakeEngine, count: int) -> None:
        self.engines = [FakeEngine(engine.settings, width=engine.width) for _ in range(count)]
        self.parts: list[EngineBatch] = []
        self.refuse: int | None = None

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        self.parts.append(batch)
        if len(self.parts) - 1 == self.refuse:
            raise Overloaded("no room now", None, 7.0)
        return await self.engines[len(self.parts) % len(self.engines)].run(batch, loaded)


def split_up(app: App, model: str, replicas: int = 4, documents: int = 1, images: int = 1) -> Replicas:
    """From now on the model's requests are split."""
    engines = Replicas(app.engines[model], replicas)
    settings = EngineReplicaSettings(num_replicas=replicas, split_documents=documents, split_images=images)
    app.backend.pipelines[f"{model}-1"]._engine = SplittingEngine(engines, settings)
    return engines


def _texts(seed: int, count: int, longest: int = 90) -> list[str]:
    pick = random.Random(seed)
    return [" ".join(pick.choices(WORDS, k=pick.randrange(1, longest))) for _ in range(count)]


def _pictures(*numbers: int) -> list[dict[str, str]]:
    return [{"image": DEAD if number < 0 else URLS[number]} for number in numbers]


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("ce", "/v1/rerank", {"query": "fox", "documents": _texts(1, 30)}),
    ("ce", "/v1/rerank", {"query": "fox", "documents": _texts(2, 30), "raw_scores": True, "return_documents": True}),
    ("ce", "/v1/rerank", {"query": "fox", "documents": _texts(3, 9, 200), "max_chunks_per_doc": 3, "top_n": 4}),
    ("ce", "/v1/rerank", {"query": "fox", "documents": [*_texts(4, 20, 9), "fox " * 200], "truncate": False}),
    ("ce", "/v1/score", {"text_1": "fox", "text_2": _texts(5, 25)}),
    ("ce", "/v1/score", {"text_1": _texts(6, 20, 9), "text_2": _texts(7, 20)}),
    ("emb", "/v1/rerank", {"query": "fox", "documents": _texts(8, 25)}),
    ("emb", "/v1/score", {"text_1": _texts(9, 10, 9), "text_2": _texts(10, 10)}),
    ("emb", "/v1/embeddings", {"input": _texts(11, 25), "dimensions": 4}),
    ("clf", "/v1/classify", {"input": _texts(12, 25)}),
    ("absa", "/v1/absa", {"inputs": [*_texts(13, 12, 200), "", " "]}),
    ("absa", "/pooling", {"input": _texts(14, 12), "task": "token_classify"}),
    ("clip", "/v1/rerank", {"query": "red", "documents": _pictures(0, 1, 2, -1, 3, 0, 4, 5)}),
    ("clip", "/v1/embeddings", {"input": ["red", *_pictures(0, -1, 1), "blue", *_pictures(2, 2)]}),
    ("siglip", "/v1/score", {"text_1": ["red", "blue", "a"], "text_2": _pictures(0, 1, -1)}),
    ("fusion", "/v1/rerank", {"query": "red", "documents": _pictures(6, 5, -1, 4, 3, 3, 2, 1, 0)}),
    ("fusion", "/v1/score", {"text_1": ["red", "blue", "red", "a"], "text_2": _pictures(0, 1, -1, 0)}),
]


@pytest.mark.parametrize(("model", "path", "body"), BODIES, ids=[f"{i}-{b[0]}{b[1]}" for i, b in enumerate(BODIES)])
@pytest.mark.parametrize(("replicas", "size"), [(2, 1), (4, 3), (7, 1)])
async def test_any_operation_split_answers_as_unsplit(
    app: App, model: str, path: str, body: dict[str, Any], replicas: int, size: int
) -> None:
    app.loader.urls = {url: picture(i) for i, url in enumerate(URLS)}
    whole = await app.post(path, {"model": model, **body}, X_Request_Id="r")
    engines = split_up(app, model, replicas, documents=size)
    if (stage := app.backend.pipelines[f"{model}-1"].images) is not None:
        stage._vectors.clear()  # known vectors do not reach the engines
    split = await app.post(path, {"model": model, **body}, X_Request_Id="r")
    assert split.status_code == whole.status_code == (400 if body.get("truncate") is False else 200), whole.text
    assert _bare(split.json()) == _bare(whole.json())
    for name in ("x-truncated", "x-model-version"):
        assert split.headers.get(name) == whole.headers.get(name)
    if whole.status_code == 200:
        assert len(engines.parts) > 1
        stages = [part.split(";")[0] for part in split.headers["server-timing"].split(", ")]
        assert stages[-4:] == ["queue", "engine", "post", "total"]


def _bare(answer: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in {"id", "created", "created_at"}}


async def test_a_refused_part_refuses_the_request_and_ends_the_others(app: App) -> None:
    engines = split_up(app, "ce")
    engines.refuse = 2
    for engine in engines.engines:
        engine.delay_s = 60.0
    response = await app.post("/v1/rerank", {"model": "ce", "query": "fox", "documents": ["a fox"] * 20})
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert len(engines.parts) == 4
    assert all(engine.load().unfinished == 0 for engine in engines.engines)
    assert sum(engine.cancelled for engine in engines.engines) == 3


async def test_the_deadline_reaches_every_part(app: App) -> None:
    engines = split_up(app, "ce")
    for engine in engines.engines:
        engine.delay_s = 60.0
    body = {"model": "ce", "query": "fox", "documents": ["a fox"] * 20}
    response = await app.post("/v1/rerank", body, X_Request_Timeout_Ms="200")
    assert response.status_code == 504
    assert sum(engine.cancelled for engine in engines.engines) == 4
    assert all(engine.load().unfinished == 0 for engine in engines.engines)


async def test_images_that_one_engine_has_dropped_are_sent_again(app: App) -> None:
    app.loader.urls = {url: picture(i) for i, url in enumerate(URLS)}
    body = {"model": "fusion", "query": "red", "documents": _pictures(*range(7))}
    engines = split_up(app, "fusion")
    first = await app.post("/v1/rerank", body)
    held = [len(engine.held) for engine in engines.engines]
    assert max(held) < 7  # each was sent what its part needs
    engines.engines[1].held.clear()
    again = await app.post("/v1/rerank", body)
    assert again.json()["results"] == first.json()["results"]
    assert len(engines.parts) > 8
