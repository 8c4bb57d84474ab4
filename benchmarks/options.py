"""What a run of the rerank benchmark does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.backends import Backend, UsageError
from benchmarks.environment import REPOSITORY


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a run.

    Attributes:
        requests: measured per turn, one number for each concurrency.
        seed: decides every text but the parity set's; a new one each run, or a running server's cache may know them.
        clients: load processes.
        warmup: requests after a backend's start, before anything is measured.
        exclusive: one launched server up at a time.
        together: launched servers start at the same time; each must have a named share of the memory.
        baseline: backend that ratios are taken against.
        tokenizer: folder of the tokenizer that the words are drawn from.
        reference: checkpoint that Transformers scores for parity.
        model_dir: checkpoint whose shape the results name.
        commit: stands in for git where there is no repository.
        command: the command line, and `configs`, the configuration of each launched backend, for the results.
    """

    name: str
    backends: Sequence[Backend]
    concurrencies: Sequence[int]
    requests: Sequence[int]
    seed: str
    documents: int = 20
    rounds: int = 3
    clients: int = 1
    warmup: int = 60
    timeout_s: float = 60.0
    exclusive: bool = False
    together: bool = False
    baseline: str | None = None
    tokenizer: Path | None = None
    reference: Path | None = None
    reference_dtype: str = "float32"
    reference_device: str = "auto"
    max_model_len: int = 512
    parity_requests: int = 25
    parity_threshold: float | None = None
    allow_dtype_mismatch: bool = False
    results_dir: Path = REPOSITORY / "benchmarks" / "results"
    model_dir: Path | None = None
    commit: str | None = None
    command: Sequence[str] = ()
    configs: dict[str, Any] = field(default_factory=dict)


def requests_per_turn(concurrencies: Sequence[int], given: Sequence[int] | None) -> list[int]:
    """One number a concurrency; by default 20 a slot, at least 80 and at most 640.

    Raises:
        UsageError: neither one number nor as many as concurrencies.
    """
    if given is None:
        return [max(80, min(20 * c, 640)) for c in concurrencies]
    if len(given) not in (1, len(concurrencies)):
        raise UsageError(f"--requests: one number, or {len(concurrencies)}")
    return list(given) * (len(concurrencies) if len(given) == 1 else 1)
