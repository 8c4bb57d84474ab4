"""A batch in parts gives what it gives whole."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import DeadlineExceeded, Overloaded, ReplicaDied
from serve_app.messages import EngineBatch, EngineImages, EngineOutput, LoadedImages, MissingImages
from serve_app.settings import EngineReplicaSettings, ModelSettings
from serve_app.splitting import SplittingEngine, count_parts, merge, split
from serve_app.vocabulary import PoolingTask

MODEL: dict[str, Any] = {
    "name": "m",
    "version": "1",
    "source": "m",
    "task": "rerank",
    "device": "cpu",
    "dtype": "float32",
    "max_model_len": 512,
    "max_num_seqs": 64,
    "max_num_batched_tokens": 4096,
}


def settings(**changes: Any) -> ModelSettings:
    return ModelSettings.model_validate(MODEL | changes)


def batch_of(lengths: list[int], task: PoolingTask = PoolingTask.CLASSIFY, **changes: Any) -> EngineBatch:
    offsets = np.cumsum([0, *lengths], dtype=np.int32)
    ids = np.arange(offsets[-1], dtype=np.int32) * 7 % 101
    return EngineBatch("r", task, ids, offsets, None, time.time() + 60, **changes)


def with_images(groups: list[list[int]], text: int, *, per_marker: bool) -> tuple[EngineBatch, LoadedImages]:
    """A sequence per group: `text` tokens and a marker for each of the group's images, named by number."""
    members = [image for group in groups for image in group]
    known = sorted(set(members))
    images = EngineImages(
        keys=[f"image {image}" for image in known],
        rows=np.arange(len(known), dtype=np.int32),
        members=np.array([known.index(image) for image in members], dtype=np.int32),
        offsets=np.cumsum([0, *map(len, groups)], dtype=np.int32),
    )
    batch = batch_of([text + len(group) for group in groups], images=images, score_per_marker=per_marker)
    pixels = np.stack([np.full((2, 2, 3), image % 256, dtype=np.uint8) for image in known])
    return batch, LoadedImages(images.keys, images.rows, pixels, (), 0.0, 0.0)


async def whole_and_in_parts(
    batch: EngineBatch, count: int, width: int, loaded: LoadedImages | None = None
) -> tuple[EngineOutput, EngineOutput]:
    """Every part on an engine of its own, as on replicas that know nothing of each other."""
    outputs = [await FakeEngine(settings(), width).run(part, loaded) for part in split(batch, count)]
    return await FakeEngine(settings(), width).run(batch, loaded), merge(outputs)  # type: ignore[return-value, arg-type]


@examples(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30),
    count=st.integers(1, 9),
    kind=st.sampled_from(["classify", "embed", "per_token", "segments", "params"]),
)
def test_texts_in_any_parts(lengths: list[int], count: int, kind: str) -> None:
    batch = {
        "classify": lambda: batch_of(lengths),
        "embed": lambda: batch_of(lengths, PoolingTask.EMBED),
        "per_token": lambda: batch_of(lengths, PoolingTask.TOKEN_CLASSIFY, values_per_token=True, rows_before=1),
        "segments": lambda: batch_of(lengths),
        "params": lambda: batch_of(lengths, PoolingTask.TOKEN_EMBED, params={"task": "token_embed"}),
    }[kind]()
    whole, merged = asyncio.run(whole_and_in_parts(batch, count, width=3))
    np.testing.assert_array_equal(merged.values, whole.values)
    assert merged.shapes == whole.shapes
    parts = split(batch, count)
    assert len(parts) == min(count, len(lengths))
    assert sum(map(len, parts)) == len(batch)
    assert len({part.request_id for part in parts}) == len(parts)
    first = parts[0].lane
    assert first is not None
    assert [part.lane for part in parts] == list(range(first, first + len(parts)))


@examples(deadline=None, max_examples=60)
@given(
    groups=st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=12), min_size=1, max_size=8),
    count=st.integers(1, 9),
    per_marker=st.booleans(),
    text=st.integers(1, 6),
)
def test_images_in_any_parts(groups: list[list[int]], count: int, per_marker: bool, text: int) -> None:
    batch, loaded = with_images(groups, text, per_marker=per_marker)
    whole, merged = asyncio.run(whole_and_in_parts(batch, count, width=1, loaded=loaded))
    np.testing.assert_array_equal(merged.values, whole.values)


def test_token_types_go_with_their_sequences() -> None:
    starts = np.arange(10, dtype=np.int32)
    batch = EngineBatch(
        "r", PoolingTask.CLASSIFY, np.arange(50, dtype=np.int32), np.arange(0, 51, 5, dtype=np.int32), starts, 0.0
    )
    parts = split(batch, 3)
    assert np.concatenate([part.segment_starts for part in parts]).tolist() == starts.tolist()  # type: ignore[misc]
    assert np.concatenate([part.token_ids for part in parts]).tolist() == list(range(50))
    assert all(part.offsets[0] == 0 and part.offsets[-1] == len(part.token_ids) for part in parts)


def test_parts_have_about_equal_work() -> None:
    parts = split(batch_of([400] * 10 + [40] * 100), 4)
    assert [int(part.offsets[-1]) for part in parts] == pytest.approx([2000] * 4, rel=0.2)
    assert len(parts[0]) < len(parts[-1])


@pytest.mark.parametrize(
    ("documents", "replicas", "parts"),
    [
        (500, {"num_replicas": 4}, 4),
        (500, {"num_replicas": 1}, 1),
        (500, {"num_replicas": 4, "split_documents": 0}, 1),
        (500, {"num_replicas": 4, "split_documents": 250}, 2),
        (128, {"num_replicas": 4}, 1),
        (129, {"num_replicas": 4}, 2),
        (500, {"autoscaling": {"min_replicas": 1, "max_replicas": 3}}, 3),
    ],
)
def test_how_many_parts(documents: int, replicas: dict[str, Any], parts: int) -> None:
    assert count_parts(batch_of([2] * documents), EngineReplicaSettings.model_validate(replicas)) == parts


def test_images_are_worth_more_parts() -> None:
    batch, _ = with_images([list(range(100))], 5, per_marker=True)
    assert count_parts(batch, EngineReplicaSettings(num_replicas=8)) == 4
    parts = split(batch, 4)
    assert [len(part.images.members) for part in parts if part.images] == [25] * 4
    assert [len(part.token_ids) for part in parts] == [30] * 4  # each has the text


class Parts:
    """An engine that keeps what it was asked; `answers`: by the part's number, an error to raise."""

    def __init__(self, answers: dict[int, Exception | MissingImages] | None = None, delay_s: float = 0.0) -> None:
        self.answers = answers or {}
        self.asked: list[tuple[EngineBatch, LoadedImages | None]] = []
        self.cancelled = 0
        self.delay_s = delay_s
        self._engine = FakeEngine(settings())

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        number = len(self.asked)
        self.asked.append((batch, loaded))
        if (answer := self.answers.get(number)) is not None:
            if isinstance(answer, Exception):
                raise answer
            return answer
        try:
            await asyncio.sleep(self.delay_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return await self._engine.run(batch, loaded)


FOUR = EngineReplicaSettings(num_replicas=4)


@pytest.mark.parametrize("error", [Overloaded("no room", None, 3.0), ReplicaDied("gone"), DeadlineExceeded("late")])
async def test_the_first_part_that_fails_fails_the_request_and_ends_the_others(error: Exception) -> None:
    engine = Parts({2: error}, delay_s=60.0)
    with pytest.raises(type(error)) as caught:
        await SplittingEngine(engine, FOUR).run(batch_of([2] * 500))
    assert caught.value is error
    assert engine.cancelled == 3
    assert all(task is asyncio.current_task() for task in asyncio.all_tasks())


async def test_cancelling_the_request_cancels_every_part() -> None:
    engine = Parts(delay_s=60.0)
    task = asyncio.create_task(SplittingEngine(engine, FOUR).run(batch_of([2] * 500)))
    while len(engine.asked) < 4:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.cancelled == 4


async def test_every_part_has_the_request_deadline() -> None:
    engine, batch = Parts(), batch_of([2] * 500)
    output = await SplittingEngine(engine, FOUR).run(batch)
    assert isinstance(output, EngineOutput)
    assert len(output.values) == 500
    assert [part.deadline for part, _ in engine.asked] == [batch.deadline] * 4


async def test_one_part_without_its_images_asks_for_the_whole_request_again() -> None:
    batch, loaded = with_images([list(range(100))], 5, per_marker=True)
    engine = Parts({1: MissingImages(["image 30"])}, delay_s=60.0)
    assert await SplittingEngine(engine, FOUR).run(batch, loaded) == MissingImages(["image 30"])
    assert engine.cancelled >= 1


async def test_pixels_go_only_to_parts_that_need_some() -> None:
    batch, loaded = with_images([list(range(100))], 5, per_marker=True)
    assert batch.images is not None
    batch.images.rows[25:] = -1
    engine = Parts(dict.fromkeys(range(1, 4), MissingImages([])))
    await SplittingEngine(engine, FOUR).run(batch, loaded)
    assert [sent is not None for _, sent in engine.asked] == [True, False, False, False][: len(engine.asked)]


def test_the_longest_stage_counts() -> None:
    values = np.zeros((1, 1), dtype=np.float32)
    merged = merge([EngineOutput(values, 5.0, 20.0), EngineOutput(values, 9.0, 10.0)])
    assert (merged.queue_ms, merged.engine_ms, len(merged.values)) == (9.0, 20.0, 2)
