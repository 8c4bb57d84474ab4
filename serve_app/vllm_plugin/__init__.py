"""What `pip install` registers with vLLM. vLLM calls `register` in each of its processes."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys

PARENT = "POOLSERVE_ENGINE_PARENT"
"""Set by an engine's replica to its process id, for the processes below it; absent in a plain `vllm serve`."""
SPIN_S = "POOLSERVE_WORKER_SPIN_S"
"""Set by an engine's replica on CPU: seconds that a worker polls for its next step before it sleeps."""
_PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


def register() -> None:
    """Fits the processes of an engine to a replica: they end with it, and idle ones sleep."""
    parent = os.environ.get(PARENT)
    if parent is None or str(os.getpid()) == parent:
        return
    _end_with_parent()
    if (seconds := os.environ.get(SPIN_S)) is not None:
        _sleep_when_idle(float(seconds))


def _end_with_parent() -> None:
    """Without this a replica that is killed leaves its engine core and its workers behind, with their memory."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # the parent died before the tie was made
        os.kill(os.getpid(), signal.SIGKILL)


def _sleep_when_idle(seconds: float) -> None:
    """vLLM's CPU worker polls a core for a second after each step; with a canary every 2 s, half a core for nothing."""
    from vllm.distributed.device_communicators import shm_broadcast

    condition = getattr(shm_broadcast, "SpinCondition", None)
    if condition is None or condition.__init__.__defaults__ != (1,):
        logger.warning("vLLM's SpinCondition has changed; idle workers will poll")
        return
    condition.__init__.__defaults__ = (seconds,)
