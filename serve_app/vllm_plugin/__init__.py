"""What `pip install` registers with vLLM. vLLM calls `register` in each of its processes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PARENT = "POOLSERVE_ENGINE_PARENT"
"""Set by an engine's replica to its process id, for the processes below it; absent in a plain `vllm serve`."""
SERVED = "POOLSERVE_ARCHITECTURE"
"""Set by an engine's replica to the architecture of ours that it serves."""
GATHER_MS = "poolserve_gather_ms"
"""Key of vLLM's `additional_config`: see `engine.gather_ms`."""
FULL_GRAPHS = "poolserve_full_cuda_graphs"
"""Key of vLLM's `additional_config`: see `engine.full_cuda_graphs`."""
_PR_SET_PDEATHSIG = 1


def register() -> None:
    """Registers our models, and fits the processes of an engine to a replica: they end with it."""
    from serve_app.vllm_plugin.models.registry import register_models

    register_models()
    parent = os.environ.get(PARENT)
    if parent is None or str(os.getpid()) == parent:
        return
    _end_with_parent()


def _end_with_parent() -> None:
    """Without this a replica that is killed leaves its engine core and its workers behind, with their memory."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # the parent died before the tie was made
        os.kill(os.getpid(), signal.SIGKILL)
