"""The starvation benchmark against a server that answers texts and images."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from benchmarks import wire
from benchmarks.backends import UsageError
from benchmarks.cli import main
from benchmarks.starvation import Pass, StarvationOptions, bounds, points, summaries
from benchmarks.starvation_cli import only
from tests.unit.benchmarks.serving import Serving


class Fake:
    """Answers texts and images, and remembers the images."""

    def __init__(self) -> None:
        self.urls: list[str] = []

    async def rerank(self, request: web.Request) -> web.Response:
        body = wire.loads(await request.read())
        documents = body["documents"]
        if body["model"] == "pictures":
            self.urls += [document["image"] for document in documents]
            await asyncio.sleep(0.02)
        scored = [{"index": i, "relevance_score": 0.5} for i in range(len(documents))]
        return web.Response(body=wire.dumps({"results": scored}), headers={"Server-Timing": "engine;dur=3"})

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2**22)
        app.router.add_post("/rerank", self.rerank)
        return app


@pytest.fixture
def serving() -> Iterator[Callable[[web.Application], str]]:
    running: list[Serving] = []

    def start(app: web.Application) -> str:
        running.append(Serving(app))
        return running[-1].url

    yield start
    for each in running:
        each.end()


def test_texts_go_on_while_images_flood(serving: Callable[[web.Application], str], tmp_path: Path) -> None:
    fake = Fake()
    words = ["starvation", "--backend", f"ours={serving(fake.application())}", "--text-model", "texts"]
    words += ["--image-model", "pictures", "--rate", "40", "--phases", "0.6", "0.8", "0.6", "--settle", "0.1"]
    words += ["--images", "3", "--flood", "2", "--documents", "2", "--large-share", "0", "--name", "small"]
    assert main([*words, "--results-dir", str(tmp_path)]) == 0
    data = next(iter(tmp_path.glob("*.json")))
    result = json.loads(data.read_text())
    assert result["valid"]
    assert len(set(fake.urls)) == len(fake.urls) > 6, "every image is new"
    found = {s["phase"]: s for s in result["summary"]}
    assert list(found) == ["before", "flood", "after"]
    assert all(s["requests"] > 0 for s in found.values())
    assert found["flood"]["engine_ms"]["median"] == 3
    assert found["before"]["against"]["median"] == 1
    assert result["passes"][0]["images_per_s"] > 0
    assert data.with_suffix(".html").read_text().count("<polyline") == 1, "there is no GPU to draw"
    assert "| ours | flood |" in data.with_suffix(".md").read_text()


def options(**changes: Any) -> StarvationOptions:
    values: dict[str, Any] = {"before": 10.0, "flood_s": 20.0, "after": 10.0, "settle": 2.0, "bin_s": 5.0}
    return StarvationOptions("n", [], "t", "i", (), "s", **(values | changes))


def test_phases_are_told_apart_and_compared_within_a_round() -> None:
    o = options()
    assert bounds(o) == {"before": (2, 10), "flood": (12, 30), "after": (32, 40)}

    def one(number: int, slow: float) -> Pass:
        times = [(t + 0.5, slow if 10 <= t < 30 else 0.01, 5.0) for t in range(40)]
        return Pass("one process", number, times, [(15.0, 40.0), (20.0, 60.0), (5.0, 90.0)], 0, {}, 3.0)

    found = {s.phase: s for s in summaries(o, [one(0, 0.02), one(1, 0.04), one(2, 0.08)])}
    assert found["flood"].against.median == pytest.approx(4)
    assert (found["flood"].against.low, found["flood"].against.high) == (pytest.approx(2), pytest.approx(8))
    assert found["after"].against.median == pytest.approx(1)
    assert found["flood"].gpu_busy.median == 50
    assert found["before"].gpu_busy.median == 90
    assert [when for when, _ in points(o, one(0, 0.02).texts)] == [2.5 + 5 * i for i in range(8)]


def test_a_configuration_without_the_models_is_refused() -> None:
    config = {"applications": [{"import_path": "serve_app.app:model", "args": {"name": "a", "task": "rerank"}}]}
    assert only(config, "rerank", None, "--text-model") == "a"
    with pytest.raises(UsageError, match=r"--image-model: 0 models fit image_rank; the configuration has a \(rerank\)"):
        only(config, "image_rank", None, "--image-model")
