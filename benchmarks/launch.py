"""Built-in launchers: vLLM's own server, and Poolserve from a configuration file."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.backends import Backend, UsageError, dtype_name
from benchmarks.environment import REPOSITORY
from benchmarks.processes import Server

PLAIN_SERVE_PORT = 8021
CPU_ENV = {
    # The default pins the threads of every engine to the same cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # GiB; a pooling model hardly uses its cache.
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """Settings of a launched `vllm serve`; None leaves vLLM's own default."""

    model_dir: Path
    dtype: str
    max_model_len: int
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    extra: str = ""
    served_name: str = "reranker"
    port: int = 8011
    name: str = "vllm"


def vllm_command(options: VllmOptions) -> list[str]:
    """The command line; through the module, for hosts without console scripts."""
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(options.model_dir)]
    command += ["--runner", "pooling", "--dtype", options.dtype, "--max-model-len", str(options.max_model_len)]
    if options.max_num_seqs is not None:
        command += ["--max-num-seqs", str(options.max_num_seqs)]
    if options.max_num_batched_tokens is not None:
        command += ["--max-num-batched-tokens", str(options.max_num_batched_tokens)]
    command += ["--host", "127.0.0.1", "--port", str(options.port), "--served-model-name", options.served_name]
    # An access log line a request would be paid by this side only.
    return [*command, "--disable-uvicorn-access-log", *shlex.split(options.extra)]


def vllm_metadata(folder: Path) -> dict[str, str]:
    """PYTHONPATH that makes `vllm serve` start where vLLM was installed as the package `vllm-cpu`.

    That package has no metadata named `vllm`, which the command asks for; the part of the version after `+` is how the
    CPU platform is recognised. Empty where the metadata is there.
    """
    try:
        importlib.metadata.version("vllm")
        return {}
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        version = f"{importlib.metadata.version('vllm-cpu').partition('+')[0]}+cpu"
    except importlib.metadata.PackageNotFoundError:
        raise UsageError("--launch-vllm: neither vllm nor vllm-cpu is installed") from None
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def vllm_backend(options: VllmOptions, *, cpu: bool, scratch: Path, logs: Path, start_limit_s: float) -> Backend:
    """`vllm serve` of a checkpoint.

    Args:
        cpu: set what several engines on a small machine without a GPU need.
        scratch: a folder that lives as long as the run.
    """
    env = {**(CPU_ENV if cpu else {}), **_prepend_path(vllm_metadata(scratch / "metadata"))}
    origin = f"http://127.0.0.1:{options.port}"
    server = Server(
        options.name,
        vllm_command(options),
        f"{origin}/health",
        env,
        logs / f"{options.name}.log",
        stop_signal=signal.SIGTERM,
        start_limit_s=start_limit_s,
    )
    return Backend(options.name, f"{origin}/rerank", options.served_name, options.dtype, server=server)


def plain_serve_backend(
    model_dir: Path, *, dtype: str, max_model_len: int, extra: str, cpu: bool, logs: Path, start_limit_s: float
) -> Backend:
    """Plain Ray Serve around one vLLM engine (`plain_serve.py`), in a Ray cluster of its own.

    Args:
        extra: more options of that program.
    """
    origin = f"http://127.0.0.1:{PLAIN_SERVE_PORT}"
    command = [sys.executable, "-m", "benchmarks.plain_serve", "--model-dir", str(model_dir), "--dtype", dtype]
    command += ["--max-model-len", str(max_model_len), "--port", str(PLAIN_SERVE_PORT), *shlex.split(extra)]
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    server = Server(
        "plain-serve",
        command,
        f"{origin}/ready",
        {**(CPU_ENV if cpu else {}), "PYTHONPATH": path},
        logs / "plain-serve.log",
        stop_signal=signal.SIGINT,
        start_limit_s=start_limit_s,
    )
    return Backend("plain-serve", f"{origin}/rerank", None, dtype, server=server)


def _prepend_path(env: dict[str, str]) -> dict[str, str]:
    """Put a new PYTHONPATH before the present one instead of in its place."""
    if "PYTHONPATH" in env and os.environ.get("PYTHONPATH"):
        return {**env, "PYTHONPATH": env["PYTHONPATH"] + os.pathsep + os.environ["PYTHONPATH"]}
    return env


def config_dtypes(config: Path) -> set[str]:
    """Every `dtype` that a Poolserve configuration names, wherever it stands."""

    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "dtype" and isinstance(value, str):
                    yield dtype_name(value)
                yield from walk(value)
        elif isinstance(node, list):
            for value in node:
                yield from walk(value)

    return set(walk(yaml.safe_load(config.read_text())))


def poolserve_backend(
    config: Path, *, command: str, url: str, model: str | None, dtype: str, cpu: bool, logs: Path, start_limit_s: float
) -> Backend:
    """Poolserve from a configuration file, whose own dtype counts.

    Args:
        command: starts it when the configuration's path is appended; SIGINT ends everything.
        url: where its gateway will listen.
        dtype: used only where the configuration names none.
    """
    dtypes = config_dtypes(config) or {dtype}
    if len(dtypes) > 1:
        raise UsageError(
            f"{config.name} names several dtypes ({', '.join(sorted(dtypes))}): measure one model at a time"
        )
    server = Server(
        "poolserve",
        [*shlex.split(command), str(config)],
        f"{url.rstrip('/')}/ready",
        CPU_ENV if cpu else {},
        logs / "poolserve.log",
        stop_signal=signal.SIGINT,
        start_limit_s=start_limit_s,
    )
    return Backend("poolserve", f"{url.rstrip('/')}/rerank", model, dtypes.pop(), server=server)
