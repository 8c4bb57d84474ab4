"""image_rank: a query and images in, one sequence per image to the engine.

vLLM calls `pre_process` on its event loop, so the server stands still while images are fetched and decoded. That is the
interface's doing; our own server does it in processes of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from PIL import Image
from vllm import PoolingParams

from serve_app.api.base import Call
from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader
from serve_app.messages import LoadedImages, LoadRequest
from serve_app.settings import ImageLoaderSettings
from serve_app.tasks.images import ImageStage, RequestImages, document_errors, image_items
from serve_app.tasks.model import ModelInput
from serve_app.vllm_plugin.io_processors.base import TaskProcessor
from serve_app.vocabulary import Task

LOAD_TIMEOUT_S = 30.0
"""Seconds for all of a request's images; vLLM tells a plugin no deadline."""


class _Loader:
    """The ImageLoader on an event loop of its own, made at its first use."""

    def __init__(self) -> None:
        self._inner: ImageLoader | None = None

    async def load(self, request: LoadRequest) -> LoadedImages:
        """See `LoaderClient.load`."""
        if self._inner is None:
            settings = ImageLoaderSettings()
            self._inner = ImageLoader(settings, Fetcher(settings), ThreadPoolExecutor(2, "decode"))
        return await self._inner.load(request)


class ImageRank(TaskProcessor):
    """`data`: the body of /v1/rerank without `model`, its documents images.

    The image loader has its defaults: images in the request, and URLs with public addresses.
    """

    served_task = Task.IMAGE_RANK

    def __init__(self, vllm_config: Any, renderer: Any) -> None:
        super().__init__(vllm_config, renderer)
        facts = self.model.checkpoint.images
        assert facts is not None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="images", daemon=True).start()
        self._stage = ImageStage(
            facts, self.model.settings.images, _Loader(), ThreadPoolExecutor(1, "hash"), keeps_vectors=False
        )

    def load_images(self, call: Call) -> RequestImages | None:
        """See `TaskProcessor`. Raises NoUsableImage when nothing is left to rank."""
        items = image_items(call.request)
        if not items:
            return RequestImages()
        resolving = self._stage.resolve(items, time.time() + LOAD_TIMEOUT_S, send_all=True)
        images = asyncio.run_coroutine_threadsafe(resolving, self._loop).result()
        document_errors(call.request, images)
        return images

    def prompt(self, built: ModelInput, images: RequestImages | None, sequence: int) -> Any:
        """See `TaskProcessor`. vLLM's processor of the model puts the marker behind the tokens."""
        assert built.images is not None
        assert images is not None
        assert images.loaded is not None
        offsets = built.images.offsets
        members = built.images.members[offsets[sequence] : offsets[sequence + 1]].tolist()
        pixels = [images.loaded.pixels[built.images.rows[member]] for member in members]
        tokens = built.token_ids[built.offsets[sequence] : built.offsets[sequence + 1]].tolist()
        return {
            "prompt_token_ids": tokens[: len(tokens) - len(members)],
            "multi_modal_data": {"image": [Image.fromarray(picture) for picture in pixels]},
            "multi_modal_uuids": {"image": [built.images.keys[member] for member in members]},
        }

    def pooling_params(self, built: ModelInput, sequence: int) -> PoolingParams:
        """See `TaskProcessor`. One image per sequence: its marker is the query's last token."""
        return PoolingParams(task=built.task.value, use_activation=False)
