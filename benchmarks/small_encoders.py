"""Small embedding models: the two engines behind the same pipeline, beside sentence-transformers, in one process.

What is compared is the engine with its tokenizing, without a network and without Ray, where a small model's time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import environment, results_files
from benchmarks.backends import UsageError
from benchmarks.corpus import load_tokenizer, whole_words
from benchmarks.pages import machine, table
from benchmarks.stats import spread
from benchmarks.text.workload import Drawn, Lengths
from serve_app.checkpoint import read_checkpoint
from serve_app.engine.factory import engine_of
from serve_app.engine.protocol import Engine
from serve_app.messages import Context, EmbedRequest, EmbedResult
from serve_app.pipeline import Pipeline
from serve_app.settings import ModelSettings
from serve_app.tasks.model import TextModel
from serve_app.tokenization import TextTokenizer

WINDOW = 128
"""Tokens of a text; what is longer is cut, on all sides."""


class Side(Protocol):
    """Whatever makes vectors of texts."""

    name: str

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, float32 [texts, width]."""
        ...


class Engines:
    """A pipeline with one of our engines; texts come in requests of `inputs`, `concurrency` at a time."""

    def __init__(self, kind: str, pipeline: Pipeline, inputs: int, concurrency: int) -> None:
        self.name = f"{kind} engine"
        self._pipeline, self._inputs, self._concurrency = pipeline, inputs, concurrency

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Side.embed`."""
        starts = iter(range(0, len(texts), self._inputs))
        parts: dict[int, np.ndarray] = {}

        async def one() -> None:
            for start in starts:
                request = EmbedRequest(list(texts[start : start + self._inputs]), normalize=True)
                result = await self._pipeline.run(Context(f"b{start}", time.time() + 600), request)
                assert isinstance(result, EmbedResult)
                parts[start] = np.asarray(result.vectors)

        await asyncio.gather(*(one() for _ in range(self._concurrency)))
        return np.concatenate([parts[start] for start in sorted(parts)])


class Library:
    """sentence-transformers, all texts at hand, which it sorts by length."""

    def __init__(self, model: Any, batch: int) -> None:
        self.name = f"sentence-transformers, batch {batch}"
        self._model, self._batch = model, batch

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """See `Side.embed`."""
        found = self._model.encode(list(texts), batch_size=self._batch, normalize_embeddings=True)
        return np.asarray(found, dtype=np.float32)


def small_encoders(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the benchmark that the arguments describe."""
    if min(a.texts, a.inputs, a.concurrency, a.threads, a.rounds, *a.batches) < 1:
        raise UsageError("--texts, --inputs, --concurrency, --batches, --threads and --rounds are at least 1")
    hardware = environment.hardware()
    words = whole_words(load_tokenizer(a.model_dir))
    texts = Drawn(words, Lengths.parse(a.lengths)).texts("small encoders", a.texts)
    rates, cosines = asyncio.run(_measure(a, texts))
    result = {
        **environment.conditions(a.name, command, a.commit, hardware),
        "settings": {key: getattr(a, key) for key in ("dtype", "device", "texts", "inputs", "concurrency", "threads")}
        | {"lengths": a.lengths, "rounds": a.rounds, "model": _described(a.model_dir)},
        "texts_per_s": rates,
        "least_cosine": cosines,
        "valid": min(cosines.values()) >= (0.99999 if a.dtype == "float32" else 0.995),
    }
    text = page(result)
    print(text)
    for path in results_files.write(result, text, a.results_dir):
        print(path)
    return 0 if result["valid"] else 1


def _described(folder: Path) -> str:
    """`bert, 6 layers of 384`."""
    config = json.loads((folder / "config.json").read_text())
    return f"{config.get('model_type')}, {config.get('num_hidden_layers')} layers of {config.get('hidden_size')}"


async def _measure(a: argparse.Namespace, texts: Sequence[str]) -> tuple[dict[str, list[float]], dict[str, float]]:
    """texts/s of every side and round, and each side's least cosine to sentence-transformers in float32."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(a.threads)
    exact = SentenceTransformer(str(a.model_dir), device=a.device)
    model = SentenceTransformer(str(a.model_dir), device=a.device, model_kwargs={"dtype": getattr(torch, a.dtype)})
    exact.max_seq_length = model.max_seq_length = WINDOW
    want = np.asarray(exact.encode(list(texts), normalize_embeddings=True), dtype=np.float32)
    sides: list[Side] = [Library(model, batch) for batch in a.batches]
    engines: list[Engine] = []
    rates: dict[str, list[float]] = {}
    cosines: dict[str, float] = {}
    with ThreadPoolExecutor(1) as executor:
        for kind in ("vllm", "torch"):
            settings = _settings(a, kind)
            checkpoint = read_checkpoint(a.model_dir, settings)
            engines.append(engine_of(settings, checkpoint))
            await engines[-1].start()
            loaded = TextModel.of(settings, checkpoint, TextTokenizer(a.model_dir))
            sides.append(Engines(kind, Pipeline(loaded, engines[-1], executor), a.inputs, a.concurrency))
        torch.set_num_threads(a.threads)
        for side in sides:  # warm-up, and parity
            found = await side.embed(texts)
            cosines[side.name] = float((found * want).sum(1).min())
        for number in range(a.rounds):
            for side in sides if number % 2 == 0 else sides[::-1]:
                began = time.perf_counter()
                await side.embed(texts)
                rates.setdefault(side.name, []).append(len(texts) / (time.perf_counter() - began))
        for engine in engines:
            await engine.shutdown()
    return rates, cosines


def _settings(a: argparse.Namespace, kind: str) -> ModelSettings:
    values: dict[str, Any] = {
        "name": "small",
        "version": "1",
        "source": str(a.model_dir),
        "task": "embed",
        "device": a.device,
        "dtype": a.dtype,
        "max_model_len": WINDOW,
        "max_num_seqs": 512,
        "max_num_batched_tokens": 16_384,
        "engine": {"kind": kind, "enforce_eager": a.device == "cpu"},
        "pooling_engine": {"num_cpus": a.threads, "num_gpus": float(a.device == "cuda")},
    }
    if a.device == "cuda":
        values["gpu_memory_utilization"] = 0.3
    return ModelSettings.model_validate(values)


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    rates, s = result["texts_per_s"], result["settings"]
    library = {name: values for name, values in rates.items() if name.startswith("sentence")}
    best = max(library, key=lambda name: float(np.median(library[name])))
    rows = [
        [
            name,
            str(spread(values)),
            str(spread(x / y for x, y in zip(values, rates[best], strict=True))),
            f"{result['least_cosine'][name]:.6f}",
        ]
        for name, values in rates.items()
    ]
    intro = (
        f"{s['model']}, {s['dtype']} on {s['device']}, all sides; {s['texts']} texts a turn ({s['lengths']}), to the "
        f"engines in requests of {s['inputs']}, {s['concurrency']} in flight; tokenizing included on all sides; on a "
        f"CPU arithmetic on {s['threads']} thread(s) each. Warm-up excluded, order swapped every round, medians over "
        f"{s['rounds']} rounds, smallest and largest in brackets; ratios within a round, to the library's best batch. "
        "Cosine: the least of any text to sentence-transformers in float32."
    )
    head = ["side", "texts/s", f"÷ {best}", "least cosine"]
    valid = f"valid: {'yes' if result['valid'] else 'NO'}"
    lines = [f"# {result['name']}", "", valid, "", intro, "", *table(head, rows), "", *machine(result)]
    return "\n".join(lines) + "\n"
