"""Pieces of a result's Markdown page that all benchmarks share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.parity import Agreement

_MARKUP = str.maketrans({"|": r"\|", "<": "&lt;"})


def plain(text: str) -> str:
    """A text of somebody else's, such as a server's error, as one line that is no Markdown and no HTML."""
    return " ".join(text.split()).translate(_MARKUP)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A Markdown table's lines."""
    yield "| " + " | ".join(map(plain, header)) + " |"
    yield "| " + " | ".join("---" for _ in header) + " |"
    for cells in rows:
        yield "| " + " | ".join(map(plain, cells)) + " |"


def listed(values: Mapping[str, Any]) -> str:
    """Names and values in one line."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def machine(result: Mapping[str, Any]) -> Iterator[str]:
    """Hardware and commit."""
    hardware, code = result["hardware"], result["code"]
    gpus = ", ".join(g["name"] for g in hardware["gpus"]) or "no GPU"
    yield f"* hardware: {gpus}; {hardware['cpus']} CPUs ({hardware['cpu']}), {hardware['memory_gib']} GiB"
    yield f"* commit {code['commit'] or 'unknown'}{', with local changes' if code['dirty'] else ''}"


def parity_table(agreements: Sequence[Agreement]) -> Iterator[str]:
    """How scores agree."""
    header = ["backend", "against", "requests", "max abs", "mean abs", "same best", "Spearman", "limit", ""]
    return table(header, map(_parity_cells, agreements))


def _parity_cells(a: Agreement) -> list[str]:
    cells = [a.backend, a.against, str(a.requests), f"{a.max_abs:.1e}", f"{a.mean_abs:.1e}", f"{100 * a.top1:.0f} %"]
    return [*cells, f"{a.spearman:.5f}", f"{a.threshold:g}", "passed" if a.passed else "FAILED"]
