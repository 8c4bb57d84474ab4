"""The command line: one subcommand a benchmark; `make-…` write checkpoints to measure with."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import environment, gather_cli, image_cli, observability_cli, small_encoders_cli, starvation_cli
from benchmarks.backends import Backend, UsageError, dtype_name, parse_backend
from benchmarks.interrupts import interruptible_once
from benchmarks.kernels import commands as kernels_commands
from benchmarks.launch import VllmOptions, plain_serve_backend, poolserve_backend, vllm_backend
from benchmarks.models import SHAPES, make_model
from benchmarks.options import Options, requests_per_turn
from benchmarks.processes import ServerFailed
from benchmarks.rerank import Run
from benchmarks.scaling import commands as scaling_commands
from benchmarks.scoring import ParityRequestFailed
from benchmarks.text import cli as text_cli


def parser() -> argparse.ArgumentParser:
    """All options; `benchmarks/README.md` explains them."""
    top = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    _rerank_options(commands.add_parser("rerank", help="closed-loop load on rerank routes, in alternating rounds"))
    text_cli.add_commands(commands)
    gather_cli.add_commands(commands)
    image_cli.add_commands(commands)
    kernels_commands.add_commands(commands)
    observability_cli.add_commands(commands)
    scaling_commands.add_commands(commands)
    small_encoders_cli.add_commands(commands)
    starvation_cli.add_commands(commands)
    gate = commands.add_parser("gate", help="CPU time of the path's own Python against plain Python, in the same run")
    gate.set_defaults(run=run_gate)
    make = commands.add_parser("make-model", help="write a reranker checkpoint with random weights")
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--shape", choices=SHAPES, default="0.6b")
    make.add_argument("--tokenizer", type=Path, required=True, help="folder with a BERT-style tokenizer.json")
    make.add_argument("--device", default="cpu", help="where the weights are drawn (cuda is faster)")
    return top


def run_gate(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `gate`, whose imports a GPU host's other benchmarks do without."""
    from benchmarks.gate import run

    return run()


def _rerank_options(p: argparse.ArgumentParser) -> None:
    servers = p.add_argument_group("servers")
    servers.add_argument(
        "--backend", action="append", default=[], metavar="NAME=URL[,model=M][,dtype=D]", help="a running server"
    )
    servers.add_argument("--launch-poolserve", type=Path, metavar="CONFIG.yaml")
    servers.add_argument("--poolserve-command", default=f"{sys.executable} -m serve_app up")
    servers.add_argument("--poolserve-url", default="http://127.0.0.1:8000")
    servers.add_argument("--launch-vllm", type=Path, metavar="MODEL_DIR")
    servers.add_argument("--vllm-args", default="", metavar="'--a b …'", help="more options of `vllm serve`")
    servers.add_argument("--vllm-tuned-args", metavar="'--a b …'", help="a second `vllm serve` with these instead")
    servers.add_argument("--vllm-port", type=int, default=8011, help="the second one gets the next")
    servers.add_argument("--launch-plain-serve", type=Path, metavar="MODEL_DIR", help="plain Ray Serve around vLLM")
    servers.add_argument("--plain-serve-args", default="", metavar="'--a b …'", help="see benchmarks/plain_serve.py")
    servers.add_argument("--exclusive", action="store_true", help="only one launched server up at a time")
    servers.add_argument(
        "--together", action="store_true", help="launched servers start at the same time: none may measure free memory"
    )
    servers.add_argument("--start-limit", type=float, default=600, metavar="S", help="for a launched server")
    servers.add_argument("--return-documents", action="append", default=[], metavar="NAME", help="ask it for the texts")
    model = p.add_argument_group("model")
    model.add_argument("--model", help="name sent in requests, and given to a launched vLLM (its default: reranker)")
    model.add_argument("--dtype", default="unknown", help="of launched servers; Poolserve's configuration has its own")
    model.add_argument("--max-model-len", type=int, default=512)
    model.add_argument("--max-num-seqs", type=int, help="of a launched vLLM")
    model.add_argument("--max-num-batched-tokens", type=int, help="of a launched vLLM")
    model.add_argument("--tokenizer", type=Path, help="draws the words; default: --reference, --launch-vllm")
    model.add_argument("--allow-dtype-mismatch", action="store_true")
    load = p.add_argument_group("load")
    load.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    load.add_argument("--requests", type=int, nargs="+", help="per turn; one number, or one for each concurrency")
    load.add_argument("--documents", type=int, default=20)
    load.add_argument("--rounds", type=int, default=3)
    load.add_argument("--clients", type=int, default=1, help="load processes")
    load.add_argument("--warmup", type=int, default=60, help="requests after a server's start")
    load.add_argument("--timeout", type=float, default=60, metavar="S", help="per request")
    load.add_argument("--seed", help="of the texts; default: the time")
    parity = p.add_argument_group("parity")
    parity.add_argument("--parity-requests", type=int, default=25)
    parity.add_argument("--parity-threshold", type=float, help="default: 1e-3, or 0.05 where 16 bit is at work")
    parity.add_argument("--reference", type=Path, metavar="MODEL_DIR", help="Transformers scores the same requests")
    parity.add_argument("--reference-dtype", default="float32")
    parity.add_argument("--reference-device", default="auto", help="cpu, cuda, auto")
    output = p.add_argument_group("output")
    output.add_argument("--name", default="rerank", help="of the result files")
    output.add_argument("--baseline", metavar="NAME", help="of the ratios; default: vllm, else the first backend")
    output.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    output.add_argument("--logs-dir", type=Path, default=Path(tempfile.gettempdir()) / "benchmark-logs")
    output.add_argument("--commit", help="for a host without the repository")


def backends(a: argparse.Namespace, scratch: Path) -> list[Backend]:
    """The named and the launched servers, named ones first.

    Raises:
        UsageError: a launched server without a dtype, and whatever the launchers refuse.
    """
    found = [parse_backend(text, a.model) for text in a.backend]
    launched = a.launch_vllm or a.launch_poolserve or a.launch_plain_serve
    cpu = not environment.gpus() if launched else False
    dtype = dtype_name(a.dtype)
    common: dict[str, Any] = {"cpu": cpu, "logs": a.logs_dir, "start_limit_s": a.start_limit}
    if a.launch_poolserve:
        options = {"command": a.poolserve_command, "url": a.poolserve_url, "model": a.model, "dtype": dtype}
        found.append(poolserve_backend(a.launch_poolserve, **options, **common))
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
                served_name=a.model or "reranker",
                port=a.vllm_port + i,
                name=name,
            )
            found.append(vllm_backend(vllm, scratch=scratch / name, **common))
    if a.launch_plain_serve:
        if dtype == "unknown":
            raise UsageError("--launch-plain-serve needs --dtype")
        found.append(
            plain_serve_backend(
                a.launch_plain_serve, dtype=dtype, max_model_len=a.max_model_len, extra=a.plain_serve_args, **common
            )
        )
    for name in [*a.return_documents, *([a.baseline] if a.baseline else [])]:
        if name not in {b.name for b in found}:
            raise UsageError(f"no backend is called {name!r}")
    return [dataclasses.replace(b, return_documents=b.name in a.return_documents) for b in found]


def rerank(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Run the benchmark that the arguments describe."""
    if (
        len(set(a.concurrency)) < len(a.concurrency)
        or min(a.concurrency) < 1
        or min(a.rounds, a.clients, a.documents) < 1
    ):
        raise UsageError("--concurrency, --rounds, --clients and --documents are at least 1, concurrencies differ")
    if a.exclusive and a.together:
        raise UsageError("--exclusive and --together exclude each other")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        model_dir = a.reference or a.launch_vllm or a.launch_plain_serve
        config = a.launch_poolserve
        options = Options(
            name=a.name,
            backends=backends(a, Path(scratch)),
            concurrencies=a.concurrency,
            requests=requests_per_turn(a.concurrency, a.requests),
            seed=a.seed or str(time.time_ns()),
            documents=a.documents,
            rounds=a.rounds,
            clients=a.clients,
            warmup=a.warmup,
            timeout_s=a.timeout,
            exclusive=a.exclusive,
            together=a.together,
            baseline=a.baseline,
            tokenizer=a.tokenizer or model_dir,
            reference=a.reference,
            reference_dtype=dtype_name(a.reference_dtype),
            reference_device=a.reference_device,
            max_model_len=a.max_model_len,
            parity_requests=a.parity_requests,
            parity_threshold=a.parity_threshold,
            allow_dtype_mismatch=a.allow_dtype_mismatch,
            results_dir=a.results_dir,
            model_dir=model_dir or a.tokenizer,
            commit=a.commit,
            command=command,
            configs={"poolserve": yaml.safe_load(config.read_text())} if config else {},
        )
        return Run(options).execute()


def _joined(words: Sequence[str]) -> list[str]:
    """`--vllm-args X` as `--vllm-args=X`: argparse takes a lone `--enforce-eager` for an option of ours."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in ("--vllm-args", "--vllm-tuned-args", "--plain-serve-args", "--poolserve-command"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run. Exit codes: 0 valid, 1 failed requests or parity, 2 usage or start-up, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    a = parser().parse_args(_joined(words))
    try:
        if a.command == "make-model":
            print(make_model(a.out, a.shape, a.tokenizer, a.device))
            return 0
        with interruptible_once():
            command: image_cli.Command = getattr(a, "run", rerank)
            return command(a, ["python", "-m", "benchmarks", *words])
    except (UsageError, ServerFailed, ParityRequestFailed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
