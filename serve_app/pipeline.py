"""One request through a model: build the input, run the engine, post-process. Needs neither Ray nor a GPU."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Protocol

import numpy as np

from serve_app.api.base import Limits, Meta
from serve_app.errors import DeadlineExceeded, InternalError, InvalidRequest, ModelUnavailable
from serve_app.messages import (
    AbsaRequest,
    AbsaResult,
    ClassifyRequest,
    ClassifyResult,
    Context,
    DataRequest,
    DataResult,
    EmbedRequest,
    EmbedResult,
    EngineBatch,
    EngineOutput,
    ImageRef,
    ItemError,
    LoadedImages,
    MissingImages,
    PipelineRequest,
    PipelineResult,
    PoolRequest,
    PoolResult,
    ScoreRequest,
    ScoreResult,
    Served,
)
from serve_app.observability.tracing import NO_TRACER, Tracer
from serve_app.plugin_host.host import PluginHost
from serve_app.plugin_host.native import as_json, read_data
from serve_app.scaling.meter import Meter
from serve_app.tasks.absa import build_input as absa_input
from serve_app.tasks.absa import postprocess as absa_post
from serve_app.tasks.absa.labels import AbsaKind, AbsaScheme
from serve_app.tasks.classify import build_input as classify_input
from serve_app.tasks.classify import postprocess as classify_post
from serve_app.tasks.embed import build_input as embed_input
from serve_app.tasks.embed import postprocess as embed_post
from serve_app.tasks.image_rank import build_input as image_rank_input
from serve_app.tasks.image_rank import postprocess as image_rank_post
from serve_app.tasks.images import (
    ImageStage,
    Item,
    LoaderClient,
    RequestImages,
    document_errors,
    image_items,
    refuse_images,
)
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.tasks.pooling import build_input as pooling_input
from serve_app.tasks.pooling import postprocess as pooling_post
from serve_app.tasks.rerank import build_input as rerank_input
from serve_app.tasks.rerank import postprocess as rerank_post
from serve_app.vocabulary import OPERATIONS, Measure, Operation, Stage, Task


class EngineClient(Protocol):
    """Whatever runs a batch: the engine itself, or a handle to its replicas."""

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput | MissingImages:
        """Runs all sequences of a request; cancelling the call ends its work. `loaded`: the pixels of its images."""
        ...


class Pipeline:
    """The stages of a request for one model version.

    Args:
        model: settings, checkpoint facts, tokenizer.
        engine: runs the batches.
        executor: where tokenizing runs; the event loop must stay free.
        loader: loads images; None for a model that reads text only.
        plugin: answers `DataRequest`; None: our own task does, if it can.
        tracer: makes the stages' spans.
    """

    def __init__(
        self,
        model: TextModel,
        engine: EngineClient,
        executor: Executor,
        loader: LoaderClient | None = None,
        plugin: PluginHost | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self.model = model
        self.plugin = plugin
        self.meter = Meter(Measure.DOCUMENTS)  # that wait for the executor or are in it
        self._engine = engine
        self._executor = executor
        self._tracer = tracer
        self.images: ImageStage | None = None
        if (facts := model.checkpoint.images) is not None and loader is not None:
            keeps_vectors = model.settings.task is Task.EMBED
            self.images = ImageStage(facts, model.settings.images, loader, executor, keeps_vectors=keeps_vectors)

    async def run(self, context: Context, request: PipelineRequest) -> PipelineResult:
        """Answers a request.

        Raises:
            CallerError: the request is at fault.
            ServerError: overload, a dead engine, a passed deadline.
        """
        self._check_task(request)
        if isinstance(request, DataRequest):
            return await (self._run_plugin if self.plugin is not None else self._run_task)(context, request)
        timings: dict[str, float] = {}
        items = image_items(request)
        images = await self._resolve(items, context, timings) if items else None
        built = await self._build(request, context, images, timings)
        output = await self._ask(context, built, images, timings)
        if isinstance(output, MissingImages):
            # What the engine was thought to hold it has dropped, or another replica was asked: send everything.
            images = await self._resolve(items, context, timings, send_all=True)
            built = await self._build(request, context, images, timings)
            output = await self._ask(context, built, images, timings)
            if isinstance(output, MissingImages):
                raise InternalError("the engine did not take the images")
        started = time.perf_counter()
        self._remember(items, images, built, output)
        if isinstance(request, AbsaRequest):  # looks at every word: the event loop must stay free
            loop = asyncio.get_running_loop()
            with self.meter.work({Measure.DOCUMENTS: count_documents(request)}):
                result = await loop.run_in_executor(
                    self._executor, result_of, self.model, request, built, output, images, timings
                )
        else:
            result = result_of(self.model, request, built, output, images, timings)
        self._post_ends(context, timings, started)
        return result

    async def _run_task(self, context: Context, request: DataRequest) -> DataResult:
        """`data` of our own tasks: the body of the task's route in, its answer out."""
        limits, loop = Limits(request.max_documents, request.max_images), asyncio.get_running_loop()
        call = await loop.run_in_executor(
            self._executor, read_data, self.model.settings.task, request.data, limits, request.beside
        )
        result = await self.run(context, call.request)
        ignored = tuple(f"data.{name}" for name in sorted({*call.ignored, *result.served.ignored}))
        answer = as_json(call.render(result, Meta(context.request_id, int(time.time()))))
        return DataResult(answer, replace(result.served, ignored=ignored))

    async def _run_plugin(self, context: Context, request: DataRequest) -> DataResult:
        """`data` of a vLLM IO Processor plugin; see `plugin_host/host.py`."""
        assert self.plugin is not None
        started = time.perf_counter()
        with self.meter.work({Measure.DOCUMENTS: 1}):
            call = await self.plugin.prepare(context, request)
        elapsed = (time.perf_counter() - started) * 1e3
        timings: dict[str, float] = {Stage.TOKENIZE: elapsed}
        self._tracer.past(Stage.TOKENIZE.value, context.trace, time.time() - elapsed / 1e3, elapsed)
        output = await self._ask(context, call.built, None, timings)
        assert isinstance(output, EngineOutput)  # there are no images
        started = time.perf_counter()
        answer = await self.plugin.finish(context, call, output)
        self._post_ends(context, timings, started)
        return DataResult(answer, _served(self.model, call.built, timings))

    async def _resolve(
        self, items: Sequence[Item], context: Context, timings: dict[str, float], *, send_all: bool = False
    ) -> RequestImages:
        if self.images is None:
            refuse_images(self.model.settings.name, items)
            raise InternalError("this model takes images, and has no loader for them")
        images = await self.images.resolve(items, context.deadline, send_all=send_all, trace=context.trace)
        if images.loaded is not None:
            timings[Stage.FETCH] = timings.get(Stage.FETCH, 0.0) + images.loaded.fetch_ms
            timings[Stage.DECODE] = timings.get(Stage.DECODE, 0.0) + images.loaded.decode_ms
        return images

    def _post_ends(self, context: Context, timings: dict[str, float], started: float) -> None:
        timings[Stage.POST] = elapsed = (time.perf_counter() - started) * 1e3
        self._tracer.past(Stage.POST.value, context.trace, time.time() - elapsed / 1e3, elapsed)

    async def _build(
        self, request: PipelineRequest, context: Context, images: RequestImages | None, timings: dict[str, float]
    ) -> ModelInput:
        started = time.perf_counter()
        if images is not None:
            document_errors(request, images)  # nothing is left to rank: say so before the engine is asked
        loop = asyncio.get_running_loop()
        with (
            self._tracer.span(Stage.TOKENIZE.value, context.trace),
            self.meter.work({Measure.DOCUMENTS: count_documents(request)}),
        ):
            built = await loop.run_in_executor(self._executor, build_input, self.model, request, images)
        timings[Stage.TOKENIZE] = timings.get(Stage.TOKENIZE, 0.0) + (time.perf_counter() - started) * 1e3
        return built

    async def _ask(
        self, context: Context, built: ModelInput, images: RequestImages | None, timings: dict[str, float]
    ) -> EngineOutput | MissingImages:
        if time.time() >= context.deadline:
            raise DeadlineExceeded("the deadline passed before the engine was asked")
        if len(built.offsets) == 1:  # every image's vector is known
            return EngineOutput(np.empty((0, 0), dtype=np.float32), 0.0, 0.0)
        started = time.perf_counter()
        sends_pixels = built.images is not None and bool((built.images.rows >= 0).any())
        output = await self._engine.run(_batch(context, built), images.loaded if images and sends_pixels else None)
        elapsed = (time.perf_counter() - started) * 1e3
        if isinstance(output, EngineOutput) and output.version not in ("", self.model.settings.version):
            # Somebody changed the version inside one application. Two versions' stages make no answer of either.
            raise ModelUnavailable(f"the engine runs version {output.version} of the model: it is being replaced")
        engine_ms = output.engine_ms if isinstance(output, EngineOutput) else 0.0
        # Everything on the way to the engine and back that is not its work: handle, router, its own queue.
        timings[Stage.QUEUE] = timings.get(Stage.QUEUE, 0.0) + max(0.0, elapsed - engine_ms)
        timings[Stage.ENGINE] = timings.get(Stage.ENGINE, 0.0) + engine_ms
        return output

    def _remember(
        self, items: Sequence[Item], images: RequestImages | None, built: ModelInput, output: EngineOutput
    ) -> None:
        if self.images is not None and images is not None:
            self.images.remember_urls(items, images.keys)
            if self.model.settings.task is Task.EMBED:
                self.images.remember(embed_post.new_vectors(built, output))

    def _check_task(self, request: PipelineRequest) -> None:
        operation = {
            ScoreRequest: Operation.SCORE,
            EmbedRequest: Operation.EMBED,
            ClassifyRequest: Operation.CLASSIFY,
            AbsaRequest: Operation.ABSA,
            PoolRequest: Operation.POOLING,
            DataRequest: Operation.POOLING,
        }[type(request)]
        if operation not in OPERATIONS[self.model.settings.task]:
            raise InvalidRequest(
                f"model: '{self.model.settings.name}' is a {self.model.settings.task} model and cannot {operation}",
                "model",
            )


def count_documents(request: PipelineRequest) -> int:
    """Documents or inputs of a request; data that only a processor can read is one."""
    match request:
        case ScoreRequest():
            return len(request.documents)
        case DataRequest():
            return 1
        case _:
            return len(request.inputs)


def result_of(
    model: TextModel,
    request: PipelineRequest,
    built: ModelInput,
    output: EngineOutput,
    images: RequestImages | None,
    timings: dict[str, float],
) -> PipelineResult:
    """Post-processing: the engine's answer as the request's result."""
    errors = document_errors(request, images) if images is not None else ()
    served = replace(_served(model, built, timings, errors), ignored=without_effect(model, request))
    match request:
        case ScoreRequest() if model.settings.task is Task.EMBED:
            return ScoreResult(embed_post.pair_scores(model, request, built, output, images), served)
        case ScoreRequest() if model.settings.task is Task.IMAGE_RANK:
            return ScoreResult(image_rank_post.postprocess(model, request, built, output), served)
        case ScoreRequest():
            return ScoreResult(rerank_post.postprocess(model, request, built, output), served)
        case EmbedRequest():
            return EmbedResult(embed_post.postprocess(model, request, built, output, images), served)
        case ClassifyRequest():
            scores = classify_post.postprocess(model, request, built, output)
            return ClassifyResult(scores, model.checkpoint.labels, served)
        case AbsaRequest():
            return AbsaResult(absa_post.postprocess(model, request, built, output), served)
        case PoolRequest():
            return PoolResult(pooling_post.postprocess(model, request, built, output), served)
        case DataRequest():
            raise InternalError("data has no result of its own")


def without_effect(model: TextModel, request: PipelineRequest) -> tuple[str, ...]:
    """The caller's names of what the request has and this model has no use for, so that the answer can say so."""
    if not isinstance(request, ScoreRequest):
        return ()
    names: tuple[str, ...] = ()
    if request.instruction is not None and not rerank_input.reads_instruction(model):
        names += request.instruction_fields
    if model.settings.task is Task.IMAGE_RANK:  # its documents are images
        names += ("max_tokens_per_doc",) * (request.truncation.max_document_tokens is not None)
        names += ("max_chunks_per_doc",) * (request.truncation.max_chunks > 1)
    return names


def _served(model: TextModel, built: ModelInput, timings: dict[str, float], errors: Sequence[ItemError] = ()) -> Served:
    return Served(
        model=model.settings.name,
        version=model.settings.version,
        prompt_tokens=built.prompt_tokens,
        truncated=built.truncated,
        timings=timings,
        errors=errors,
    )


def build_input(model: TextModel, request: PipelineRequest, images: RequestImages | None = None) -> ModelInput:
    """The request's sequences; blocking work for a worker thread."""
    match request:
        case ScoreRequest() if model.settings.task is Task.EMBED:
            return embed_input.build_pair_input(model, request, images)
        case ScoreRequest() if model.settings.task is Task.IMAGE_RANK:
            return image_rank_input.build_input(model, request, images)
        case ScoreRequest():
            return rerank_input.build_input(model, request)
        case EmbedRequest():
            return embed_input.build_input(model, request, images)
        case ClassifyRequest():
            return classify_input.build_input(model, request)
        case AbsaRequest():
            return absa_input.build_input(model, request)
        case PoolRequest():
            return pooling_input.build_input(model, request)
        case DataRequest():
            raise InternalError("data is read before it is built")


def _batch(context: Context, built: ModelInput) -> EngineBatch:
    return EngineBatch(
        request_id=context.request_id,
        task=built.task,
        token_ids=built.token_ids,
        offsets=built.offsets,
        segment_starts=built.segment_starts,
        deadline=context.deadline,
        images=built.images,
        score_per_marker=built.marker_owners is not None,
        values_per_token=built.task in pooling_input.PER_TOKEN and built.params is None,
        rows_before=built.rows_before,
        params=built.params,
        trace=context.trace,
    )


CANARY_PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAIAQAAAADsdIMmAAAADUlEQVR42mP4z8SADAEPcQEOdvOI0AAAAABJRU5ErkJggg=="
)
"""A white PNG of 8 x 8 pixels."""


def canary_request(task: Task, absa: AbsaScheme | None = None) -> PipelineRequest:
    """The smallest request that a model of this task answers; `absa`: what an ABSA model's labels mean."""
    match task:
        case Task.RERANK:
            return ScoreRequest(["ready"], ["ready"])
        case Task.EMBED:
            return EmbedRequest(["ready"])
        case Task.IMAGE_RANK:
            return ScoreRequest(["ready"], [ImageRef(data=CANARY_PICTURE)])
        case Task.CLASSIFY:
            return ClassifyRequest(["ready"])
        case Task.ABSA:
            rates_pairs = absa is not None and absa.kind is AbsaKind.PAIRS
            return AbsaRequest(["ready"], aspects=["ready"] if rates_pairs else None)
