"""Command line of `kernels`; `benchmarks/README.md` explains its options."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environment, results_files
from benchmarks.backends import UsageError
from benchmarks.kernels import counters
from benchmarks.kernels.sides import SIDES, Model, cut, layers_of

TOOLS = ("profiler", "counters")
HALF_LIMIT = 0.25
"""Largest difference of a logit to float32 in 16 bit; the synthetic head's logits have a standard deviation of 2."""


def add_commands(commands: Any) -> None:
    """Adds the subcommand."""
    p = commands.add_parser("kernels", help="kernels and GPU counters of a request, Transformers beside the engine")
    p.set_defaults(run=_run)
    p.add_argument("--model-dir", type=Path, required=True)
    p.add_argument("--task", choices=["rerank", "absa"], required=True)
    p.add_argument("--dtype", required=True, help="of all sides: float32, float16, bfloat16")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    p.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    p.add_argument("--sequences", type=int, help="of a request; default: 20 for rerank, 1 for absa")
    p.add_argument("--requests", type=int, default=5)
    p.add_argument("--max-model-len", type=int, default=512)
    p.add_argument("--cuda-graph-max-tokens", type=int, default=4096)
    p.add_argument("--gpu-memory", type=float, default=0.05, help="share that the engine may take")
    p.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS), help="profiler: PyTorch's; counters: ncu")
    p.add_argument("--layers", type=int, help="counters of the model's first so many layers; default: all")
    p.add_argument("--limit", type=float, default=300, metavar="S", help="for one side's process")
    p.add_argument("--name", default="kernels", help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


@dataclass(frozen=True, slots=True)
class _Work:
    """What every side's process is told."""

    model: Model
    requests: list[list[list[int]]]
    scratch: Path
    limit_s: float


def _run(a: argparse.Namespace, command: Sequence[str]) -> int:
    from benchmarks.kernels.report import page  # numpy and the table code, which `--help` does without

    sequences = a.sequences or (20 if a.task == "rerank" else 1)
    if min(sequences, a.requests, 1 if a.layers is None else a.layers) < 1:
        raise UsageError("--sequences, --requests and --layers are at least 1")
    if a.layers is not None and a.layers > (has := layers_of(a.model_dir)):
        raise UsageError(f"--layers: the model has {has}")
    hardware = environment.hardware()
    model = Model(a.model_dir, a.task, a.dtype, a.device, a.max_model_len, a.cuda_graph_max_tokens, a.gpu_memory)
    requests = draw(a.model_dir, a.task, sequences, a.requests, a.max_model_len)
    metrics = counters.available() if "counters" in a.tools and a.device == "cuda" else []
    wanted = "counters" in a.tools
    problems: list[str] = []
    sides: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="kernels-") as scratch:
        work = _Work(model, requests, Path(scratch), a.limit)
        counted = _counted(a.layers, work) if metrics else work
        exact = _exact(work, problems) if "profiler" in a.tools or counted.model.folder == model.folder else {}
        exact_counted = exact if counted.model.folder == model.folder else _exact(counted, problems)
        for name in a.sides:
            timed = _process(name, work, (), problems, timed=True) if "profiler" in a.tools else {}
            with_counters = _process(name, counted, metrics, problems) if metrics else {}
            far = [distance(timed, exact), distance(with_counters, exact_counted)]
            sides[name] = timed | with_counters
            if known := [found for found in far if found is not None]:
                sides[name]["max_abs"] = float(np.max(known))  # NaN stays
    limit = 1e-3 if a.dtype == "float32" else HALF_LIMIT
    good = not problems and all(side.get("max_abs", np.inf) <= limit for side in sides.values())
    if wanted and not metrics:
        problems.append("no counters: Nsight Compute is missing or sees no GPU")
    result = {
        **environment.conditions(a.name, command, a.commit, hardware),
        "settings": {
            **{key: getattr(a, key) for key in ("task", "dtype", "device", "requests", "max_model_len")},
            "sequences": sequences,
            "tokens": round(float(np.mean([sum(map(len, request)) for request in requests]))),
            "graph_tokens": a.cuda_graph_max_tokens,
            "counted_layers": a.layers,
            "model": environment.model_shape(a.model_dir),
            "parity_limit": limit,
        },
        "sides": sides,
        "problems": problems,
        "valid": good,
    }
    text = page(result)
    print(text)
    for path in results_files.write(result, text, a.results_dir):
        print(path)
    return 0 if good else 1


def _counted(layers: int | None, work: _Work) -> _Work:
    """What the counters are taken of: without CUDA graphs, whose many sizes Nsight Compute would instrument one by one,
    and of fewer layers if asked for."""
    folder = work.model.folder
    if layers is not None:
        folder = cut(folder, layers, work.model.task, work.model.dtype, work.scratch / "layers")
    return replace(work, model=replace(work.model, folder=folder, graphs=False))


def _exact(work: _Work, problems: list[str]) -> dict[str, Any]:
    """Transformers in float32 on the same requests."""
    reference = replace(work, model=replace(work.model, dtype="float32"))
    return _process("transformers, dynamic padding", reference, (), problems, timed=True)


def distance(found: dict[str, Any], exact: dict[str, Any]) -> float | None:
    """Largest difference of a logit to the reference's; None where either has no answers. Takes `found`'s out."""
    answers = found.pop("answers", None)
    if answers is None or "answers" not in exact:
        return None
    pairs = zip(answers, exact["answers"], strict=True)
    return float(np.max([np.abs(np.subtract(x, y)).max() for x, y in pairs]))  # NaN stays


def draw(folder: Path, task: str, sequences: int, count: int, window: int) -> list[list[list[int]]]:
    """Token ids of so many requests: pairs of 96 tokens on average, or texts of 40-60."""
    from benchmarks.corpus import Corpus, load_tokenizer, whole_words

    tokenizer = load_tokenizer(folder)
    corpus, source = Corpus(whole_words(tokenizer), f"kernels/{task}"), random.Random(f"kernels/{task}")
    found = []
    for _ in range(count):
        if task == "rerank":
            case = corpus.case(sequences)
            texts: list[Any] = [(case.query, document) for document in case.documents]
        else:
            texts = [corpus.text(source.randint(38, 58)) for _ in range(sequences)]
        found.append([encoded.ids[:window] for encoded in tokenizer.encode_batch(texts)])
    return found


def _process(
    name: str, work: _Work, metrics: Sequence[str], problems: list[str], *, timed: bool = False
) -> dict[str, Any]:
    """One side's findings, from a process of its own; a process that fails is a problem, and nothing is found."""
    plan, out, listing = (work.scratch / file for file in ("plan.json", "out.json", "counters.csv"))
    out.unlink(missing_ok=True)
    described = {**asdict(work.model), "folder": str(work.model.folder)}
    plan.write_text(json.dumps({"side": name, "model": described, "requests": work.requests, "counters": not timed}))
    inner = [sys.executable, "-m", "benchmarks.kernels.worker", str(plan), str(out)]
    line = inner if timed else counters.command(metrics, listing, inner)
    log = work.scratch / "worker.log"
    try:
        _run_to_its_end(line, log, work.limit_s)
    except (OSError, subprocess.SubprocessError) as error:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        what = "" if timed else "the counters of "
        problems.append(f"{what}{name} are missing: {type(error).__name__}")
        print(f"{what}{name}: {error}\n{tail}", file=sys.stderr, flush=True)
        return {}
    found: dict[str, Any] = json.loads(out.read_text())
    if not timed:
        with listing.open(errors="replace") as lines:
            found["counters"] = counters.read(lines)
    print(f"{name}: {'counters' if not timed else 'kernels'} are there", flush=True)
    return found


def _run_to_its_end(line: Sequence[str], log: Path, limit_s: float) -> None:
    """Runs a command in a session of its own, which ends with it: a worker must not outlive Nsight Compute."""
    with log.open("wb") as output:
        process = subprocess.Popen(line, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait(limit_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        raise subprocess.CalledProcessError(code, list(line))
