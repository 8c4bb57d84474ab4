"""Makes `tokens_model` known to vLLM: the entry point `poolserve_benchmarks` of the group `vllm.general_plugins`.

vLLM looks for entry points in each of its processes. Nothing is installed: a folder with the metadata of a package goes
on PYTHONPATH. Where Poolserve itself is only on PYTHONPATH, the folder speaks for its plugin too.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from pathlib import Path

TOKENS = "TokensFusionRanker"
GROUP = "vllm.general_plugins"
OURS = {"poolserve_benchmarks": "benchmarks.fusion.plugin:register"}
POOLSERVE = {"poolserve": "serve_app.vllm_plugin:register"}


def register() -> None:
    """Called by vLLM in each of its processes; importing the model takes seconds, so only where it is served."""
    from serve_app.vllm_plugin import SERVED

    if os.environ.get(SERVED) == TOKENS:
        register_tokens()


def register_tokens() -> None:
    """Registers the architecture."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.config import MODELS_CONFIG_MAP

    from benchmarks.fusion.tokens_model import TokensFusionRanker, TokensOptions

    MODELS_CONFIG_MAP[TOKENS] = TokensOptions
    ModelRegistry.register_model(TOKENS, TokensFusionRanker)


def write_metadata(folder: Path, *, benchmark: bool = True) -> Path:
    """Writes what `importlib.metadata` reads, for those of the plugins that it does not find by itself.

    Args:
        folder: goes on PYTHONPATH, before any engine is started.
        benchmark: the benchmark's plugin too, and not only Poolserve's.
    """
    wanted = {**(OURS if benchmark else {}), **POOLSERVE}
    known = {point.name for point in importlib.metadata.entry_points(group=GROUP)}
    points = {name: target for name, target in wanted.items() if name not in known}
    info = folder / "poolserve_benchmarks-0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: poolserve_benchmarks\nVersion: 0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def announce(folder: Path, *, benchmark: bool = True) -> None:
    """Writes the metadata, and puts the folder and this repository on the paths of this process and its children.

    Args:
        benchmark: see `write_metadata`.
    """
    from benchmarks.environment import REPOSITORY

    paths = [str(write_metadata(folder, benchmark=benchmark)), str(REPOSITORY)]
    sys.path[:0] = [path for path in paths if path not in sys.path]
    importlib.invalidate_caches()
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])
