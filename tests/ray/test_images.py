"""Images through the running cluster: real downloads from a server with faults of its own, real engines."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from PIL import Image

from model_zoo.pictures import Group, Scene, draw
from serve_app.checkpoint import read_checkpoint
from serve_app.media.decode import decode
from serve_app.sources import local_directory
from serve_app.tasks.image_rank.reference import reference_logits
from serve_app.vocabulary import DType
from tests.cluster import Server
from tests.parity.conftest import assert_same_order
from tests.parity.images import picture
from tests.ray.picture_server import PictureServer
from tests.unit.models import settings_for

QUERY = "a red circle on the left"


@pytest.fixture(scope="module")
def pictures() -> Iterator[PictureServer]:
    with PictureServer() as served:
        served.pictures = {f"{i}.png": picture(i) for i in range(60)}
        yield served


def rerank(server: Server, urls: list[str], model: str = "fusion-mini", **more: Any) -> httpx.Response:
    body = {"model": model, "query": QUERY, "documents": [{"image": url} for url in urls], **more}
    return server.post("/v1/rerank", body)


def scores(response: httpx.Response) -> dict[int, float]:
    assert response.status_code == 200, response.text
    return {result["index"]: result["relevance_score"] for result in response.json()["results"]}


def test_the_served_ranking_is_the_references(server: Server, pictures: PictureServer) -> None:
    folder = local_directory("package:model_zoo/fusion-mini")
    assert folder is not None
    facts = read_checkpoint(folder, settings_for(folder, "image_rank", max_model_len=32)).images
    assert facts is not None
    pairs = [(QUERY, decode(pictures.pictures[f"{i}.png"], facts.spec, 10**8)) for i in range(40)]
    want = reference_logits(folder, pairs, dtype=DType.FLOAT32, max_length=32)
    urls = [f"{pictures.url}/{i}.png" for i in range(40)]
    cold = rerank(server, urls, raw_scores=True)
    assert {"fetch", "decode"} <= {part.split(";")[0] for part in cold.headers["server-timing"].split(", ")}
    warm = rerank(server, urls, raw_scores=True)
    assert "fetch" not in warm.headers["server-timing"]
    for response in (cold, warm):
        got = np.array([score for _, score in sorted(scores(response).items())])
        np.testing.assert_allclose(got, want, atol=1e-4)
        assert_same_order(got, want)
    assert all(pictures.hits[f"/{i}.png"] == 1 for i in range(40))


def test_twenty_slow_images_wait_together(server: Server, pictures: PictureServer) -> None:
    urls = [f"{pictures.url}/wait/{i}.png" for i in range(20)]
    pictures.most_at_once = 0
    response = rerank(server, urls)
    assert len(scores(response)) == 20
    assert pictures.most_at_once == 20  # 0.3 s in all, not 6


@pytest.mark.parametrize("model", ["fusion-mini", "clip-mini"])
def test_one_failing_image_of_twenty_costs_only_itself(server: Server, pictures: PictureServer, model: str) -> None:
    good = [f"{pictures.url}/{i}.png" for i in range(19)]
    alone = scores(rerank(server, good, model))
    faults = {
        f"{pictures.url}/404": "media_unreachable",
        f"{pictures.url}/500": "media_unreachable",
        f"{pictures.url}/html": "media_undecodable",
        f"{pictures.url}/truncated/1.png": "media_unreachable",
        "http://nowhere.invalid/x.png": "media_unreachable",
        "http://127.0.0.2/x.png": "media_forbidden",
        "http://169.254.169.254/latest/meta-data": "media_forbidden",
        "http://[::1]/x.png": "media_forbidden",
        "http://2130706434/x.png": "media_forbidden",
        "http://0.0.0.0/x.png": "media_forbidden",
        f"{pictures.url}/to/http://169.254.169.254/latest": "media_forbidden",
        "file:///etc/passwd": "media_forbidden",
        "ftp://127.0.0.1/x.png": "media_forbidden",
        "gopher://127.0.0.1/x": "media_forbidden",
        f"http://user:secret@{pictures.url.removeprefix('http://')}/1.png": "media_forbidden",
    }
    for url, code in faults.items():
        response = rerank(server, [*good[:5], url, *good[5:]], model)
        (error,) = response.json()["errors"]
        assert (error["index"], error["code"]) == (5, code), url
        assert "documents[5]" in error["message"]
        assert not any(word in response.text for word in ("secret", "169.254", "Traceback"))
        got = scores(response)
        assert [got[i if i < 5 else i + 1] for i in range(19)] == pytest.approx([alone[i] for i in range(19)], abs=1e-4)


def test_a_dead_host_costs_at_most_the_time_of_an_image(server: Server, pictures: PictureServer) -> None:
    urls = [f"{pictures.url}/never", *(f"{pictures.url}/{i}.png" for i in range(19))]
    response = rerank(server, urls)
    (error,) = response.json()["errors"]
    assert (error["index"], error["code"]) == (0, "media_unreachable")
    assert len(scores(response)) == 19
    fetch = next(part for part in response.headers["server-timing"].split(", ") if part.startswith("fetch"))
    assert float(fetch.partition("dur=")[2]) < 3_000  # the image's own deadline is 1,500


def test_a_dead_host_does_not_outlive_the_request(server: Server, pictures: PictureServer) -> None:
    body = {"model": "fusion-mini", "query": QUERY, "documents": [{"image": f"{pictures.url}/never"}]}
    response = server.post("/v1/rerank", body, X_Request_Timeout_Ms="300")
    assert response.status_code in {422, 504}


def test_small_and_large_pictures(server: Server) -> None:
    """1 x 1, 12 megapixels, and one over the limit: a score, or an error that names the limit."""
    encoded = []
    for size, kind in (((1, 1), "PNG"), ((4032, 3024), "JPEG"), ((9000, 9000), "PNG")):
        buffer = io.BytesIO()
        Image.new("RGB", size, (200, 30, 30)).save(buffer, kind)
        encoded.append(base64.b64encode(buffer.getvalue()).decode())
    response = rerank(server, encoded)
    assert sorted(scores(response)) == [0, 1]
    (error,) = response.json()["errors"]
    assert (error["index"], error["code"]) == (2, "media_too_large")


def test_eight_megabytes_of_images_in_a_request(server: Server) -> None:
    """Ray's own cap on messages between replicas is 4 MiB."""
    noise = np.random.default_rng(0).integers(0, 256, (8, 600, 600, 3), dtype=np.uint8)
    encoded = []
    for pixels in noise:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        encoded.append(base64.b64encode(buffer.getvalue()).decode())
    assert sum(map(len, encoded)) > 8 << 20
    assert len(scores(rerank(server, encoded))) == 8


def test_memory_is_flat_over_two_hundred_requests_of_twenty_images(server: Server, pictures: PictureServer) -> None:
    names = ("ImageLoader", "IOProcessor", "Gateway", "PoolingEngine", "EngineCore", "raylet", "plasma")

    def processes() -> dict[int, psutil.Process]:
        return {
            p.pid: p
            for p in psutil.process_iter(["name", "cmdline"])
            if any(name in f"{p.info['name']} {' '.join(p.info['cmdline'] or [])}" for name in names)
        }

    def memory() -> dict[int, float]:
        return {pid: p.memory_info().rss / 2**20 for pid, p in processes().items()}

    late: list[int] = []

    def load(first: int, count: int) -> None:
        """Every request brings 20 pictures that nobody has seen; four at a time."""

        async def rank(client: httpx.AsyncClient, i: int) -> httpx.Response:
            documents = [{"image": f"{pictures.url}/{j}.png?{i}"} for j in range(20)]
            body = {"model": ("fusion-mini", "clip-mini")[i % 2], "query": QUERY, "documents": documents}
            response = await client.post("/v1/rerank", json=body)
            if "took longer than" not in response.text:
                return response
            late.append(i)  # a busy machine is not what this test is about
            return await client.post("/v1/rerank", json=body)

        async def run() -> None:
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
                for start in range(first, first + count, 4):
                    for response in await asyncio.gather(*(rank(client, i) for i in range(start, start + 4))):
                        assert response.status_code == 200, response.text
                        answer = response.json()
                        assert answer.get("errors", []) == []
                        assert len(answer["results"]) == 20

        asyncio.run(run())

    served = dict(pictures.pictures)
    buffer = io.BytesIO()
    noise = np.random.default_rng(1).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    Image.fromarray(noise).save(buffer, "PNG", compress_level=0)

    class Fresh(dict[str, bytes]):
        """New bytes for every request, so that no cache helps: decoders ignore what follows a picture's end."""

        def get(self, key: str, default: Any = None) -> Any:
            return buffer.getvalue() + key.encode() if "?" in key else served.get(key, default)

    pictures.pictures = Fresh()
    try:
        load(0, 120)  # caches and allocators reach their size
        before = memory()
        load(120, 200)
        time.sleep(2)
        after = memory()
    finally:
        pictures.pictures = served
    grown = {pid: after[pid] - size for pid, size in before.items() if pid in after and after[pid] > size * 1.1 + 20}
    assert grown == {}
    assert len(late) <= 16  # of 320


def test_the_loader_is_replaced_when_it_dies(server: Server, pictures: PictureServer) -> None:
    if server.process is None:
        pytest.skip("the server was started by hand")
    for process in server.processes("images:ImageLoader"):
        process.kill()
    end = time.monotonic() + 90
    while time.monotonic() < end:
        response = rerank(server, [f"{pictures.url}/{i}.png?{time.monotonic()}" for i in range(50, 53)])
        assert response.status_code in {200, 503, 504}, response.text
        assert "Traceback" not in response.text
        if response.status_code == 200:
            return
        time.sleep(1)
    raise AssertionError("the image loader did not come back")


def test_text_requests_go_on_when_images_do_not(server: Server, pictures: PictureServer) -> None:
    """A flood of images that never come must not hold up texts: they use none of the image path."""

    async def both() -> list[int]:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            dead = [{"image": f"{pictures.url}/never"}] * 20
            body = {"model": "fusion-mini", "query": QUERY, "documents": dead}
            flood = [asyncio.ensure_future(client.post("/v1/rerank", json=body)) for _ in range(20)]
            text = {"model": "ce-mini", "query": "boots", "documents": ["red boots"]}
            statuses, meanwhile = [], 0
            for _ in range(10):
                statuses.append((await client.post("/v1/rerank", json=text)).status_code)
                meanwhile += not all(task.done() for task in flood)
            assert meanwhile >= 1
            assert {response.status_code for response in await asyncio.gather(*flood)} == {422}
            return statuses

    assert set(asyncio.run(both())) == {200}


@pytest.mark.parametrize("model", ["fusion-mini", "clip-mini"])
def test_red_circle_ranks_the_red_circle_first(server: Server, model: str) -> None:
    """Pictures drawn now; no training picture shows a red circle."""
    things = [("square", "blue"), ("circle", "red"), ("circle", "green"), ("star", "red"), ("triangle", "yellow")]
    documents = []
    for seed, (shape, colour) in enumerate(things, start=10_000):
        buffer = io.BytesIO()
        draw(Scene((Group(shape, colour, "large", ("centre",)),), seed=seed)).save(buffer, "PNG")
        documents.append({"image": base64.b64encode(buffer.getvalue()).decode()})
    for query, first in (("red circle", 1), ("a blue square", 0), ("yellow triangle", 4)):
        answer = server.post("/v1/rerank", {"model": model, "query": query, "documents": documents}).json()
        assert answer["results"][0]["index"] == first, (query, answer)
