"""Which engines Ray can put on one GPU, and whether its memory is enough for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from serve_app.settings import ModelSettings

WHOLE_GPU = 10_000
"""Ray counts GPUs in ten-thousandths."""
MEMORY_SHARE = 0.9
"""Of a GPU's memory, for all of its engines."""


def overfull(models: Mapping[str, ModelSettings]) -> tuple[Counter[str], float] | None:
    """The engines of one GPU that take most of its memory together, and how much, where that is too much.

    Ray packs by shares of the GPU alone. Replicas are not counted: while a deployment is replaced, its old engines and
    its new ones run.

    Args:
        models: by application.
    """
    sharing = {
        name: settings
        for name, settings in models.items()
        if settings.device == "cuda" and settings.pooling_engine.gpus_per_engine < 1
    }
    pinned = {name: frozenset(settings.pooling_engine.resources) for name, settings in sharing.items()}
    worst: tuple[Counter[str], float] | None = None
    for resources in set(pinned.values()):  # a node that has these takes what asks for no others
        shares = {
            name: (
                max(1, round(settings.pooling_engine.gpus_per_engine * WHOLE_GPU)),
                settings.gpu_memory_per_engine or 0.0,
            )
            for name, settings in sharing.items()
            if pinned[name] <= resources
        }
        packed = fullest(shares)
        taken = sum(shares[name][1] * count for name, count in packed.items())
        if taken > (worst[1] if worst else MEMORY_SHARE) + 1e-9:
            worst = packed, taken
    return worst


def fullest(engines: Mapping[str, tuple[int, float]]) -> Counter[str]:
    """The engines that one GPU has room for and that take most memory together.

    Args:
        engines: by name (ten-thousandths of the GPU, share of its memory); each any number of times.
    """
    most, last = [0.0] * (WHOLE_GPU + 1), [""] * (WHOLE_GPU + 1)
    for room in range(1, WHOLE_GPU + 1):
        most[room] = most[room - 1]
        for name, (gpu, memory) in engines.items():
            if gpu <= room and most[room - gpu] + memory > most[room] + 1e-9:
                most[room], last[room] = most[room - gpu] + memory, name
    packed: Counter[str] = Counter()
    room = WHOLE_GPU
    while room > 0:
        name = last[room]
        packed.update([name] if name else [])
        room -= engines[name][0] if name else 1
    return packed
