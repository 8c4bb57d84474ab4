"""One request through a model: build the input, run the engine, post-process. Needs neither Ray nor a GPU."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Executor
from typing import Protocol

from serve_app.errors import DeadlineExceeded, InvalidRequest
from serve_app.messages import (
    ClassifyRequest,
    ClassifyResult,
    Context,
    EmbedRequest,
    EmbedResult,
    EngineBatch,
    EngineOutput,
    PipelineRequest,
    PipelineResult,
    ScoreRequest,
    ScoreResult,
    Served,
)
from serve_app.tasks.classify import build_input as classify_input
from serve_app.tasks.classify import postprocess as classify_post
from serve_app.tasks.embed import build_input as embed_input
from serve_app.tasks.embed import postprocess as embed_post
from serve_app.tasks.model import ModelInput, TextModel
from serve_app.tasks.rerank import build_input as rerank_input
from serve_app.tasks.rerank import postprocess as rerank_post
from serve_app.vocabulary import OPERATIONS, Operation, Stage, Task


class EngineClient(Protocol):
    """Whatever runs a batch: the engine itself, or a handle to its replicas."""

    async def run(self, batch: EngineBatch) -> EngineOutput:
        """Runs all sequences of a request; cancelling the call ends its work."""
        ...


class Pipeline:
    """The stages of a request for one model version.

    Args:
        model: settings, checkpoint facts, tokenizer.
        engine: runs the batches.
        executor: where tokenizing runs; the event loop must stay free.
    """

    def __init__(self, model: TextModel, engine: EngineClient, executor: Executor) -> None:
        self.model = model
        self._engine = engine
        self._executor = executor

    async def run(self, context: Context, request: PipelineRequest) -> PipelineResult:
        """Answers a request.

        Raises:
            CallerError: the request is at fault.
            ServerError: overload, a dead engine, a passed deadline.
        """
        self._check_task(request)
        started = time.perf_counter()
        loop = asyncio.get_running_loop()
        built = await loop.run_in_executor(self._executor, build_input, self.model, request)
        tokenized = time.perf_counter()
        if time.time() >= context.deadline:
            raise DeadlineExceeded("the deadline passed before the engine was asked")
        output = await self._engine.run(_batch(context, built))
        answered = time.perf_counter()
        result = self._result(request, built, output)
        result.served.timings.update(
            {
                Stage.TOKENIZE: (tokenized - started) * 1e3,
                # Everything on the way to the engine and back that is not its work: handle, router, its own queue.
                Stage.QUEUE: max(0.0, (answered - tokenized) * 1e3 - output.engine_ms),
                Stage.ENGINE: output.engine_ms,
                Stage.POST: (time.perf_counter() - answered) * 1e3,
            }
        )
        return result

    def _check_task(self, request: PipelineRequest) -> None:
        operation = {
            ScoreRequest: Operation.SCORE,
            EmbedRequest: Operation.EMBED,
            ClassifyRequest: Operation.CLASSIFY,
        }[type(request)]
        if operation not in OPERATIONS[self.model.settings.task]:
            raise InvalidRequest(
                f"model: '{self.model.settings.name}' is a {self.model.settings.task} model and cannot {operation}",
                "model",
            )

    def _result(self, request: PipelineRequest, built: ModelInput, output: EngineOutput) -> PipelineResult:
        served = Served(
            model=self.model.settings.name,
            version=self.model.settings.version,
            prompt_tokens=built.prompt_tokens,
            truncated=built.truncated,
            timings={},
        )
        match request:
            case ScoreRequest() if self.model.settings.task is Task.EMBED:
                return ScoreResult(embed_post.cosine_scores(request, built, output), served)
            case ScoreRequest():
                return ScoreResult(rerank_post.postprocess(self.model, request, built, output), served)
            case EmbedRequest():
                return EmbedResult(embed_post.postprocess(self.model, request, built, output), served)
            case ClassifyRequest():
                scores = classify_post.postprocess(self.model, request, built, output)
                return ClassifyResult(scores, self.model.checkpoint.labels, served)


def build_input(model: TextModel, request: PipelineRequest) -> ModelInput:
    """The request's sequences; blocking work for a worker thread."""
    match request:
        case ScoreRequest() if model.settings.task is Task.EMBED:
            return embed_input.build_pair_input(model, request)
        case ScoreRequest():
            return rerank_input.build_input(model, request)
        case EmbedRequest():
            return embed_input.build_input(model, request)
        case ClassifyRequest():
            return classify_input.build_input(model, request)


def _batch(context: Context, built: ModelInput) -> EngineBatch:
    return EngineBatch(
        request_id=context.request_id,
        task=built.task,
        token_ids=built.token_ids,
        offsets=built.offsets,
        segment_starts=built.segment_starts,
        deadline=context.deadline,
    )


def canary_request(task: Task) -> PipelineRequest:
    """The smallest request that a model of this task answers."""
    match task:
        case Task.RERANK:
            return ScoreRequest(["ready"], ["ready"])
        case Task.EMBED:
            return EmbedRequest(["ready"])
        case Task.CLASSIFY:
            return ClassifyRequest(["ready"])
