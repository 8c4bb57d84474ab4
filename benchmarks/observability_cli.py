"""Command line of the observability benchmark; `README.md` explains its options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment


def add_commands(commands: Any) -> None:
    """Adds `observability`."""
    p = commands.add_parser(
        "observability", help="what metrics, access log and traces cost, and a scrape of 20 replicas"
    )
    p.set_defaults(run=_run)
    p.add_argument("--requests", type=int, default=40, help="per turn")
    p.add_argument("--concurrency", type=int, default=4, help="of the closed loop")
    p.add_argument("--load", type=float, default=0.4, help="of the open loop, as a share of what a process can do")
    p.add_argument("--rounds", type=int, default=40)
    p.add_argument("--processes", type=int, default=3, help="of each variant")
    p.add_argument("--replicas", type=int, default=20, help="that report to one page")
    p.add_argument("--engine-ms", type=float, default=5.0, help="that the fake engine takes")
    p.add_argument("--name", default="observability", help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


def _run(a: argparse.Namespace, command: Sequence[str]) -> int:
    from benchmarks.observability import observability  # the whole gateway

    return observability(a, command)
