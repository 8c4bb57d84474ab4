"""The server that the starvation benchmark compares with, in this process and with stand-in engines."""

from __future__ import annotations

import base64
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from PIL import Image

from benchmarks.one_process import start
from serve_app.check import check_file
from serve_app.frontend import Frontend
from serve_app.settings import ImageLoaderSettings

CONFIG = Path(__file__).parents[2] / "benchmarks" / "starvation.yaml"


def picture(colour: tuple[int, int, int]) -> str:
    """A PNG, as base64."""
    written = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(written, "PNG")
    return base64.b64encode(written.getvalue()).decode()


async def test_it_answers_texts_and_images_from_poolserves_own_configuration() -> None:
    report = check_file(CONFIG)
    assert not report.problems
    assert report.gateway is not None
    assert report.routing is not None
    with ThreadPoolExecutor(2) as executor:
        pipelines, engines = await start(report.models, ImageLoaderSettings(), executor)
        frontend = Frontend(report.gateway, pipelines)
        frontend.reconfigure(report.routing)
        transport = httpx.ASGITransport(frontend.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            assert (await client.get("/ready")).status_code == 200
            texts = await client.post("/rerank", json={"model": "ce-mini", "query": "shoes", "documents": ["a", "b"]})
            documents = [{"image": picture((250, 10, 10))}, {"image": picture((10, 60, 10))}]
            images = await client.post("/rerank", json={"model": "fusion-mini", "query": "red", "documents": documents})
            missing = await client.post("/rerank", json={"model": "other", "query": "red", "documents": ["a"]})
        for engine in engines:
            await engine.shutdown()
        assert pipelines.loader is not None
        await pipelines.loader.close()
    assert texts.status_code == images.status_code == 200
    assert len(texts.json()["results"]) == 2
    scores = {result["relevance_score"] for result in images.json()["results"]}
    assert len(scores) == 2, "the pictures were decoded"
    assert missing.status_code == 404
