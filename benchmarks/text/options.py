"""Settings of an `absa`, `embed`, `classify` or `documents` run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.backends import Backend
from benchmarks.text.computing import Method
from benchmarks.text.workload import Workload

ONE_BY_ONE = "transformers, one by one"
DEFAULT_LENGTHS = {
    "absa": "uniform:min=38,max=58",
    "embed": "lognormal:median=18,sigma=0.35,min=6,max=64",
    "classify": "lognormal:median=24,sigma=0.5,min=4,max=200",
    "documents": "lognormal:median=75,sigma=0.45,min=15,max=380",
}
"""In words; with the model's own tokenizer a word is a token, and two special ones come on top."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Settings of a run.

    Attributes:
        task: the command.
        model_dir: checkpoint that the library loads; None: no library, no reference.
        methods: how the library is run, one side each.
        dtype: of the library.
        device: `cpu`, `cuda` or `auto`.
        inputs: texts, or documents, of a request, one condition each.
        concurrencies: requests in flight of closed loops.
        rates: requests/s of open loops.
        seconds: of a turn.
        baselines: named ones; None: see `run.TextRun`.
        budget_s: no turn is begun later than this after the start.
        parity_texts: 0: none.
    """

    task: str
    name: str
    backends: Sequence[Backend]
    workload: Workload
    seed: str
    model_dir: Path | None
    methods: Sequence[Method]
    dtype: str
    device: str = "auto"
    max_model_len: int = 512
    inputs: Sequence[int] = (1,)
    concurrencies: Sequence[int] = (1, 16)
    rates: Sequence[float] = ()
    rounds: int = 3
    seconds: float = 3.0
    clients: int = 1
    warmup: int = 60
    timeout_s: float = 60.0
    budget_s: float = 3600.0
    baselines: Sequence[str] | None = None
    parity_texts: int = 100
    allow_dtype_mismatch: bool = False
    results_dir: Path = Path("results")
    commit: str | None = None
    command: Sequence[str] = ()
    configs: dict[str, Any] = field(default_factory=dict)


def methods(task: str, batches: Sequence[int]) -> list[Method]:
    """Transformers one text at a time, as the published baseline, and in batches; sentence-transformers in batches."""
    if task == "documents":
        batched = [
            Method(f"cross-encoder, {p}, batch {b}", p, b) for b in batches for p in ("fixed", "dynamic", "sorted")
        ]
        return [*batched, *(Method(f"cross-encoder, predict, batch {b}", "own", b) for b in batches)]
    if task == "embed":
        return [Method(f"sentence-transformers, batch {batch}", "own", batch) for batch in batches]
    paddings = ("fixed", "dynamic", "sorted")
    batched = [Method(f"transformers, {p}, batch {b}", p, b) for b in batches for p in paddings]
    return [Method(ONE_BY_ONE, "none", 1), *batched]
