"""Command line of `starvation`; `README.md` explains its options."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks import environment
from benchmarks.backends import Backend, UsageError, check_backends, parse_backend
from benchmarks.corpus import FALLBACK_WORDS, load_tokenizer, whole_words
from benchmarks.images_config import MODEL, with_loaders
from benchmarks.launch import CPU_ENV, config_dtypes, poolserve_backend
from benchmarks.processes import Server
from benchmarks.starvation import StarvationOptions, StarvationRun

ONE_PROCESS = "one process"


def add_commands(commands: Any) -> None:
    """Adds the subcommand."""
    p = commands.add_parser("starvation", help="texts at a steady rate, a flood of images beside them")
    p.set_defaults(run=starvation)
    p.add_argument(
        "--launch-poolserve", type=Path, metavar="CONFIG.yaml", help="with a reranker, an image ranker, images"
    )
    p.add_argument("--poolserve-command", default=f"{sys.executable} -m serve_app up")
    p.add_argument("--poolserve-url", default="http://127.0.0.1:8000")
    p.add_argument("--no-one-process", action="store_true", help="without the server that decodes in its own process")
    p.add_argument("--one-process-port", type=int, default=8031)
    p.add_argument(
        "--backend",
        action="append",
        default=[],
        metavar="NAME=URL[,dtype=D]",
        help="a running server; may fetch from here",
    )
    p.add_argument("--text-model", help="default: the configuration's only reranker")
    p.add_argument("--image-model", help="default: the configuration's only image ranker")
    p.add_argument("--loaders", type=int, default=1, help="replicas of Poolserve's ImageLoader")
    p.add_argument("--loader-cpus", type=float, help="cores of each; default: the configuration's")
    p.add_argument("--rate", type=float, default=5, help="text requests/s")
    p.add_argument("--documents", type=int, default=20, help="of a text request")
    p.add_argument("--flood", type=int, default=4, help="image requests in flight")
    p.add_argument("--images", type=int, default=20, help="of an image request")
    p.add_argument("--large-share", type=float, default=0.1, help="share of images of 12 megapixels")
    p.add_argument(
        "--phases", type=float, nargs=3, default=(20, 30, 15), metavar=("BEFORE", "FLOOD", "AFTER"), help="s"
    )
    p.add_argument("--settle", type=float, default=2, metavar="S", help="of each phase that are left out")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--clients", type=int, default=1, help="load processes of the texts")
    p.add_argument("--timeout", type=float, default=60, metavar="S", help="per request")
    p.add_argument("--start-limit", type=float, default=600, metavar="S")
    p.add_argument("--allow-dtype-mismatch", action="store_true")
    p.add_argument("--seed", help="default: the time")
    p.add_argument("--name", default="starvation", help="of the result files")
    p.add_argument("--results-dir", type=Path, default=environment.REPOSITORY / "benchmarks" / "results")
    p.add_argument("--logs-dir", type=Path, default=Path(tempfile.gettempdir()) / "benchmark-logs")
    p.add_argument("--commit", help="for a host without the repository")


def only(config: dict[str, Any], task: str, name: str | None, option: str) -> str:
    """Name of a configuration's model.

    Raises:
        UsageError: several or none fit.
    """
    models = [a["args"] for a in config.get("applications", []) if a["import_path"] == MODEL]
    found = [m["name"] for m in models if (m["name"] == name if name else m["task"] == task)]
    if len(found) != 1:
        known = ", ".join(f"{m['name']} ({m['task']})" for m in models)
        raise UsageError(f"{option}: {len(found)} models fit {name or task}; the configuration has {known or 'none'}")
    return str(found[0])


def _launched(a: argparse.Namespace, config: Path) -> list[Backend]:
    cpu = not environment.gpus()
    common: dict[str, Any] = {"cpu": cpu, "logs": a.logs_dir, "start_limit_s": a.start_limit}
    poolserve = poolserve_backend(
        config, command=a.poolserve_command, url=a.poolserve_url, model=None, dtype="unknown", **common
    )
    if a.no_one_process:
        return [poolserve]
    origin = f"http://127.0.0.1:{a.one_process_port}"
    server = Server(
        ONE_PROCESS,
        [sys.executable, "-m", "benchmarks.one_process", str(config), "--port", str(a.one_process_port)],
        f"{origin}/ready",
        CPU_ENV if cpu else {},
        a.logs_dir / "one-process.log",
        stop_signal=signal.SIGINT,
        start_limit_s=a.start_limit,
    )
    return [poolserve, Backend(ONE_PROCESS, f"{origin}/rerank", None, config_dtypes(config).pop(), server=server)]


def starvation(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs the benchmark that the arguments describe."""
    from benchmarks.fusion import plugin

    if min(a.rate, *a.phases) <= 0 or min(a.documents, a.flood, a.images, a.rounds, a.clients, a.loaders) < 1:
        raise UsageError(
            "--rate and --phases are above 0; --documents, --flood, --images, --rounds, --loaders at least 1"
        )
    if a.settle >= min(a.phases):
        raise UsageError("--settle: must be shorter than every phase")
    if not a.launch_poolserve and not (a.backend and a.text_model and a.image_model):
        raise UsageError("--launch-poolserve, or --backend with --text-model and --image-model")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        backends = [parse_backend(text) for text in a.backend]
        words: Sequence[str] = FALLBACK_WORDS
        configs: dict[str, Any] = {}
        text_model, image_model = a.text_model, a.image_model
        if a.launch_poolserve:
            base = yaml.safe_load(a.launch_poolserve.read_text())
            text_model = only(base, "rerank", a.text_model, "--text-model")
            image_model = only(base, "image_rank", a.image_model, "--image-model")
            configs["derived"] = with_loaders(base, a.loaders, num_cpus=a.loader_cpus)
            path = Path(scratch) / a.launch_poolserve.name
            path.write_text(yaml.safe_dump(configs["derived"], sort_keys=False))
            plugin.announce(Path(scratch) / "plugin", benchmark=False)
            backends += _launched(a, path)
            words = _words(base, text_model)
        check_backends(backends, a.allow_dtype_mismatch)
        options = StarvationOptions(
            name=a.name,
            backends=backends,
            text_model=text_model,
            image_model=image_model,
            words=words,
            seed=a.seed or str(time.time_ns()),
            rate=a.rate,
            documents=a.documents,
            flood=a.flood,
            images=a.images,
            large_share=a.large_share,
            before=a.phases[0],
            flood_s=a.phases[1],
            after=a.phases[2],
            settle=a.settle,
            rounds=a.rounds,
            clients=a.clients,
            timeout_s=a.timeout,
            results_dir=a.results_dir,
            commit=a.commit,
            command=command,
            configs=configs,
        )
        return StarvationRun(options).execute()


def _words(config: dict[str, Any], model: str) -> Sequence[str]:
    from serve_app.sources import local_directory

    source = next(a["args"]["source"] for a in config["applications"] if a.get("args", {}).get("name") == model)
    folder = local_directory(source)
    return whole_words(load_tokenizer(folder)) if folder is not None else FALLBACK_WORDS
