"""Engines that share a GPU start one after the other.

vLLM measures the device's free memory before and after it loads; a neighbour that loads meanwhile is taken for its own
use, and one of both gives up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from filelock import FileLock, Timeout

logger = logging.getLogger(__name__)


@asynccontextmanager
async def gpu_turn(
    folder: Path | None = None, *, poll_s: float = 0.25, tell_every_s: float = 30.0
) -> AsyncIterator[None]:
    """Waits until no other engine of this machine starts on the process's GPUs, and keeps others waiting for the block.

    The GPUs are those of `CUDA_VISIBLE_DEVICES`, which Ray sets for each replica. The lock is a file's: the end of a
    process, however it comes, frees it.

    Args:
        folder: where the lock is; None: a folder of this user among the temporary files.
        poll_s: seconds between two tries.
        tell_every_s: seconds between two log lines while it waits.
    """
    if folder is None:
        folder = Path(tempfile.gettempdir()) / f"poolserve-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "all").replace("/", "_")
    lock = FileLock(folder / f"gpu-{devices}.lock", thread_local=False)
    while True:
        try:
            await asyncio.to_thread(lock.acquire, timeout=tell_every_s, poll_interval=poll_s)
            break
        except Timeout:
            logger.info("another engine is starting on GPU %s; waiting", devices)
    try:
        yield
    finally:
        lock.release()
