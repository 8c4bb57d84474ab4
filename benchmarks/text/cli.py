"""Command lines of `absa`, `embed`, `classify` and `documents`; `README.md` explains their options."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import environment
from benchmarks.backends import Backend, UsageError, dtype_name, parse_backend
from benchmarks.corpus import FALLBACK_WORDS, load_tokenizer, whole_words
from benchmarks.launch import VllmOptions, poolserve_backend, vllm_backend
from benchmarks.text.checkpoints import SHAPES as MODEL_SHAPES
from benchmarks.text.checkpoints import TASKS, make_text_model
from benchmarks.text.options import DEFAULT_LENGTHS, TextOptions, methods
from benchmarks.text.run import TextRun
from benchmarks.text.wire import SHAPES
from benchmarks.text.workload import Drawn, DrawnPairs, FromFile, Lengths
from serve_app.checkpoint import max_positions

_HELP = {
    "absa": "aspect-based sentiment beside Transformers one by one and in batches",
    "embed": "embeddings beside sentence-transformers at its best batch size",
    "classify": "sequence classification beside Transformers one by one and in batches",
    "documents": "reranking by documents of a request (is time per document flat?), beside a CrossEncoder",
}
_BATCHES = {"absa": [32], "embed": [32, 128, 512], "classify": [32], "documents": [32]}
_INPUTS = {"documents": [20, 50, 100, 200, 500]}


def add_commands(commands: Any) -> None:
    """Adds the subcommands."""
    for task in _HELP:
        _options(commands.add_parser(task, help=_HELP[task]), task)
    make = commands.add_parser("make-text-model", help="write a BERT checkpoint with random weights")
    make.set_defaults(run=make_model)
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--task", choices=TASKS, required=True)
    make.add_argument("--shape", choices=MODEL_SHAPES, default="bert-base")
    make.add_argument("--tokenizer", type=Path, help="folder with a BERT-style tokenizer.json; default: one is made")
    make.add_argument("--device", default="cpu", help="where the head is fitted (cuda is faster)")


def make_model(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Writes a checkpoint."""
    print(make_text_model(a.out, a.task, a.shape, a.tokenizer, a.device))
    return 0


def _options(p: argparse.ArgumentParser, task: str) -> None:
    p.set_defaults(run=run, task=task)
    shapes = ", ".join(f"{name} ({shape.path})" for name, shape in SHAPES[task].items())
    servers = p.add_argument_group("servers")
    servers.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME=URL[,model=M][,dtype=D][,shape=S]",
        help=f"a running server; shapes: {shapes}",
    )
    servers.add_argument("--launch-poolserve", type=Path, metavar="CONFIG.yaml")
    servers.add_argument("--poolserve-command", default=f"{sys.executable} -m serve_app up")
    servers.add_argument("--poolserve-url", default="http://127.0.0.1:8000")
    servers.add_argument("--launch-vllm", type=Path, metavar="MODEL_DIR")
    servers.add_argument("--vllm-args", default="", metavar="'--a b …'", help="more options of `vllm serve`")
    servers.add_argument("--vllm-tuned-args", metavar="'--a b …'", help="a second `vllm serve` with these instead")
    servers.add_argument("--vllm-port", type=int, default=8011, help="the second one gets the next")
    servers.add_argument("--start-limit", type=float, default=600, metavar="S", help="for a launched server")
    model = p.add_argument_group("model")
    model.add_argument("--model", help="name sent in requests, and given to a launched vLLM")
    model.add_argument("--model-dir", type=Path, help="what the library loads; default: --launch-vllm")
    model.add_argument("--no-library", action="store_true", help="servers only; no parity either")
    model.add_argument("--dtype", default="unknown", help="of launched servers and of the library")
    model.add_argument("--device", default="auto", help="of the library: cpu, cuda, auto")
    model.add_argument("--max-model-len", type=int, help="default: 512, or the model's positions if these are fewer")
    model.add_argument("--max-num-seqs", type=int, help="of a launched vLLM")
    model.add_argument("--max-num-batched-tokens", type=int, help="of a launched vLLM")
    model.add_argument("--batches", type=int, nargs="+", default=_BATCHES[task], help="of the library")
    model.add_argument("--allow-dtype-mismatch", action="store_true")
    work = p.add_argument_group("workload")
    work.add_argument("--workload", type=Path, metavar="FILE.jsonl", help="texts; default: synthetic")
    work.add_argument("--lengths", default=DEFAULT_LENGTHS[task], help="of synthetic texts, in words")
    work.add_argument("--tokenizer", type=Path, help="draws the words; default: the model's")
    load = p.add_argument_group("load")
    load.add_argument(
        "--inputs", type=int, nargs="+", default=_INPUTS.get(task, [1]), help="texts, or documents, of a request"
    )
    load.add_argument("--concurrency", type=int, nargs="*", default=[1, 16], help="closed loops")
    load.add_argument("--rate", type=float, nargs="*", default=[], metavar="N", help="open loops, requests/s")
    load.add_argument("--rounds", type=int, default=3)
    load.add_argument("--seconds", type=float, default=3, help="of a turn")
    load.add_argument("--clients", type=int, default=1, help="load processes")
    load.add_argument("--warmup", type=int, default=60, help="requests of each kind before anything is measured")
    load.add_argument("--timeout", type=float, default=60, metavar="S", help="per request")
    load.add_argument("--budget", type=float, default=3600, metavar="S", help="no turn is begun later than this")
    load.add_argument("--seed", help="of the texts; default: the time")
    output = p.add_argument_group("output")
    output.add_argument("--parity-texts", type=int, default=100)
    output.add_argument("--baseline", action="append", metavar="NAME", help="of the ratios; may be given again")
    output.add_argument("--name", default=task, help="of the result files")
    output.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    output.add_argument("--logs-dir", type=Path, default=Path(tempfile.gettempdir()) / "benchmark-logs")
    output.add_argument("--commit", help="for a host without the repository")


def backends(a: argparse.Namespace, scratch: Path) -> list[Backend]:
    """The named and the launched servers, named ones first.

    Raises:
        UsageError: a launched server without a dtype, and whatever the launchers refuse.
    """
    shapes = {name: shape.path for name, shape in SHAPES[a.task].items()}
    found = [parse_backend(text, a.model, shapes) for text in a.backend]
    cpu = not environment.gpus() if a.launch_vllm or a.launch_poolserve else False
    dtype = dtype_name(a.dtype)
    common: dict[str, Any] = {"cpu": cpu, "logs": a.logs_dir, "start_limit_s": a.start_limit}
    if a.launch_poolserve:
        options = {"command": a.poolserve_command, "url": a.poolserve_url, "model": a.model, "dtype": dtype}
        launched = poolserve_backend(a.launch_poolserve, **options, **common)
        found.append(_shaped(launched, a.task, next(iter(shapes))))
    if a.launch_vllm:
        if dtype == "unknown":
            raise UsageError("--launch-vllm needs --dtype: `auto` turns float32 checkpoints into 16 bit")
        sides = [("vllm", a.vllm_args), *([("vllm-tuned", a.vllm_tuned_args)] if a.vllm_tuned_args else [])]
        for i, (name, extra) in enumerate(sides):
            vllm = VllmOptions(
                model_dir=a.launch_vllm,
                dtype=dtype,
                max_model_len=a.max_model_len,
                max_num_seqs=a.max_num_seqs,
                max_num_batched_tokens=a.max_num_batched_tokens,
                extra=extra,
                served_name=a.model or a.task,
                port=a.vllm_port + i,
                name=name,
            )
            shape = {"embed": "openai", "documents": "rerank"}.get(a.task, "vllm")
            found.append(_shaped(vllm_backend(vllm, scratch=scratch / name, **common), a.task, shape))
    return found


def _shaped(backend: Backend, task: str, shape: str) -> Backend:
    return dataclasses.replace(backend, url=backend.origin + SHAPES[task][shape].path, shape=shape)


def window(wanted: int | None, model_dir: Path | None) -> int:
    """Tokens of a text; fixed padding fills every text up to it.

    Raises:
        UsageError: the model has fewer positions.
    """
    path = model_dir / "config.json" if model_dir is not None else None
    positions = max_positions(json.loads(path.read_text())) if path is not None and path.exists() else None
    if wanted is None:
        return min(512, positions or 512)
    if positions is not None and wanted > positions:
        raise UsageError(f"--max-model-len: {wanted} is more than the model's {positions} positions")
    return wanted


def run(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the benchmark that the arguments describe."""
    from benchmarks.fusion import plugin

    numbers = [*a.inputs, *a.concurrency, *a.batches, a.rounds, a.clients]
    if min(numbers) < 1 or any(rate <= 0 for rate in a.rate) or not (a.concurrency or a.rate):
        raise UsageError("--inputs, --concurrency, --batches, --rounds and --clients are at least 1, --rate is above 0")
    for name in ("inputs", "concurrency", "rate", "batches"):
        if len(set(getattr(a, name))) < len(getattr(a, name)):
            raise UsageError(f"--{name}: the same number twice")
    model_dir = None if a.no_library else a.model_dir or a.launch_vllm
    a.max_model_len = window(a.max_model_len, model_dir or a.launch_vllm)
    dtype = dtype_name(a.dtype)
    if model_dir is not None and dtype == "unknown":
        raise UsageError("the library needs --dtype")
    words_from = a.tokenizer or model_dir
    if a.workload is not None:
        workload: Any = FromFile(a.workload, pairs=a.task == "documents")
    else:
        words = whole_words(load_tokenizer(words_from)) if words_from is not None else FALLBACK_WORDS
        workload = (DrawnPairs if a.task == "documents" else Drawn)(words, Lengths.parse(a.lengths))
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        if a.launch_poolserve:  # where Poolserve is only on PYTHONPATH, vLLM does not know its plugin
            plugin.announce(Path(scratch) / "plugin", benchmark=False)
        options = TextOptions(
            task=a.task,
            name=a.name,
            backends=backends(a, Path(scratch)),
            workload=workload,
            seed=a.seed or str(time.time_ns()),
            model_dir=model_dir,
            methods=methods(a.task, a.batches) if model_dir is not None else [],
            dtype=dtype,
            device=a.device,
            max_model_len=a.max_model_len,
            inputs=a.inputs,
            concurrencies=a.concurrency,
            rates=a.rate,
            rounds=a.rounds,
            seconds=a.seconds,
            clients=a.clients,
            warmup=a.warmup,
            timeout_s=a.timeout,
            budget_s=a.budget,
            baselines=a.baseline,
            parity_texts=a.parity_texts,
            allow_dtype_mismatch=a.allow_dtype_mismatch,
            results_dir=a.results_dir,
            commit=a.commit,
            command=command,
            configs={"poolserve": yaml.safe_load(a.launch_poolserve.read_text())} if a.launch_poolserve else {},
        )
        return TextRun(options).execute()
