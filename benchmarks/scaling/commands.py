"""Command lines of `autoscaling` and `split`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.backends import UsageError


def add_commands(commands: Any) -> None:
    """Adds the subcommands."""
    _autoscaling(commands.add_parser("autoscaling", help="a day of traffic against the scaling policies, simulated"))
    _split(commands.add_parser("split", help="a large request on one engine replica and on several"))


def _output(p: argparse.ArgumentParser, name: str) -> None:
    p.add_argument("--name", default=name, help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


def _autoscaling(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=autoscaling)
    _output(p, "autoscaling")
    p.add_argument("--arrivals", type=Path, metavar="FILE", help="CSV or JSON lines: time, and documents or tokens")
    p.add_argument("--peak", type=float, default=60.0, help="requests/s of the made-up day's peak")
    p.add_argument("--hours", type=float, default=24.0, help="of the made-up day")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tokens-per-document", type=int, default=96)
    p.add_argument("--tokens-per-s", type=float, default=50_000.0, help="of a replica")
    p.add_argument("--start", type=float, default=60.0, metavar="S", help="that a replica takes to serve")
    p.add_argument("--gpus", type=float, default=1.0, help="of a replica")
    p.add_argument("--slow", type=float, default=1.0, metavar="S", help="latency from which a request counts as slow")
    p.add_argument("--min-replicas", type=int, default=1)
    p.add_argument("--max-replicas", type=int, default=20)
    p.add_argument("--target", type=float, default=16_384, help="tokens in flight of a replica")
    p.add_argument("--upscale-delay", type=float, default=3.0, metavar="S")
    p.add_argument("--downscale-delay", type=float, default=300.0, metavar="S")
    p.add_argument("--utilization", type=float, default=0.7)


def autoscaling(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `autoscaling`."""
    from pydantic import ValidationError

    from benchmarks.scaling import day, traffic
    from benchmarks.scaling.simulate import Service
    from serve_app.settings import AutoscalingSettings
    from serve_app.vocabulary import Measure

    if min(a.peak, a.hours, a.tokens_per_document, a.tokens_per_s, a.gpus) <= 0 or a.start < 0:
        raise UsageError(
            "--peak, --hours, --tokens-per-document, --tokens-per-s and --gpus are above 0, --start is not below"
        )
    try:
        settings = AutoscalingSettings(
            min_replicas=a.min_replicas,
            max_replicas=a.max_replicas,
            target={Measure.TOKENS: a.target},
            upscale_delay_s=a.upscale_delay,
            downscale_delay_s=a.downscale_delay,
            utilization=a.utilization,
        )
    except ValidationError as error:
        raise UsageError("; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())) from None
    if a.arrivals:
        arrivals = traffic.read(a.arrivals, a.tokens_per_document)
    else:
        arrivals = traffic.synthetic(a.seed, a.peak, a.tokens_per_document, a.hours)
    options = day.DayOptions(
        name=a.name,
        results_dir=a.results_dir,
        arrivals=arrivals,
        service=Service(a.tokens_per_s, start_s=a.start, gpus=a.gpus),
        settings=settings,
        slow_s=a.slow,
        seed=a.seed,
        command=command,
        commit=a.commit,
    )
    return day.run(options)


def _split(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=split)
    _output(p, "split")
    p.add_argument("--documents", type=int, default=500, help="of a request")
    p.add_argument("--words", type=int, default=60, help="of a document")
    p.add_argument("--replicas", type=int, nargs="+", default=[1, 4], help="of the engine; the first is the baseline")
    p.add_argument("--tokens-per-s", type=float, default=20_000.0, help="of an engine replica, a stand-in")
    p.add_argument("--rounds", type=int, default=12)
    p.add_argument("--warmup", type=int, default=3)
    p.add_argument("--start-limit", type=float, default=300, metavar="S")
    p.add_argument("--logs-dir", type=Path, default=Path(tempfile.gettempdir()) / "benchmark-logs")


def split(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `split`."""
    from benchmarks.scaling.split import SplitOptions, run

    if min(a.documents, a.words, a.rounds, *a.replicas) < 1 or len(set(a.replicas)) < len(a.replicas):
        raise UsageError("--documents, --words, --rounds and --replicas are at least 1, replicas differ")
    options = SplitOptions(
        name=a.name,
        results_dir=a.results_dir,
        logs_dir=a.logs_dir,
        documents=a.documents,
        words=a.words,
        replicas=a.replicas,
        tokens_per_s=a.tokens_per_s,
        rounds=a.rounds,
        warmup=a.warmup,
        start_limit_s=a.start_limit,
        command=command,
        commit=a.commit,
    )
    return run(options)
