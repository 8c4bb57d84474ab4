"""The page of a kernel view."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks.kernels.counters import COUNTERS
from benchmarks.pages import machine, plain, table
from benchmarks.stats import spread

_MATRIX = re.compile(r"nvjet|gemm|cutlass|flash|sdpa|wgmma", re.IGNORECASE)
"""Kernels that multiply matrices on the tensor cores: products and attention."""
TOP = 12
"""Kernels that are listed by name."""


def page(result: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    s = result["settings"]
    intro = (
        f"{s['task']}, one request of {s['sequences']} sequence(s), {s['tokens']} tokens on average over "
        f"{s['requests']} requests; {s['dtype']} on all sides; ready token ids, a process a side, nothing else on the "
        f"GPU. The engine is vLLM with our options, its core in the measured process; CUDA graphs up to "
        f"{s['graph_tokens']} tokens. Time of a request "
        "without a profiler (median, smallest and largest); kernels and their time under PyTorch's profiler."
    )
    lines = [f"# {result['name']}", "", f"valid: {'yes' if result['valid'] else 'NO'}", ""]
    lines += [f"* {plain(problem)}" for problem in result["problems"]]
    lines += [intro, "", *_overview(result), ""]
    if any(side.get("counters") for side in result["sides"].values()):
        layers = s.get("counted_layers")
        of = f", the model's first {layers} layers" if layers else ""
        lines += [f"## Counters of one request{of}", "", *_counters(result), ""]
        lines += [
            "Nsight Compute, caches and clocks left alone, the engine without CUDA graphs (the same kernels); "
            "instructions per warp; percentages weighted by the kernels' time. A bulk tensor copy moves a tile in one "
            "instruction and is no global load: read the bytes beside it.",
            "",
        ]
    lines += ["## Kernels by time", "", *_top(result), "", "## Conditions", "", *machine(result)]
    return "\n".join(lines) + "\n"


def _overview(result: Mapping[str, Any]) -> Iterator[str]:
    count = result["settings"]["requests"]
    rows = []
    for name, side in result["sides"].items():
        if "ms" not in side:
            continue
        kernels = sum(number for number, _ in side["kernels"].values()) / count
        busy = side["kernel_ms"] / count / float(np.median(side["ms"])) if side["kernel_ms"] else 0.0
        parity = side.get("max_abs", np.nan)
        matrix = sum(ms for kernel, (_, ms) in side["kernels"].items() if _MATRIX.search(kernel))
        share = matrix / side["kernel_ms"] if side["kernel_ms"] else 0.0
        rows.append(
            [
                name,
                str(spread(side["ms"])),
                f"{kernels:.0f}",
                f"{side['copies'] / count:.0f}",
                f"{side['kernel_ms'] / count:.2f}",
                f"{100 * share:.0f} %",
                f"{100 * busy:.0f} %",
                f"{parity:.1e}",
            ]
        )
    head = [
        "side",
        "request, ms",
        "kernels",
        "copies",
        "kernels' time, ms",
        "of it products and attention",
        "GPU busy",
        "logits, max abs to float32",
    ]
    return table(head, rows)


def _counters(result: Mapping[str, Any]) -> Iterator[str]:
    sides = {name: side["counters"] for name, side in result["sides"].items() if side.get("counters")}
    names = [name for name in ("kernels", *COUNTERS) if any(name in values for values in sides.values())]
    rows = [[COUNTERS.get(name, name), *(_shown(values.get(name)) for values in sides.values())] for name in names]
    return table(["", *sides], rows)


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " K")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _top(result: Mapping[str, Any]) -> Iterator[str]:
    count = result["settings"]["requests"]
    rows = []
    for side, found in result["sides"].items():
        kernels = sorted(found.get("kernels", {}).items(), key=lambda item: -item[1][1])
        for name, (number, ms) in kernels[:TOP]:
            short = name if len(name) <= 90 else f"{name[:87]}…"
            rows.append([side, f"`{short.replace('|', '/')}`", f"{number / count:.0f}", f"{ms / count:.3f}"])
    return table(["side", "kernel", "a request", "ms a request"], rows)
