"""Command line of `gather`; `README.md` explains its options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment


def add_commands(commands: Any) -> None:
    """Adds the subcommand."""
    p = commands.add_parser("gather", help="an engine that waits for whole requests beside one that does not")
    p.set_defaults(run=_run)
    p.add_argument("--model-dir", type=Path, required=True, help="a reranker without token types")
    p.add_argument("--dtype", required=True, help="of both sides: float32, float16, bfloat16")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    p.add_argument("--gather-ms", type=float, nargs="+", default=[0.0, 8.0], help="one engine each; the first is 1.00")
    p.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    p.add_argument("--documents", type=int, default=20)
    p.add_argument("--requests", type=int, default=80, help="of a turn")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--max-model-len", type=int, default=512)
    p.add_argument("--gpu-memory", type=float, default=0.1, help="share of one engine")
    p.add_argument("--name", default="gather", help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


def _run(a: argparse.Namespace, command: Sequence[str]) -> int:
    from benchmarks.gather import gather  # the engine

    return gather(a, command)
