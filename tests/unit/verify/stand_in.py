"""A served side with Transformers in vLLM's place: the real pipeline, with a fault planted where one can be made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoModelForTokenClassification

from serve_app.messages import EngineBatch, EngineOutput, LoadedImages
from serve_app.pipeline import Pipeline
from serve_app.sentence_modules import load_dense
from serve_app.settings import ImageLoaderSettings, ModelSettings
from serve_app.tasks.absa.labels import AbsaKind
from serve_app.tasks.absa.reference import TwoHeadTokenClassifier
from serve_app.tasks.model import TextModel, load_text_model
from serve_app.verify.served import LocalServed, Served
from serve_app.vocabulary import DType, PoolingType, Task

torch.set_num_threads(1)  # threads that wait for each other on busy cores take ten times as long


class TransformersEngine:
    """Runs batches through Transformers, a sequence at a time.

    Args:
        model: what is served.
        dtype: what it computes in, whatever the settings say.
        token_types: False leaves them out, as an engine does that is not told about them.
    """

    def __init__(self, model: TextModel, *, dtype: torch.dtype, token_types: bool) -> None:
        self._model = _load(model, dtype)
        self._embeds = model.settings.task is Task.EMBED
        self._pooling = model.checkpoint.pooling
        self._dense = load_dense(model.checkpoint.folder, model.checkpoint.dense)
        self._token_types = token_types

    async def run(self, batch: EngineBatch, loaded: LoadedImages | None = None) -> EngineOutput:
        rows = []
        for i, ids in enumerate(np.split(batch.token_ids, batch.offsets[1:-1])):
            inputs = {"input_ids": torch.from_numpy(ids.astype(np.int64))[None]}
            if batch.segment_starts is not None and self._token_types:
                inputs["token_type_ids"] = (torch.arange(len(ids)) >= int(batch.segment_starts[i])).long()[None]
            with torch.inference_mode():
                rows.append(self._values(self._model(**inputs), batch).float().numpy())
        return EngineOutput(np.concatenate(rows), 0.0, 0.0)

    def _values(self, output: Any, batch: EngineBatch) -> torch.Tensor:
        """[1, width] of a sequence, or [its tokens and what is before them, width]."""
        if batch.rows_before:
            tokens, whole = output
            row = torch.zeros(1, tokens.shape[2])
            row[0, : whole.shape[1]] = whole[0]
            return torch.cat([row, tokens[0].float()])
        if not self._embeds:
            return output.logits[0] if batch.values_per_token else output.logits
        states = output.last_hidden_state.float()
        if self._pooling is PoolingType.MEAN:
            return self._dense(states.mean(1))
        return self._dense(states[:, 0 if self._pooling is PoolingType.CLS else -1])


def _load(model: TextModel, dtype: torch.dtype) -> Any:
    folder, scheme = model.checkpoint.folder, model.checkpoint.absa
    if scheme is not None and scheme.kind is AbsaKind.TWO_HEADS:
        return TwoHeadTokenClassifier.load(folder, DType(str(dtype).removeprefix("torch.")))
    kinds: dict[Task, Any] = {Task.EMBED: AutoModel, Task.ABSA: AutoModelForTokenClassification}
    kind = kinds.get(model.settings.task, AutoModelForSequenceClassification)
    return kind.from_pretrained(folder, dtype=dtype).eval()


def serving(
    *, dtype: torch.dtype = torch.float32, token_types: bool = True
) -> Callable[[ModelSettings, ImageLoaderSettings], AbstractContextManager[Served]]:
    """What starts the served side, in the place of `in_this_process`."""

    @contextmanager
    def start(settings: ModelSettings, images: ImageLoaderSettings) -> Iterator[Served]:
        model = load_text_model(settings)
        engine = TransformersEngine(model, dtype=dtype, token_types=token_types)
        with asyncio.Runner() as runner, ThreadPoolExecutor(1) as executor:
            yield LocalServed(runner, Pipeline(model, engine, executor), "a stand-in", {"stand-in": "1"})

    return start
