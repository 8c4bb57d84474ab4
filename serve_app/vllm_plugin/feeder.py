"""Images into vLLM's engine: ready pixels in, and left out where its cache holds them already.

vLLM mirrors the cache of the engine core's process in the front end's: same keys, same sizes, same order of use, so the
front end knows what the core holds. A mirror that is off makes the core fail on the missing image (0.26: dies), so an
update here and the request that it belongs to are one step: under a lock, and run to the end whatever becomes of the
caller. Only documented calls are used: `is_cached_item`, `touch_sender_cache_item`, `get_and_update_item`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
from collections.abc import Sequence
from typing import Any

from serve_app.messages import EngineBatch, EngineImages, LoadedImages
from serve_app.settings import ModelSettings
from serve_app.vocabulary import Task

PLUGIN_GROUP, PLUGIN = "vllm.general_plugins", "poolserve"
N_TEXT = "n_text"
"""See `models/fusion_ranker.py`."""


class NotHeld(Exception):
    """The engine does not hold images that were left out. Never leaves the engine.

    Args:
        keys: their cache keys.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self.keys = keys


def require_plugin(architecture: str) -> None:
    """Makes sure that vLLM's other processes will know our model; vLLM itself only logs a plugin that is missing.

    Raises:
        RuntimeError: the package is not installed, or the plugin failed to load.
    """
    entry_points = importlib.metadata.entry_points(group=PLUGIN_GROUP, name=PLUGIN)
    if not entry_points:
        raise RuntimeError(
            f"the plugin '{PLUGIN}' ({PLUGIN_GROUP}) is not registered: install this package into the environment"
        )
    next(iter(entry_points)).load()()
    from vllm import ModelRegistry

    if architecture not in ModelRegistry.get_supported_archs():
        raise RuntimeError(f"the plugin '{PLUGIN}' did not register {architecture}")


def has_markers(images: EngineImages, sequence: int) -> bool:
    """Whether a sequence has images."""
    return bool(images.offsets[sequence + 1] > images.offsets[sequence])


class ImageFeeder:
    """Submits sequences with images to one engine.

    Args:
        llm: vLLM's AsyncLLM.
        settings: the model's settings.
    """

    def __init__(self, llm: Any, settings: ModelSettings) -> None:
        from vllm import PoolingParams

        self._llm = llm
        self._cache = llm.input_processor.renderer.mm_processor_cache
        self._lock = asyncio.Lock()
        self._params = PoolingParams
        self._markers_follow = settings.task is Task.IMAGE_RANK and settings.images.mode == "query"

    async def submit(
        self,
        request_id: str,
        tokens: list[int],
        batch: EngineBatch,
        sequence: int,
        loaded: LoadedImages | None,
        priority: int,
    ) -> Any:
        """Submits one sequence of a batch; returns its output collector.

        Raises:
            NotHeld: an image is neither sent nor held.
        """
        assert batch.images is not None
        async with self._lock:
            adding = asyncio.ensure_future(
                self._add(request_id, tokens, batch, batch.images, sequence, loaded, priority)
            )
            cancelled: asyncio.CancelledError | None = None
            while not adding.done():
                try:
                    await asyncio.shield(adding)
                except asyncio.CancelledError as error:
                    cancelled = error
                except Exception:  # the task's own; raised below
                    break
        if cancelled is not None:
            with contextlib.suppress(Exception):
                await self._llm.abort([adding.result().request_id], internal=True)
            raise cancelled
        return adding.result()

    async def _add(
        self,
        request_id: str,
        tokens: list[int],
        batch: EngineBatch,
        images: EngineImages,
        sequence: int,
        loaded: LoadedImages | None,
        priority: int,
    ) -> Any:
        from vllm.inputs import mm_input
        from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

        members = images.members[images.offsets[sequence] : images.offsets[sequence + 1]].tolist()
        keys = [images.keys[member] for member in members]
        rows = [int(images.rows[member]) for member in members]
        items = self._items(keys, rows, loaded)
        n_text = len(tokens) - len(keys)
        prompt = mm_input(
            prompt_token_ids=tokens,
            mm_kwargs=MultiModalKwargsItems({"image": items}),
            mm_hashes={"image": keys},
            mm_placeholders={"image": [PlaceholderRange(n_text + i, 1) for i in range(len(keys))]},
        )
        params = self._params(
            task=batch.task.value,
            use_activation=False,
            extra_kwargs={N_TEXT: n_text} if self._markers_follow else None,
            skip_reading_prefix_cache=True if self._markers_follow else None,
        )
        return await self._llm.add_request(request_id, prompt, params, priority=priority)

    def _items(self, keys: Sequence[str], rows: Sequence[int], loaded: LoadedImages | None) -> list[Any]:
        """vLLM's items: pixels, or None where the engine core holds them."""
        import torch

        from serve_app.vllm_plugin.models.pixels import pixel_item

        held = [False] * len(keys) if self._cache is None else self._cache.is_cached(list(keys))
        if missing := [key for key, row, here in zip(keys, rows, held, strict=True) if row < 0 and not here]:
            raise NotHeld(missing)
        # A copy: the loader's array may lie in Ray's object store, read-only and shared.
        items: list[Any] = [
            None if here else pixel_item(torch.from_numpy(loaded.pixels[row].copy()))  # type: ignore[union-attr]
            for row, here in zip(rows, held, strict=True)
        ]
        if self._cache is None:
            return items
        for key in keys:  # the core touches all of a request's images before it stores new ones
            self._cache.touch_sender_cache_item(key)
        return [
            self._cache.get_and_update_item(None if item is None else (item, []), key)[0]
            for item, key in zip(items, keys, strict=True)
        ]
