"""The picture of a day: replicas, queue, p95 and GPU-hours by policy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

PANELS = (
    ("requests_per_s", "requests/s", "linear"),
    ("replicas", "replicas paid", "linear"),
    ("queue_tokens", "tokens in flight", "log"),
    ("p95_ms", "p95, ms", "log"),
    ("gpu_hours", "GPU-hours so far", "linear"),
)


def draw(days: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Writes an SVG file.

    Args:
        days: `day.series` by policy.
    """
    mpl.rcParams.update({"svg.hashsalt": "poolserve", "font.size": 9, "svg.fonttype": "none"})
    figure, axes = plt.subplots(len(PANELS), 1, figsize=(10, 12), sharex=True, layout="constrained")
    for axis, (key, label, scale) in zip(axes, PANELS, strict=True):
        for name, day in days.items():
            axis.plot(day["hours"], day[key], label=name, linewidth=1.2)
            if key == "requests_per_s":  # the same for all
                axis.lines[0].set_color("black")
                break
        axis.set(ylabel=label, yscale=scale)
        axis.grid(alpha=0.3)
    axes[1].legend(loc="upper left", ncols=2)
    axes[-1].set_xlabel("hour")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
