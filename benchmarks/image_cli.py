"""Command lines of the image benchmarks; `README.md` explains their options."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environment
from benchmarks.backends import UsageError, dtype_name
from benchmarks.fusion.checkpoint import SHAPES

Command = Callable[[argparse.Namespace, Sequence[str]], int]
_SIDES = ("tokens", "marker per pair", "markers per query")


def add_commands(commands: Any) -> None:
    """Adds the subcommands."""
    _fusion_engine(commands.add_parser("fusion-engine", help="ways to put images into a fusion ranker's sequences"))
    _images_path(commands.add_parser("images-path", help="image URLs through the whole HTTP path, by loader replicas"))
    _image_loading(commands.add_parser("image-loading", help="the ImageLoader against requests and Pillow"))
    make = commands.add_parser("make-fusion-model", help="write a fusion ranker with random weights")
    make.set_defaults(run=make_fusion_model)
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--shape", choices=SHAPES, default="vit-l-14-336")
    make.add_argument("--device", default="cpu", help="where the weights are drawn (cuda is faster)")


def make_fusion_model(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Writes a checkpoint."""
    from benchmarks.fusion.checkpoint import make_fusion_ranker

    print(make_fusion_ranker(a.out, a.shape, a.device))
    return 0


def _common(p: argparse.ArgumentParser, name: str, rounds: int, seconds: float, concurrency: Sequence[int]) -> None:
    p.add_argument("--concurrency", type=int, nargs="+", default=list(concurrency))
    p.add_argument("--rounds", type=int, default=rounds)
    p.add_argument("--seconds", type=float, default=seconds, help="of a turn")
    p.add_argument("--minimum", type=int, default=3, help="requests that a turn has whatever the time")
    p.add_argument("--budget", type=float, default=3600, metavar="S", help="no turn is begun later than this")
    p.add_argument("--seed", help="default: the time")
    p.add_argument("--name", default=name, help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--commit", help="for a host without the repository")


def _fusion_engine(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=fusion_engine)
    _common(p, "fusion-engine", rounds=3, seconds=3, concurrency=(1, 8))
    p.add_argument("--model-dir", type=Path, required=True, help="the checkpoint; written if it is not there")
    p.add_argument("--shape", choices=SHAPES, default="vit-l-14-336")
    p.add_argument("--sides", nargs="+", choices=_SIDES, default=list(_SIDES))
    p.add_argument("--device", choices=("cpu", "cuda"), required=True)
    p.add_argument("--dtype", required=True)
    p.add_argument("--gpu-memory", type=float, default=0.27, help="share of the GPU's memory of each engine")
    p.add_argument("--images", type=int, default=105, help="of a request")
    p.add_argument("--query-tokens", type=int, help="default: the text tower's positions")
    p.add_argument("--max-num-batched-tokens", type=int, default=8192)
    p.add_argument("--max-num-seqs", type=int, default=512)
    p.add_argument("--device-cache", type=int, default=1024, help="images that stay on the device")
    p.add_argument("--images-per-step", type=int, default=128, help="new images of a step; markers of a sequence")
    p.add_argument("--cuda-graph-max-tokens", type=int, default=2048)
    p.add_argument("--enforce-eager", action="store_true")
    p.add_argument("--parity", type=int, nargs=2, default=(2, 16), metavar=("QUERIES", "IMAGES"))


def _images_path(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=images_path)
    _common(p, "images-path", rounds=2, seconds=5, concurrency=(1, 4, 16))
    p.add_argument("--launch-poolserve", type=Path, required=True, metavar="CONFIG.yaml", help="what to derive from")
    p.add_argument("--poolserve-command", default=f"{sys.executable} -m serve_app up")
    p.add_argument("--poolserve-url", default="http://127.0.0.1:8000")
    p.add_argument("--dashboard", default="http://127.0.0.1:8265", help="Ray's, of the cluster that is started")
    p.add_argument("--model", help="default: the only one that ranks images")
    p.add_argument("--loaders", type=int, nargs="+", default=[1, 2], help="replicas of the ImageLoader")
    p.add_argument("--loader-cpus", type=float, help="cores of each; default: the configuration's")
    p.add_argument("--images", type=int, default=20, help="of a request")
    p.add_argument("--large-share", type=float, default=0.1, help="share of images of 12 megapixels")
    p.add_argument("--delay", type=int, default=0, metavar="MS", help="that the image server waits")
    p.add_argument("--warm-requests", type=int, default=16, help="different requests of the warm turns")
    p.add_argument("--parity-requests", type=int, default=2)
    p.add_argument("--timeout", type=float, default=60, metavar="S", help="per request")
    p.add_argument("--start-limit", type=float, default=600, metavar="S", help="for Poolserve")
    p.add_argument("--logs-dir", type=Path, default=Path(tempfile.gettempdir()) / "benchmark-logs")


def _image_loading(p: argparse.ArgumentParser) -> None:
    p.set_defaults(run=image_loading)
    _common(p, "image-loading", rounds=3, seconds=6, concurrency=(1, 4))
    p.add_argument("--images", type=int, default=20, help="of a request")
    p.add_argument("--large-share", type=float, nargs="+", default=[0.0, 0.1], help="share of images of 12 megapixels")
    p.add_argument("--delay", type=int, nargs="+", default=[0, 100], metavar="MS", help="that the image server waits")
    p.add_argument("--size", type=int, default=336, help="of the pictures that come out")
    p.add_argument("--decode-threads", type=int, default=environment.hardware_threads(), help="of the ImageLoader")


def _check(a: argparse.Namespace) -> None:
    if len(set(a.concurrency)) < len(a.concurrency) or min(a.concurrency) < 1 or min(a.rounds, a.images) < 1:
        raise UsageError("--concurrency, --rounds and --images are at least 1, concurrencies differ")
    shares = a.large_share if isinstance(getattr(a, "large_share", 0.0), list) else [getattr(a, "large_share", 0.0)]
    if not all(0 <= share <= 1 for share in shares):
        raise UsageError("--large-share: 0 to 1")


def fusion_engine(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `fusion-engine`."""
    from benchmarks.fusion.engines import EngineLimits
    from benchmarks.fusion.run import FusionOptions, run

    _check(a)
    limits = EngineLimits(
        device=a.device,
        dtype=dtype_name(a.dtype),
        memory=a.gpu_memory,
        batched_tokens=a.max_num_batched_tokens,
        sequences=a.max_num_seqs,
        device_cache=a.device_cache,
        images_per_step=a.images_per_step,
        graph_tokens=a.cuda_graph_max_tokens,
        eager=a.enforce_eager,
    )
    options = FusionOptions(
        name=a.name,
        results_dir=a.results_dir,
        model_dir=a.model_dir,
        limits=limits,
        seed=a.seed or str(time.time_ns()),
        shape=a.shape,
        sides=a.sides,
        command=command,
        commit=a.commit,
        images=a.images,
        query_tokens=a.query_tokens,
        concurrencies=a.concurrency,
        rounds=a.rounds,
        seconds=a.seconds,
        minimum=a.minimum,
        parity=tuple(a.parity),
        budget_s=a.budget,
    )
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        return run(options, Path(scratch))


def images_path(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `images-path`."""
    from benchmarks.fusion import plugin
    from benchmarks.images_path import PathOptions, PathRun

    _check(a)
    if len(set(a.loaders)) < len(a.loaders) or min(a.loaders) < 1:
        raise UsageError("--loaders: different numbers from 1 on")
    options = PathOptions(
        name=a.name,
        results_dir=a.results_dir,
        logs_dir=a.logs_dir,
        base=a.launch_poolserve,
        seed=a.seed or str(time.time_ns()),
        command_up=a.poolserve_command,
        url=a.poolserve_url.rstrip("/"),
        model=a.model,
        loaders=a.loaders,
        loader_cpus=a.loader_cpus,
        concurrencies=a.concurrency,
        images=a.images,
        large_share=a.large_share,
        delay_ms=a.delay,
        rounds=a.rounds,
        seconds=a.seconds,
        minimum=a.minimum,
        warm_requests=a.warm_requests,
        parity_requests=a.parity_requests,
        timeout_s=a.timeout,
        start_limit_s=a.start_limit,
        budget_s=a.budget,
        dashboard=a.dashboard.rstrip("/"),
        cpu=not environment.gpus(),
        command=command,
        commit=a.commit,
    )
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        plugin.announce(Path(scratch) / "plugin")
        return PathRun(options).execute()


def image_loading(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs `image-loading`."""
    from benchmarks.image_loading import LoadingOptions, run

    _check(a)
    options = LoadingOptions(
        name=a.name,
        results_dir=a.results_dir,
        seed=a.seed or str(time.time_ns()),
        command=command,
        commit=a.commit,
        large_shares=a.large_share,
        delays_ms=a.delay,
        concurrencies=a.concurrency,
        images=a.images,
        rounds=a.rounds,
        seconds=a.seconds,
        minimum=a.minimum,
        size=a.size,
        decode_threads=a.decode_threads,
        budget_s=a.budget,
    )
    return run(options)
