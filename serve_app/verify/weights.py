"""The number format that a checkpoint was saved in."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_NAMES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_INTEGERS = ("I", "U", "BOOL")


@dataclass(frozen=True, slots=True)
class Saved:
    """How a checkpoint was saved.

    Attributes:
        parameters: number of weights by format, out of the safetensors headers; empty: there are no such files.
        declared: what `config.json` says (`dtype`, formerly `torch_dtype`); None: nothing.
    """

    parameters: Mapping[str, int]
    declared: str | None

    @property
    def dtype(self) -> str | None:
        """The format of most weights, else what the config declares."""
        return max(self.parameters, key=lambda name: self.parameters[name]) if self.parameters else self.declared

    def __str__(self) -> str:
        if not self.parameters:
            return f"{self.declared or 'unknown'} (config.json; no safetensors files)"
        weights = ", ".join(
            name if len(self.parameters) == 1 else f"{count:,} weights {name}"
            for name, count in sorted(self.parameters.items(), key=lambda item: -item[1])
        )
        return weights if self.declared in (None, self.dtype) else f"{weights} (config.json says {self.declared})"


def read_saved(folder: Path) -> Saved:
    """Reads the headers of a checkpoint's safetensors files and its `config.json`."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length))
        for name, tensor in header.items():
            # Integers are positions and indexes, not weights.
            if name != "__metadata__" and not tensor["dtype"].startswith(_INTEGERS):
                counts[_NAMES.get(tensor["dtype"], tensor["dtype"].lower())] += math.prod(tensor["shape"])
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    declared = config.get("dtype") or config.get("torch_dtype")
    return Saved(dict(counts), str(declared).removeprefix("torch.") if declared else None)
