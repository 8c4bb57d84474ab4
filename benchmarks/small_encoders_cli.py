"""Command line of `small-encoders`; `README.md` explains its options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment

LENGTHS = "lognormal:median=18,sigma=0.35,min=6,max=64"


def add_commands(commands: Any) -> None:
    """Adds the subcommand."""
    p = commands.add_parser("small-encoders", help="both engines and sentence-transformers on a small embedding model")
    p.set_defaults(run=_run)
    p.add_argument("--model-dir", type=Path, required=True)
    p.add_argument("--dtype", required=True, help="of all sides: float32, float16, bfloat16")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--texts", type=int, default=512, help="of a turn")
    p.add_argument("--inputs", type=int, default=32, help="texts of a request to the engines")
    p.add_argument("--concurrency", type=int, default=8, help="requests in flight")
    p.add_argument("--batches", type=int, nargs="+", default=[32, 128, 512], help="of sentence-transformers")
    p.add_argument("--lengths", default=LENGTHS, help="of the texts, in words that are tokens")
    p.add_argument("--threads", type=int, default=1, help="of arithmetic on a CPU, all sides")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--name", default="small-encoders", help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


def _run(a: argparse.Namespace, command: Sequence[str]) -> int:
    from benchmarks.small_encoders import small_encoders  # the whole pipeline

    return small_encoders(a, command)
