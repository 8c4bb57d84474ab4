"""The image stage of a request: what is known about its images already, and pixels for those that are new.

A key is what an image's content, the model and the preprocessing come to. Known by its key are an image's vector (dual
encoders, kept here) and its features (fusion rankers, kept on the engine's device); neither needs the image again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

from blake3 import blake3
from cachetools import LRUCache, TTLCache

from serve_app.checkpoint import ImageFacts
from serve_app.errors import InvalidRequest, NoUsableImage
from serve_app.messages import (
    DataRequest,
    EmbedRequest,
    FloatArray,
    ImageRef,
    ItemError,
    LoadedImages,
    LoadRequest,
    PipelineRequest,
    ScoreRequest,
)
from serve_app.settings import ImageSettings
from serve_app.vocabulary import MediaErrorCode

HASHED_INLINE = 1 << 16
"""Bytes up to which hashing costs less than a trip to a thread (20 µs)."""
URLS = 100_000
"""URLs whose content is remembered; about 300 bytes each."""


class LoaderClient(Protocol):
    """Whatever loads images: the loader itself, or a handle to its replicas."""

    async def load(self, request: LoadRequest) -> LoadedImages:
        """Loads all images; one that fails is among the answer's errors."""
        ...


@dataclass(frozen=True, slots=True)
class Item:
    """One text or image of a request. index: its place; field: the caller's name of it."""

    index: int
    field: str
    image: ImageRef


@dataclass(slots=True)
class RequestImages:
    """The images of one request.

    Attributes:
        keys: key by item index; failed items are absent.
        rows: row of pixels by key, of those that were loaded.
        errors: the failed items, by item index.
        vectors: by key, those that are known (dual encoders).
        loaded: the pixels, or None if nothing had to be loaded.
    """

    keys: dict[int, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    errors: dict[int, ItemError] = field(default_factory=dict)
    vectors: dict[str, FloatArray] = field(default_factory=dict)
    loaded: LoadedImages | None = None


def image_items(request: PipelineRequest) -> list[Item]:
    """The request's images. Items of a ScoreRequest are numbered through, queries first."""
    match request:
        case ScoreRequest():
            single = len(request.queries) == 1
            queries = (
                (request.query_field if single else f"{request.query_field}[{i}]") for i in _count(request.queries)
            )
            documents = (f"{request.document_field}[{i}]" for i in _count(request.documents))
            found = _images(request.queries, queries, 0)
            return found + _images(request.documents, documents, len(request.queries))
        case EmbedRequest():
            return _images(request.inputs, (f"{request.input_field}[{i}]" for i in _count(request.inputs)), 0)
        case _:
            return []


def _count(items: Sequence[Any]) -> range:
    return range(len(items))


def _images(items: Sequence[Any], fields: Iterable[str], first: int) -> list[Item]:
    if ImageRef not in set(map(type, items)):  # runs in C: 500 texts take 5 µs
        return []
    return [
        Item(first + i, f"{name}.image", item)
        for i, (item, name) in enumerate(zip(items, fields, strict=True))
        if isinstance(item, ImageRef)
    ]


class ImageStage:
    """Finds out about a request's images, for one model version.

    Args:
        facts: how the model takes images.
        settings: the model's cache sizes.
        loader: loads those that are not known.
        executor: where large images are hashed.
        keeps_vectors: whether the model is a dual encoder, whose vectors are kept here.
    """

    def __init__(
        self,
        facts: ImageFacts,
        settings: ImageSettings,
        loader: LoaderClient,
        executor: Executor,
        *,
        keeps_vectors: bool,
    ) -> None:
        self._facts = facts
        self._loader = loader
        self._executor = executor
        self._keeps_vectors = keeps_vectors
        self._hashes: TTLCache[str, str] = TTLCache(URLS, max(settings.url_ttl_s, 1e-9))
        self._vectors: LRUCache[str, FloatArray] = LRUCache(settings.vector_cache)
        self.vector_hits = self.vector_misses = 0

    async def resolve(
        self, items: Sequence[Item], deadline: float, *, send_all: bool = False, trace: str = ""
    ) -> RequestImages:
        """Keys, known vectors and pixels.

        Args:
            items: the request's images.
            deadline: wall-clock seconds.
            send_all: load every image, known or not: the engine does not hold what it was thought to.
            trace: see `Context`.
        """
        result = RequestImages()
        unknown = []
        for item in items:
            if item.image.complaint:
                result.errors[item.index] = ItemError(item.index, MediaErrorCode.UNDECODABLE, item.image.complaint)
                continue
            content = await self._content(item.image)
            if content is not None:
                result.keys[item.index] = self._key(content)
            if content is None or send_all or not self._is_held(result.keys[item.index]):
                unknown.append(item)
        if unknown:
            await self._load(unknown, deadline, result, trace)
        if self._keeps_vectors:
            for key in result.keys.values():
                if (vector := self._vectors.get(key)) is not None:
                    result.vectors[key] = vector
            self.vector_hits += len(result.vectors)
            self.vector_misses += len(set(result.keys.values())) - len(result.vectors)
        return result

    def remember(self, vectors: Mapping[str, FloatArray]) -> None:
        """Keeps image vectors by key."""
        for key, vector in vectors.items():
            if self._vectors.maxsize:
                self._vectors[key] = vector

    def remember_urls(self, items: Sequence[Item], keys: Mapping[int, str]) -> None:
        """Keeps what each URL held, once an engine has answered for it."""
        prefix = len(self._facts.key) + 1
        for item in items:
            if item.image.url is not None and item.index in keys:
                self._hashes[item.image.url] = keys[item.index][prefix:]

    async def _content(self, image: ImageRef) -> str | None:
        """The content's hash, as far as it is known without fetching."""
        if image.data is None:
            return self._hashes.get(image.url or "")
        if len(image.data) <= HASHED_INLINE:
            return content_hash(image.data)
        return await asyncio.get_running_loop().run_in_executor(self._executor, content_hash, image.data)

    def _is_held(self, key: str) -> bool:
        """Whether the image itself is not needed: its vector is here, or the engine is thought to have its features.

        An engine is only asked about images whose content is known: it says so if it does not hold them, at the cost of
        one more call.
        """
        return not self._keeps_vectors or key in self._vectors

    def _key(self, content: str) -> str:
        return f"{self._facts.key}-{content}"

    async def _load(self, items: Sequence[Item], deadline: float, result: RequestImages, trace: str) -> None:
        request = LoadRequest(
            [item.image for item in items], [item.field for item in items], self._facts.spec, deadline, trace
        )
        loaded = await self._loader.load(request)
        result.loaded = loaded
        for error in loaded.errors:
            item = items[error.index]
            result.keys.pop(item.index, None)
            result.errors[item.index] = ItemError(item.index, error.code, error.message)
        for item, content, row in zip(items, loaded.hashes, loaded.rows.tolist(), strict=True):
            if row >= 0:
                key = self._key(content)
                result.keys[item.index], result.rows[key] = key, row


def content_hash(data: bytes) -> str:
    """An image's content hash, as the loader makes it."""
    return blake3(data).hexdigest(length=16)


def refuse_images(model: str, items: Sequence[Item]) -> None:
    """For a model that reads text only.

    Raises:
        InvalidRequest: there is an image; names the first one's field.
    """
    if items:
        raise InvalidRequest(f"{items[0].field}: '{model}' reads text only", items[0].field)


def document_errors(request: PipelineRequest, images: RequestImages) -> tuple[ItemError, ...]:
    """The failed documents, or inputs, by their own index.

    Raises:
        NoUsableImage: a query failed, or every document did.
    """
    if not images.errors:
        return ()
    queries = len(request.queries) if isinstance(request, ScoreRequest) else 0
    assert not isinstance(request, DataRequest)  # it is read before images are looked for
    documents = len(request.documents if isinstance(request, ScoreRequest) else request.inputs)
    paired = queries > 1
    failed: dict[int, ItemError] = {}
    for index, error in images.errors.items():
        if index >= queries:
            failed[index - queries] = error
        elif paired:
            failed.setdefault(index, error)
        else:
            raise _unusable(error)
    if len(failed) == documents:
        raise _unusable(failed[0])
    return tuple(ItemError(i, failed[i].code, failed[i].message) for i in sorted(failed))


def _unusable(error: ItemError) -> NoUsableImage:
    return NoUsableImage(error.message, error.message.partition(":")[0], error.code)
