"""What it gives to begin a step with whole requests: ready token ids, `engine.gather_ms` as the only difference."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import environment, results_files
from benchmarks.backends import UsageError
from benchmarks.kernels.commands import HALF_LIMIT, draw
from benchmarks.pages import machine, table
from benchmarks.stats import quantile, spread
from serve_app.checkpoint import read_checkpoint
from serve_app.engine.vllm_engine import VllmEngine
from serve_app.messages import EngineBatch, EngineOutput
from serve_app.settings import ModelSettings
from serve_app.vocabulary import PoolingTask


def gather(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the benchmark that the arguments describe."""
    if min(a.rounds, a.requests, a.documents, *a.concurrency) < 1 or len(set(a.gather_ms)) < 2:
        raise UsageError(
            "--rounds, --requests, --documents, --concurrency: at least 1; --gather-ms: two values or more"
        )
    hardware = environment.hardware()
    rows, difference = asyncio.run(_measure(a))
    limit = 1e-3 if a.dtype == "float32" else HALF_LIMIT
    result = {
        **environment.conditions(a.name, command, a.commit, hardware),
        "settings": {
            **{key: getattr(a, key) for key in ("dtype", "device", "documents", "requests", "rounds", "max_model_len")},
            "gather_ms": a.gather_ms,
            "model": environment.model_shape(a.model_dir),
        },
        "rows": rows,
        "largest_difference": difference,
        "valid": difference <= limit,
    }
    text = page(result)
    print(text)
    for path in results_files.write(result, text, a.results_dir):
        print(path)
    return 0 if result["valid"] else 1


async def _measure(a: argparse.Namespace) -> tuple[list[dict[str, Any]], float]:
    """(one row for each concurrency, value and round; largest difference of a logit between the engines)."""
    engines: dict[float, VllmEngine] = {}
    for value in a.gather_ms:
        settings = _settings(a, value)
        engines[value] = VllmEngine(settings, read_checkpoint(a.model_dir, settings))
        await engines[value].start()
    requests = draw(a.model_dir, "rerank", a.documents, a.requests, a.max_model_len)
    outputs = [await _answer(engine, requests[0], "parity") for engine in engines.values()]
    difference = max(float(np.abs(output - outputs[0]).max()) for output in outputs)
    rows = []
    for c in a.concurrency:
        for number in range(-1, a.rounds):  # the first is the warm-up
            for value in a.gather_ms if number % 2 == 0 else a.gather_ms[::-1]:
                began = time.perf_counter()
                times = await _turn(engines[value], requests, c, f"{c}-{number}")
                wall = time.perf_counter() - began
                if number >= 0:
                    row = {"concurrency": c, "gather_ms": value, "round": number, "p50_ms": 1e3 * quantile(times, 0.5)}
                    row |= {"p95_ms": 1e3 * quantile(times, 0.95), "pairs_per_s": a.documents * len(times) / wall}
                    rows.append(row)
    for engine in engines.values():
        await engine.shutdown()
    return rows, difference


async def _turn(engine: VllmEngine, requests: Sequence[Any], concurrency: int, name: str) -> list[float]:
    """Seconds of each request."""
    waiting = iter(enumerate(requests))
    times: list[float] = []

    async def one() -> None:
        for i, request in waiting:
            began = time.perf_counter()
            await _answer(engine, request, f"{name}-{i}")
            times.append(time.perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(concurrency)))
    return times


async def _answer(engine: VllmEngine, request: Sequence[Sequence[int]], name: str) -> np.ndarray:
    ids = np.concatenate([np.asarray(sequence, np.int32) for sequence in request])
    offsets = np.cumsum([0, *map(len, request)]).astype(np.int32)
    output = await engine.run(EngineBatch(name, PoolingTask.CLASSIFY, ids, offsets, None, time.time() + 600))
    assert isinstance(output, EngineOutput)
    return np.asarray(output.values)


def _settings(a: argparse.Namespace, gather_ms: float) -> ModelSettings:
    values: dict[str, Any] = {
        "name": "gather",
        "version": "1",
        "source": str(a.model_dir),
        "task": "rerank",
        "device": a.device,
        "dtype": a.dtype,
        "max_model_len": a.max_model_len,
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 16_384,
        "engine": {
            "enforce_eager": a.device == "cpu",
            "cuda_graph_max_tokens": 4096,
            "gather_ms": gather_ms,
            "kv_cache_gib": 4,
        },
        "pooling_engine": {"num_gpus": float(a.device == "cuda")},
    }
    if a.device == "cuda":
        values["gpu_memory_utilization"] = a.gpu_memory
    else:
        values["engine"]["kv_cache_gib"] = 1
    return ModelSettings.model_validate(values)


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    s = result["settings"]
    first = s["gather_ms"][0]
    lines = [f"# {result['name']}", "", f"valid: {'yes' if result['valid'] else 'NO'}", ""]
    lines += [
        f"One engine a side, ready token ids of {s['documents']} pairs a request, no HTTP and no Ray; {s['dtype']} on "
        f"{s['device']}, both sides. {s['requests']} requests a turn, warm-up excluded, order swapped every round, "
        f"medians over {s['rounds']} rounds, smallest and largest in brackets; ratios within a round. Largest "
        f"difference of a logit between the engines: {result['largest_difference']:.1e}.",
        "",
    ]
    rows = []
    by_place = {(row["concurrency"], row["gather_ms"], row["round"]): row for row in result["rows"]}
    for c in dict.fromkeys(row["concurrency"] for row in result["rows"]):
        for value in s["gather_ms"]:
            own = [by_place[c, value, number] for number in range(s["rounds"])]
            base = [by_place[c, first, number] for number in range(s["rounds"])]
            rows.append(
                [
                    str(c),
                    f"{value:g}",
                    *(str(spread(row[key] for row in own)) for key in ("p50_ms", "p95_ms", "pairs_per_s")),
                    str(spread(x["p50_ms"] / y["p50_ms"] for x, y in zip(own, base, strict=True))),
                    str(spread(x["pairs_per_s"] / y["pairs_per_s"] for x, y in zip(own, base, strict=True))),
                ]
            )
    head = ["c", "gather_ms", "p50 ms", "p95 ms", "pairs/s", f"p50 ÷ {first:g}", f"pairs/s ÷ {first:g}"]
    return "\n".join([*lines, *table(head, rows), "", *machine(result)]) + "\n"
