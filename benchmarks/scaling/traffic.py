"""Arrivals of a day: made up with a stated shape, or read from a file."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.backends import UsageError

DAY_S = 86_400.0
SIZES = {20: 0.80, 100: 0.17, 500: 0.03}
"""Documents of a request, and the share of requests that have as many."""
CURVE = (
    (0, 0.25),
    (4, 0.10),
    (7, 0.30),
    (9, 0.55),
    (12.5, 0.80),
    (15, 0.60),
    (18, 0.75),
    (20.5, 1.0),
    (23, 0.50),
    (24, 0.25),
)
"""(hour, share of the peak), joined by straight lines: a shop's weekday."""
BURST = (15.0, 10.0, 2.5)
"""At 15:00, for 10 minutes, 2.5 times the traffic, from one second to the next."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Requests by time.

    Attributes:
        times: float64 [requests], seconds from the start, ascending.
        tokens: int64 [requests], tokens that the engine reads for each.
        shape: what they are, for the result's page.
    """

    times: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.int64]
    shape: str

    @property
    def seconds(self) -> float:
        """Length in whole minutes, rounded up."""
        return 60.0 * float(np.ceil((self.times[-1] + 1e-9) / 60.0)) if len(self.times) else 0.0


def synthetic(seed: int, peak: float, tokens_per_document: int, hours: float = 24.0) -> Arrivals:
    """A made-up day: `CURVE` times `peak` requests/s, `BURST`, 8 % of noise by the minute, and Poisson arrivals.

    Args:
        hours: of the day from midnight on.
    """
    random = np.random.default_rng(seed)
    seconds = np.arange(int(hours * 3600))
    rate = peak * np.interp(seconds / 3600, *zip(*CURVE, strict=True))
    rate *= np.repeat(random.lognormal(0.0, 0.08, len(seconds) // 60 + 1), 60)[: len(seconds)]
    start, minutes, factor = BURST
    rate[(seconds >= start * 3600) & (seconds < start * 3600 + minutes * 60)] *= factor
    counts = random.poisson(rate)
    times = np.sort(np.repeat(seconds, counts) + random.random(counts.sum()))
    documents = random.choice(list(SIZES), len(times), p=list(SIZES.values()))
    sizes = ", ".join(f"{share:.0%} of {count}" for count, share in SIZES.items())
    shape = (
        f"made up, seed {seed}: {peak:g} requests/s at 20:30, a second peak at 12:30 (80 %), 10 % at 4:00, straight "
        f"lines between; 8 % noise by the minute; {factor:g} times the traffic from {start:g}:00 on for {minutes:g} "
        f"minutes; Poisson arrivals; documents: {sizes}, {tokens_per_document} tokens each"
    )
    return Arrivals(times, documents.astype(np.int64) * tokens_per_document, shape)


def read(path: Path, tokens_per_document: int) -> Arrivals:
    """Arrivals of a CSV file with a header, or of JSON lines: `time` (seconds or ISO 8601), `documents` or `tokens`.

    Raises:
        UsageError: a line that says neither when nor how much; names its number.
    """
    found: list[tuple[float, int]] = []
    for number, row in enumerate(_rows(path), 1):
        try:
            tokens = int(row["tokens"]) if row.get("tokens") else int(row["documents"]) * tokens_per_document
            found.append((_seconds(row["time"]), tokens))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}: record {number}: needs `time` and `documents` or `tokens` ({error!r})") from None
    if not found:
        raise UsageError(f"{path}: no arrivals")
    found.sort()
    times = np.array([time for time, _ in found])
    return Arrivals(
        times - times[0], np.array([tokens for _, tokens in found], np.int64), f"{len(found)} of {path.name}"
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            yield from csv.DictReader(file)
        else:
            for line in file:
                if line.strip():
                    yield json.loads(line)


def _seconds(value: Any) -> float:
    try:
        return float(value)
    except ValueError:
        return datetime.datetime.fromisoformat(value).timestamp()
