"""A large request's sequences, split over engine replicas and put together again.

Split here, between tokenizing and the engine, a part is a range of rows: what was cut, refused and counted is the whole
request's, and post-processing never knows. Tokenizing itself is spread over the IOProcessor's threads.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from serve_app.messages import EngineBatch, EngineImages, EngineOutput, IntArray, LoadedImages, MissingImages
from serve_app.pipeline import EngineClient
from serve_app.settings import EngineReplicaSettings


class _NotHeld(Exception):
    """A part's `MissingImages`; the other parts need not be finished."""

    def __init__(self, missing: MissingImages) -> None:
        super().__init__(missing)
        self.missing = missing


class SplittingEngine:
    """Runs the parts of a batch at the same time. All or nothing: the first part that fails ends the others.

    Args:
        engine: runs a part, each on a replica of its own if it can.
        settings: the engine's replicas.
    """

    def __init__(self, engine: EngineClient, settings: EngineReplicaSettings) -> None:
        self._engine = engine
        self._settings = settings

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """See `EngineClient.run`."""
        count = count_parts(batch, self._settings)
        if count < 2:
            return await self._engine.run(batch, loaded)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_part(part, loaded)) for part in split(batch, count)]
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]
            if isinstance(first, _NotHeld):
                return first.missing
            raise first from None
        return merge([task.result() for task in tasks])

    async def _run_part(self, part: EngineBatch, loaded: LoadedImages | None) -> EngineOutput:
        sends_pixels = part.images is not None and bool((part.images.rows >= 0).any())
        output = await self._engine.run(part, loaded if sends_pixels else None)
        if isinstance(output, MissingImages):
            raise _NotHeld(output)
        return output


def count_parts(batch: EngineBatch, settings: EngineReplicaSettings) -> int:
    """Parts that a batch is worth: as many as its documents and images fill, no more than replicas."""
    if not settings.split_documents or settings.most < 2:
        return 1
    images = 0 if batch.images is None else len(batch.images.members)
    documents = math.ceil((images if batch.score_per_marker else len(batch)) / settings.split_documents)
    return max(1, min(settings.most, max(documents, math.ceil(images / settings.split_images))))


def split(batch: EngineBatch, count: int) -> list[EngineBatch]:
    """Parts of about equal work, in the batch's order; fewer than `count` if there are not as many rows.

    A sequence with a score for each of its markers may be cut between two of them; each piece has the text before them.
    Every part has a `lane`, one after the other from a random one on.
    """
    if batch.images is not None and batch.score_per_marker:
        cuts = _cuts(np.ones(len(batch.images.members)), count)
        pieces = [_markers(batch, batch.images, start, end) for start, end in itertools.pairwise(cuts)]
    else:
        # An image is one token and far more work than one: with images sequences count alike.
        weights = np.diff(batch.offsets) if batch.images is None else np.ones(len(batch))
        cuts = _cuts(weights, count)
        pieces = [_sequences(batch, start, end) for start, end in itertools.pairwise(cuts)]
    first = random.randrange(1 << 30)
    return [replace(piece, request_id=f"{batch.request_id}-{i}", lane=first + i) for i, piece in enumerate(pieces)]


def merge(outputs: Sequence[EngineOutput]) -> EngineOutput:
    """The whole batch's output. Stages ran at the same time, so the longest counts; versions that differ make none."""
    versions = sorted({output.version for output in outputs})
    shapes = None if outputs[0].shapes is None else [shape for output in outputs for shape in output.shapes or ()]
    return EngineOutput(
        values=np.concatenate([output.values for output in outputs]),
        queue_ms=max(output.queue_ms for output in outputs),
        engine_ms=max(output.engine_ms for output in outputs),
        shapes=shapes,
        version="+".join(versions),
    )


def _cuts(weights: np.ndarray, count: int) -> list[int]:
    """Ends of `count` ranges of about equal weight, none of them empty; 0 first."""
    rows = len(weights)
    count = min(count, rows)
    reached = np.cumsum(weights, dtype=np.float64)
    cuts = [0]
    for i in range(1, count):
        cut = int(np.searchsorted(reached, reached[-1] * i / count, side="left")) + 1
        cuts.append(min(max(cut, cuts[-1] + 1), rows - (count - i)))
    return [*cuts, rows]


def _sequences(batch: EngineBatch, start: int, end: int) -> EngineBatch:
    offsets = batch.offsets[start : end + 1]
    images = batch.images
    if images is not None:
        first, last = int(images.offsets[start]), int(images.offsets[end])
        images = _pictures(images, first, last, images.offsets[start : end + 1] - first)
    return replace(
        batch,
        token_ids=batch.token_ids[offsets[0] : offsets[-1]],
        offsets=offsets - offsets[0],
        segment_starts=None if batch.segment_starts is None else batch.segment_starts[start:end],
        images=images,
    )


def _markers(batch: EngineBatch, images: EngineImages, start: int, end: int) -> EngineBatch:
    """The sequences that hold the markers from `start` to `end`, with these markers only."""
    first = int(np.searchsorted(images.offsets, start, side="right")) - 1
    last = int(np.searchsorted(images.offsets, end, side="left"))
    tokens: list[IntArray] = []
    marker_offsets = [0]
    for i in range(first, last):
        before, after = int(images.offsets[i]), int(images.offsets[i + 1])
        stop = int(batch.offsets[i + 1])
        text = batch.token_ids[batch.offsets[i] : stop - (after - before)]
        low, high = max(before, start), min(after, end)
        tokens.append(np.concatenate([text, batch.token_ids[stop - (after - low) : stop - (after - high)]]))
        marker_offsets.append(marker_offsets[-1] + high - low)
    return replace(
        batch,
        token_ids=np.concatenate(tokens),
        offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int32),
        segment_starts=None if batch.segment_starts is None else batch.segment_starts[first:last],
        images=_pictures(images, start, end, np.array(marker_offsets, dtype=np.int32)),
    )


def _pictures(images: EngineImages, start: int, end: int, offsets: IntArray) -> EngineImages | None:
    """The images of the markers from `start` to `end`; None: there are none."""
    used, members = np.unique(images.members[start:end], return_inverse=True)
    if not len(used):
        return None
    return EngineImages(
        keys=[images.keys[key] for key in used.tolist()],
        rows=images.rows[used],
        members=members.astype(np.int32),
        offsets=offsets,
    )
