"""A deterministic engine without a model, whose output encodes its input."""

from __future__ import annotations

import asyncio
import time

import numpy as np

from serve_app.engine.admission import Admission
from serve_app.engine.protocol import EngineLoad
from serve_app.errors import DeadlineExceeded, EngineDead
from serve_app.messages import EngineBatch, EngineImages, EngineOutput, FloatArray, LoadedImages, MissingImages
from serve_app.settings import ModelSettings
from serve_app.startup import StartTimes
from serve_app.vocabulary import PoolingTask

_PER_TOKEN = {PoolingTask.TOKEN_CLASSIFY, PoolingTask.TOKEN_EMBED}
_VECTORS = {PoolingTask.EMBED, PoolingTask.TOKEN_EMBED}


class FakeEngine:
    """Value of a sequence: a hash of its token ids and its images' mean colours, spread over `width` columns. Value of
    a token, where tokens have values: a hash of its id alone.

    Takes `delay_s` per batch, or what the settings say, and the time that its tokens need at the settings'
    `fake_tokens_per_s`, one batch after the other. Holds every image that it was sent, in `held`, until a test takes
    it out.

    Args:
        settings: the model's settings; admission applies as in the real engine.
        width: labels or vector components.
        delay_s: seconds that a batch takes; None: as the settings say.
    """

    def __init__(self, settings: ModelSettings, width: int = 1, delay_s: float | None = None) -> None:
        self._admission = Admission(settings.admission)
        self.settings = settings
        self.width = width
        self._fake = settings.engine.fake
        self.delay_s = self._fake.delay_ms / 1e3 if delay_s is None else delay_s
        self._tokens_per_s = settings.engine.fake_tokens_per_s
        self._reader = asyncio.Lock()
        self.dead = False
        self.cancelled = 0
        self.images_encoded = 0
        self.held: dict[str, int] = {}
        self._running = 0

    async def start(self) -> StartTimes:
        """Nothing to load. Raises RuntimeError if the settings say so."""
        if self._fake.start_error is not None:
            raise RuntimeError(self._fake.start_error)
        return {}

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """See `Engine.run`."""
        if self.dead:
            raise EngineDead("the engine has died")
        if batch.images is not None and (missing := self._take(batch.images, loaded)):
            return MissingImages(missing)
        started = time.perf_counter()
        with self._admission.take(len(batch), int(batch.offsets[-1])):
            self._running += len(batch)
            try:
                remaining = batch.deadline - time.time()
                await asyncio.sleep(max(0.0, min(self.delay_s, remaining)))
                if self.delay_s > remaining:
                    raise DeadlineExceeded("the deadline passed in the engine")
                if self._tokens_per_s is not None:
                    await self._read(int(batch.offsets[-1]) / self._tokens_per_s, batch.deadline)
            except (asyncio.CancelledError, DeadlineExceeded):
                self.cancelled += 1
                raise
            finally:
                self._running -= len(batch)
        width = max(8, self.width) if batch.task in _VECTORS else self.width
        sequences = np.split(batch.token_ids, batch.offsets[1:-1])
        shapes = None
        if batch.params is not None:
            rows = [
                _token_values(s, width, 0) if batch.task in _PER_TOKEN else fake_values(s, width) for s in sequences
            ]
            values, shapes = np.concatenate([row.reshape(-1) for row in rows]), [row.shape for row in rows]
        elif batch.values_per_token:
            values = np.concatenate([_token_values(s, width, batch.rows_before) for s in sequences])
        elif batch.images is None:
            values = np.stack([fake_values(s, width) for s in sequences])
        else:
            values = self._image_values(batch, batch.images, sequences, width)
        if self._fake.salt:
            values = ((values + 4 + self._fake.salt * 0.37) % 8 - 4).astype(np.float32)
        return EngineOutput(values, 0.0, (time.perf_counter() - started) * 1e3, shapes)

    async def _read(self, seconds: float, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.time())), self._reader:
                await asyncio.sleep(seconds)
        except TimeoutError:
            raise DeadlineExceeded("the deadline passed in the engine") from None

    def _take(self, images: EngineImages, loaded: LoadedImages | None) -> list[str]:
        """Encodes what was sent; the keys of what is neither sent nor held."""
        for key, row in zip(images.keys, images.rows.tolist(), strict=True):
            if row >= 0 and key not in self.held:
                assert loaded is not None
                self.held[key] = int(loaded.pixels[row].astype(np.int64).mean() * 1000)
                self.images_encoded += 1
        return [key for key in images.keys if key not in self.held]

    def _image_values(
        self, batch: EngineBatch, images: EngineImages, sequences: list[np.ndarray], width: int
    ) -> FloatArray:
        rows = []
        for i, tokens in enumerate(sequences):
            members = images.members[images.offsets[i] : images.offsets[i + 1]]
            colours = [self.held[images.keys[member]] for member in members]
            text = tokens[: len(tokens) - len(members)]
            parts = [[colour] for colour in colours] if batch.score_per_marker else [colours]
            rows += [fake_values(np.array([*text, *part]), width) for part in parts]
        return np.stack(rows)

    async def check_health(self) -> None:
        """See `Engine.check_health`."""
        if self.dead:
            raise EngineDead("the engine has died")

    def load(self) -> EngineLoad:
        """See `Engine.load`."""
        return EngineLoad(self._admission.sequences, self._admission.tokens, self.cancelled, self._running)

    async def image_counts(self) -> dict[str, int]:
        """See `Engine.image_counts`."""
        return {"encoded": self.images_encoded, "held": len(self.held)}

    async def shutdown(self) -> None:
        """Nothing to end."""


def _token_values(ids: np.ndarray, width: int, rows_before: int) -> FloatArray:
    """A sequence's rows: its own value `rows_before` times, then one for each token."""
    tokens = [fake_values(ids[i : i + 1], width) for i in range(len(ids))]
    return np.stack([fake_values(ids, width)] * rows_before + tokens)


def fake_values(ids: np.ndarray, width: int) -> FloatArray:
    """The fake's value of a sequence, float32 [width], between -4 and 4."""
    seed = int(np.uint32(np.dot(ids.astype(np.uint64), np.arange(1, len(ids) + 1, dtype=np.uint64)) % (1 << 32)))
    return (np.random.default_rng(seed).random(width) * 8 - 4).astype(np.float32)
