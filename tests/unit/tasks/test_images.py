"""The image stage: keys, caches, what is loaded and what is not, and whose failure is whose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import InternalError, InvalidRequest, NoUsableImage
from serve_app.messages import Context, EmbedRequest, ImageRef, ItemError, ScoreRequest, Truncation
from serve_app.pipeline import Pipeline, canary_request
from serve_app.tasks.images import RequestImages, document_errors, image_items
from serve_app.vocabulary import MediaErrorCode, Task
from tests.checkpoints import Checkpoints
from tests.parity.images import DecodingLoader, clip, picture, siglip
from tests.unit.models import text_model

FUSION = Path(__file__).parents[3] / "model_zoo" / "fusion-mini"


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip(tmp_path_factory.mktemp("clip"))


class Case:
    """A pipeline with a fake engine and a loader without a network."""

    def __init__(self, folder: Path, task: str, executor: ThreadPoolExecutor, **images: object) -> None:
        self.model = text_model(folder, task, max_model_len=24, images=images)
        self.engine = FakeEngine(self.model.settings, width=1)
        self.loader = DecodingLoader()
        self.loader.urls = {f"http://host/{i}": picture(i) for i in range(20)}
        self.pipeline = Pipeline(self.model, self.engine, executor, self.loader)

    async def run(self, request: ScoreRequest | EmbedRequest):  # type: ignore[no-untyped-def]
        return await self.pipeline.run(Context("r", time.time() + 10), request)


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def urls(*numbers: int) -> list[ImageRef]:
    return [ImageRef(url=f"http://host/{i}") for i in numbers]


async def test_a_dual_encoder_loads_and_encodes_an_image_once(clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    case = Case(clip_folder, "embed", executor)
    first = await case.run(ScoreRequest(["red"], urls(1, 2, 1)))
    assert (case.loader.loaded, case.engine.images_encoded) == (3, 2)  # the loader knows equal URLs by itself
    assert first.scores[0] == first.scores[2]
    again = await case.run(ScoreRequest(["red"], urls(2, 1)))
    assert (case.loader.loaded, case.engine.images_encoded) == (3, 2)
    assert again.scores.tolist() == first.scores[[1, 0]].tolist()
    # The same picture as bytes is the same picture.
    by_bytes = await case.run(ScoreRequest(["red"], [ImageRef(data=picture(1))]))
    assert (case.loader.loaded, by_bytes.scores[0]) == (3, first.scores[0])


async def test_limits_of_texts_have_no_effect_on_images_and_are_named(executor: ThreadPoolExecutor) -> None:
    case = Case(FUSION, "image_rank", executor)
    limited = Truncation(max_document_tokens=5, max_chunks=2)
    result = await case.run(ScoreRequest(["red"], urls(1, 2), truncation=limited))
    assert result.served.ignored == ("max_tokens_per_doc", "max_chunks_per_doc")
    assert (await case.run(ScoreRequest(["red"], urls(1, 2)))).served.ignored == ()


async def test_known_vectors_need_no_engine_at_all(clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    case = Case(clip_folder, "embed", executor)
    cold = await case.run(EmbedRequest(urls(1, 2)))
    case.engine.dead = True
    warm = await case.run(EmbedRequest(urls(2, 1)))
    np.testing.assert_array_equal(warm.vectors, cold.vectors[::-1])
    assert warm.served.prompt_tokens == 0


async def test_the_vector_cache_is_bounded(clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    for size, encoded in ((2, 4), (0, 6), (10, 3)):
        case = Case(clip_folder, "embed", executor, vector_cache=size)
        for _ in range(2):
            await case.run(EmbedRequest(urls(1, 2, 3)))
            case.engine.held.clear()
        assert case.engine.images_encoded == encoded


async def test_a_url_is_asked_again_after_its_time(clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    case = Case(clip_folder, "embed", executor, url_ttl_s=0)
    before = await case.run(EmbedRequest(urls(1)))
    case.loader.urls["http://host/1"] = picture(2)
    after = await case.run(EmbedRequest(urls(1)))
    assert case.loader.loaded == 2
    assert not np.allclose(before.vectors, after.vectors)


async def test_a_fusion_ranker_sends_pixels_once_and_again_when_the_engine_has_dropped_them(
    executor: ThreadPoolExecutor,
) -> None:
    case = Case(FUSION, "image_rank", executor, images_per_sequence=2)
    cold = await case.run(ScoreRequest(["red circle"], urls(1, 2, 3, 1), raw_scores=True))
    assert (case.loader.loaded, case.engine.images_encoded) == (4, 3)
    warm = await case.run(ScoreRequest(["red circle"], urls(3, 2, 1), raw_scores=True))
    assert case.loader.loaded == 4
    assert warm.scores.tolist() == cold.scores[[2, 1, 0]].tolist()
    del case.engine.held[next(iter(case.engine.held))]
    returned = await case.run(ScoreRequest(["red circle"], urls(3, 2, 1), raw_scores=True))
    assert case.loader.loaded == 7  # all of them: another replica may hold others
    assert returned.scores.tolist() == warm.scores.tolist()


async def test_an_engine_that_never_takes_the_images_is_our_fault(executor: ThreadPoolExecutor) -> None:
    case = Case(FUSION, "image_rank", executor)
    case.engine._take = lambda images, loaded: list(images.keys)  # type: ignore[method-assign]
    with pytest.raises(InternalError):
        await case.run(ScoreRequest(["red circle"], urls(1)))


@pytest.mark.parametrize("mode", ["query", "pair"])
async def test_a_failed_image_has_no_score_and_the_others_have_theirs(mode: str, executor: ThreadPoolExecutor) -> None:
    case = Case(FUSION, "image_rank", executor, mode=mode)
    dead = ImageRef(url="http://host/none")
    result = await case.run(ScoreRequest(["red"], [*urls(1), dead, *urls(2)]))
    assert np.isnan(result.scores).tolist() == [False, True, False]
    assert [(e.index, e.code, "documents[1].image" in e.message) for e in result.served.errors] == [
        (1, "media_unreachable", True)
    ]
    with pytest.raises(NoUsableImage) as caught:
        await case.run(ScoreRequest(["red"], [dead, dead]))
    assert (caught.value.code, caught.value.param) == ("media_unreachable", "documents[0].image")


@pytest.mark.parametrize("task", ["embed", "image_rank"])
async def test_what_is_no_image_is_never_loaded(task: str, clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    case = Case(FUSION if task == "image_rank" else clip_folder, task, executor)
    bad = ImageRef(data=b"", complaint="documents[1].image: must not be empty")
    for _ in range(2):  # the second time nothing is loaded at all
        result = await case.run(ScoreRequest(["red"], [*urls(1), bad, *urls(2)]))
        assert np.isnan(result.scores).tolist() == [False, True, False]
        assert list(result.served.errors) == [ItemError(1, MediaErrorCode.UNDECODABLE, bad.complaint)]
        assert case.loader.loaded == 2
    with pytest.raises(NoUsableImage) as caught:
        await case.run(ScoreRequest(["red"], [bad, bad]))
    assert (caught.value.code, caught.value.param) == ("media_undecodable", "documents[1].image")
    assert case.loader.loaded == 2


async def test_pairs_of_which_one_side_fails(clip_folder: Path, executor: ThreadPoolExecutor) -> None:
    case = Case(clip_folder, "embed", executor)
    dead = ImageRef(url="http://host/none")
    result = await case.run(ScoreRequest([*urls(1), dead, "red"], [*urls(2, 3), dead], query_field="text_1"))
    assert np.isnan(result.scores).tolist() == [False, True, True]
    assert [error.index for error in result.served.errors] == [1, 2]
    assert "text_1[1].image" in result.served.errors[0].message


async def test_a_text_model_refuses_images_by_field(checkpoints: Checkpoints, executor: ThreadPoolExecutor) -> None:
    for task in ("rerank", "embed"):
        model = text_model(checkpoints.bert(1 if task == "rerank" else 0), task)
        pipeline = Pipeline(model, FakeEngine(model.settings), executor, DecodingLoader())
        with pytest.raises(InvalidRequest, match=r"documents\[1\].image: 'tiny' reads text only"):
            await pipeline.run(Context("r", time.time() + 10), ScoreRequest(["a"], ["b", *urls(1)]))


async def test_the_canary_of_a_fusion_ranker_is_a_real_picture(executor: ThreadPoolExecutor) -> None:
    case = Case(FUSION, "image_rank", executor)
    assert len((await case.run(canary_request(Task.IMAGE_RANK))).scores) == 1


async def test_siglip_texts_are_padded(tmp_path: Path, executor: ThreadPoolExecutor) -> None:
    model = text_model(siglip(tmp_path), "embed", max_model_len=16)
    pipeline = Pipeline(model, FakeEngine(model.settings), executor, DecodingLoader())
    result = await pipeline.run(Context("r", time.time() + 10), EmbedRequest(["red", "red " * 40]))
    assert result.served.prompt_tokens == 2 * 16
    assert list(result.served.truncated) == [1]


def test_image_items_number_queries_and_documents_through() -> None:
    request = ScoreRequest(["text", *urls(1)], ["a", *urls(2)], query_field="text_1", document_field="text_2")
    assert [(item.index, item.field) for item in image_items(request)] == [
        (1, "text_1[1].image"),
        (3, "text_2[1].image"),
    ]
    assert image_items(ScoreRequest(["text"], ["a"] * 500)) == []


def test_a_failed_query_fails_the_request_and_names_it() -> None:
    error = ItemError(0, MediaErrorCode.FORBIDDEN, "query.image: not a public address")
    with pytest.raises(NoUsableImage) as caught:
        document_errors(ScoreRequest(urls(1), urls(2, 3)), RequestImages(errors={0: error}))
    assert (caught.value.code, caught.value.param) == ("media_forbidden", "query.image")
