"""Queries, images and batches for the engines: what an IOProcessor would send, made before it is measured."""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.corpus import FALLBACK_WORDS
from serve_app.messages import ByteArray, EngineBatch, ImageRef, LoadedImages, ScoreRequest
from serve_app.tasks.image_rank.build_input import build_input
from serve_app.tasks.images import RequestImages
from serve_app.tasks.model import TextModel

POOL = 256
"""Different pictures; keys are what makes an image new, and there is no end of those."""


@dataclass(frozen=True, slots=True)
class Request:
    """One query and its images, ready for `Engine.run`."""

    batch: EngineBatch
    loaded: LoadedImages | None
    pairs: int

    def now(self, name: str, seconds: float = 120.0) -> EngineBatch:
        """The batch with an id and a deadline."""
        return dataclasses.replace(self.batch, request_id=name, deadline=time.time() + seconds)


class Workload:
    """Requests for one model.

    Args:
        model: settings, checkpoint, tokenizer.
        images: of a request.
        query_tokens: of a query, BOS and EOS included.
        seed: of queries and pixels.
    """

    def __init__(self, model: TextModel, images: int, query_tokens: int, seed: str) -> None:
        assert model.checkpoint.images is not None
        self._model = model
        self._images = images
        self._words = max(1, query_tokens - model.tokenizer.single.overhead(pair=False))
        self._random = random.Random(seed)
        height, width = model.checkpoint.images.spec.output_size
        self.pictures = pictures(height, width)
        self._count = 0
        self._held = [self._key() for _ in range(images)]

    def query(self) -> str:
        """A query of exactly the wanted length."""
        return " ".join(self._random.choices(FALLBACK_WORDS, k=self._words))

    def cold(self) -> Request:
        """Images that no request has had."""
        return self.request(self.query(), [self._key() for _ in range(self._images)], send=True)

    def warm(self) -> Request:
        """Images of `heat`, without their pixels."""
        return self.request(self.query(), self._held, send=False)

    def heat(self) -> Request:
        """The images of `warm` with their pixels."""
        return self.request(self.query(), self._held, send=True)

    def request(self, query: str, keys: Sequence[str], *, send: bool) -> Request:
        """A query with images of these keys; a key's picture is always the same.

        Args:
            send: with pixels.
        """
        known = RequestImages(
            keys={1 + i: key for i, key in enumerate(keys)},
            rows={key: i for i, key in enumerate(keys)} if send else {},
        )
        documents = [ImageRef(url=key) for key in keys]
        built = build_input(self._model, ScoreRequest([query], documents), known)
        batch = EngineBatch(
            request_id="",
            task=built.task,
            token_ids=built.token_ids,
            offsets=built.offsets,
            segment_starts=None,
            deadline=0.0,
            images=built.images,
            score_per_marker=True,
        )
        loaded = None
        if send:
            pixels = np.stack([self.picture(key) for key in keys])
            loaded = LoadedImages(list(keys), np.arange(len(keys), dtype=np.int32), pixels, (), 0.0, 0.0)
        return Request(batch, loaded, len(keys))

    def picture(self, key: str) -> ByteArray:
        """A key's picture."""
        picture: ByteArray = self.pictures[int(key.rsplit("-", 1)[-1]) % len(self.pictures)]
        return picture

    def _key(self) -> str:
        self._count += 1
        return f"{self._random.getrandbits(64):016x}-{self._count}"


class ParitySet:
    """Queries, and pictures for all. `workload`: of a side whose sequences end in EOS, as the reference reads them."""

    def __init__(self, workload: Workload, size: tuple[int, int]) -> None:
        self._queries = [workload.query() for _ in range(size[0])]
        self._keys = [f"parity-{i}" for i in range(size[1])]
        self._workload = workload

    def requests(self, workload: Workload) -> list[Request]:
        """A request per query, as a side sends it."""
        return [workload.request(query, self._keys, send=True) for query in self._queries]

    def token_ids(self) -> list[list[int]]:
        """The queries' token ids, BOS and EOS included."""
        batches = [self._workload.request(query, self._keys[:1], send=False).batch for query in self._queries]
        return [batch.token_ids.tolist() for batch in batches]

    def pictures(self) -> ByteArray:
        """The pictures, uint8 [images, height, width, 3]."""
        return np.stack([self._workload.picture(key) for key in self._keys])


def pictures(height: int, width: int, count: int = POOL) -> ByteArray:
    """Pictures of coloured blocks, uint8 [count, height, width, 3]; the same ones always."""
    draw = np.random.default_rng(14)
    blocks = draw.integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)
    rows = np.arange(height) * 6 // height
    columns = np.arange(width) * 6 // width
    return blocks[:, rows][:, :, columns]
