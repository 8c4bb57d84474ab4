"""Where vLLM keeps what it has compiled, so that the next start of the same model on the same hardware finds it."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
import subprocess
from pathlib import Path

from serve_app.engine.vllm_options import platform_version
from serve_app.materialized import name_of

logger = logging.getLogger(__name__)

VARIABLE = "VLLM_CACHE_ROOT"


def use_compile_cache(parent: Path, digest: str) -> Path | None:
    """Points vLLM at the cache of this model, these versions and this GPU; must run before vLLM is imported.

    A variable that is set already stays. vLLM's own key inside the folder is finer (options, shapes); ours lets one
    model's cache be deleted, and keeps machines with different GPUs apart on shared storage.

    Args:
        parent: folder of all caches.
        digest: the model's content.

    Returns:
        The folder; None if it cannot be written, or the variable was set.
    """
    if VARIABLE in os.environ:
        return None
    folder = parent / cache_key(digest)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.warning("no compile cache in %s: %s", parent, error)
        return None
    if not os.access(folder, os.W_OK):
        logger.warning("no compile cache in %s: not writable", parent)
        return None
    os.environ[VARIABLE] = str(folder)
    return folder


def cache_key(digest: str) -> str:
    """The folder's name: model, vLLM, torch, hardware."""
    torch = importlib.metadata.version("torch")
    return f"{digest}-vllm-{platform_version()}-torch-{torch}-{name_of(hardware())}"


def hardware() -> str:
    """The first GPU's name, else the processor's kind. Asks the driver: CUDA in this process would hold memory."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
        names = answer.stdout.split("\n") if answer.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        names = []
    return names[0].strip() if names and names[0].strip() else platform.machine()
