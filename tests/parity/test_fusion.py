"""The fusion ranker in fp32 against its plain PyTorch reference: cache cold, warm, evicted and returned; both modes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serve_app.errors import InvalidRequest
from serve_app.media.decode import decode
from serve_app.messages import ImageRef, ScoreRequest
from serve_app.pipeline import Pipeline
from serve_app.tasks.image_rank.reference import reference_logits
from serve_app.vocabulary import DType
from tests.parity import images
from tests.parity.conftest import Served, assert_same_order, serving

FOLDER = Path(__file__).parents[2] / "model_zoo" / "fusion-mini"
QUERIES = [
    "red circle",
    "a small blue square on the left",
    "two green triangles and a yellow star at the top of a dark picture with a red ring",
    "x",
]
MODES: dict[str, dict[str, Any]] = {
    # Slots for 24 pictures, pixels for few more: everything is evicted again and again.
    "query": {"images": {"mode": "query", "images_per_sequence": 8, "device_cache": 24, "host_cache_gib": 0.0006}},
    # Steps of 16 tokens: the third query comes in chunks.
    "pair": {"images": {"mode": "pair", "device_cache": 24}, "max_num_batched_tokens": 32, "max_num_seqs": 8,
             "engine": {"enforce_eager": True, "enable_prefix_caching": True}},
    "query-chunked": {"images": {"mode": "query", "images_per_sequence": 8, "device_cache": 24},
                      "max_num_batched_tokens": 32, "max_num_seqs": 8},
}  # fmt: skip


@pytest.fixture(scope="module", params=MODES)
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(FOLDER, "image_rank", max_model_len=32, **MODES[request.param]) as started:
        yield started


def _reference(served: Served, query: str, pictures: list[bytes]) -> np.ndarray:
    facts = served.model.checkpoint.images
    assert facts is not None
    pairs = [(query, decode(data, facts.spec, 10**8)) for data in pictures]
    return reference_logits(FOLDER, pairs, dtype=DType.FLOAT32, max_length=32)


def _encoded(served: Served) -> int:
    return int(served.call(served.engine.image_counts())["encoded"])


def test_two_hundred_pairs_cold_warm_evicted_and_returned(served: Served) -> None:
    pictures = [images.picture(seed) for seed in range(60)]
    refs = [ImageRef(data=data) for data in pictures]
    want = {query: _reference(served, query, pictures) for query in QUERIES}
    for query in QUERIES:  # 4 x 60 pairs, in parts that do not fit the device's 24 slots together
        for start in (0, 20, 40):
            got = served.run(ScoreRequest([query], refs[start : start + 20], raw_scores=True)).scores
            np.testing.assert_allclose(got, want[query][start : start + 20], atol=1e-4)
            assert_same_order(got, want[query][start : start + 20])
    held = served.call(served.engine.image_counts())["held"]
    assert 0 < held <= 24 + 8 + 1
    # All at once, beside each other: 60 pictures through 24 slots.
    results = served.together([ScoreRequest([query], refs, raw_scores=True) for query in QUERIES])
    for query, result in zip(QUERIES, results, strict=True):
        np.testing.assert_allclose(result.scores, want[query], atol=1e-4)


def test_a_held_image_is_neither_encoded_nor_sent_again(served: Served) -> None:
    fresh = images.refs(range(500, 512))
    loader = served.loader
    cold = served.run(ScoreRequest([QUERIES[0]], fresh, raw_scores=True)).scores
    if served.model.settings.images.host_cache_gib < 0.001:
        pytest.skip("this engine drops pixels on purpose")
    encoded, loaded = _encoded(served), loader.loaded
    warm = served.run(ScoreRequest([QUERIES[0]], fresh, raw_scores=True)).scores
    np.testing.assert_allclose(warm, cold, atol=1e-5)
    served.run(ScoreRequest([QUERIES[1]], fresh))
    assert (_encoded(served), loader.loaded) == (encoded, loaded)


def test_repeated_images_count_once(served: Served) -> None:
    pictures = [images.picture(600), images.picture(601)]
    before = _encoded(served)
    refs = [ImageRef(data=pictures[i % 2]) for i in range(20)]
    got = served.run(ScoreRequest([QUERIES[1]], refs, raw_scores=True)).scores
    np.testing.assert_allclose(got, np.tile(_reference(served, QUERIES[1], pictures), 10), atol=1e-4)
    assert _encoded(served) - before == 2


def test_pairs_one_to_one(served: Served) -> None:
    pictures = [images.picture(seed) for seed in range(700, 704)]
    got = served.run(ScoreRequest(QUERIES, [ImageRef(data=data) for data in pictures], raw_scores=True)).scores
    want = [_reference(served, query, [data])[0] for query, data in zip(QUERIES, pictures, strict=True)]
    np.testing.assert_allclose(got, want, atol=1e-4)


def test_a_front_end_that_is_wrong_about_the_engine_sends_the_images(served: Served) -> None:
    """An engine replica that has restarted, or another one: its pictures are not where they were thought to be."""
    loader = images.DecodingLoader()
    pictures = {f"http://host/{seed}": images.picture(seed) for seed in range(800, 806)}
    loader.urls = pictures
    refs = [ImageRef(url=url) for url in pictures]
    with ThreadPoolExecutor(1) as executor:
        pipeline = Pipeline(served.model, served.engine, executor, loader)
        assert pipeline.images is not None
        for url, data in pictures.items():
            pipeline.images._hashes[url] = images.content_hash(data)
        got = served.through(pipeline, ScoreRequest([QUERIES[2]], refs, raw_scores=True)).scores
    np.testing.assert_allclose(got, _reference(served, QUERIES[2], list(pictures.values())), atol=1e-4)
    assert loader.loaded == len(refs)


def test_cancelled_requests_leave_the_engine_in_order(served: Served) -> None:
    """A submission that is cut off half way must not put the two halves of vLLM's image cache out of step."""

    async def cut_off(delay: float, seed: int) -> None:
        task = asyncio.ensure_future(
            served.pipeline.run(served.context(), ScoreRequest([QUERIES[0]], images.refs(range(seed, seed + 20))))
        )
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def many() -> None:
        for i in range(12):
            await cut_off(0.004 * i, 900 + 10 * i)

    served.call(many())
    pictures = [images.picture(seed) for seed in range(900, 1040, 7)]
    got = served.run(ScoreRequest([QUERIES[0]], [ImageRef(data=data) for data in pictures], raw_scores=True)).scores
    np.testing.assert_allclose(got, _reference(served, QUERIES[0], pictures), atol=1e-4)
    served.settle()


def test_only_texts_rank_only_images(served: Served) -> None:
    picture = images.refs(range(1))[0]
    with pytest.raises(InvalidRequest, match=r"documents\[1\].*ranks images"):
        served.run(ScoreRequest(["red"], [picture, "text"]))
    with pytest.raises(InvalidRequest, match=r"query.*by a text"):
        served.run(ScoreRequest([picture], [picture]))
    with pytest.raises(InvalidRequest, match="never cut"):
        served.run(ScoreRequest(["red " * 50], [picture]))
