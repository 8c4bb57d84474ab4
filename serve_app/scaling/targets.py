"""Work in flight that one replica of each deployment should have, where `autoscaling` names no target.

Apart from `ray_config`, for the settings compare these with what admission lets in.
"""

from __future__ import annotations

from serve_app.vocabulary import Measure

Targets = dict[Measure, float]

GATEWAY: Targets = {Measure.DOCUMENTS: 1_000}
"""A gateway parses and renders some 20,000 documents a second; half its limit of 2,000 open requests of one each."""
IMAGE_LOADER: Targets = {Measure.IMAGES: 64, Measure.PIXELS: 50_000_000}
"""Twice the connections to one host; half the pixels that a replica decodes at the same time."""
IO_PROCESSOR: Targets = {Measure.DOCUMENTS: 100}
"""About 40 ms of tokenizing on one thread."""


def pooling_engine(max_num_batched_tokens: int) -> Targets:
    """Two steps of the engine: one that runs and one that is ready. Less leaves it idle, more is a queue."""
    return {Measure.TOKENS: 2.0 * max_num_batched_tokens}
