"""Texts: the user's own from a JSONL file, or drawn with a stated distribution of lengths."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.backends import UsageError
from benchmarks.corpus import Corpus

_KINDS = {
    "fixed": ("words",),
    "uniform": ("min", "max"),
    "lognormal": ("median", "sigma", "min", "max"),
}
_FIELDS = ("text", "input", "inputs", "sentence", "query", "document")


@dataclass(frozen=True, slots=True)
class Lengths:
    """How many words a text has. With a tokenizer at hand words are drawn that are one token each.

    Attributes:
        kind: `fixed`, `uniform` or `lognormal`.
        numbers: its parameters by name; see `_KINDS`.
    """

    kind: str
    numbers: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, text: str) -> Lengths:
        """`lognormal:median=45,sigma=0.4,min=8,max=120`, `uniform:min=38,max=58`, `fixed:words=50`.

        Raises:
            UsageError: another form, or numbers that make no sense.
        """
        kind, _, rest = text.partition(":")
        found = dict(re.findall(r"(\w+)=([0-9.]+)", rest))
        if kind not in _KINDS or set(found) != set(_KINDS[kind]):
            forms = "; ".join(f"{name}:{','.join(f'{key}=N' for key in keys)}" for name, keys in _KINDS.items())
            raise UsageError(f"--lengths {text!r}: expected one of {forms}")
        numbers = {key: float(found[key]) for key in _KINDS[kind]}
        if any(numbers.get(key, 1) < 1 for key in ("words", "min", "median")) or numbers.get("min", 0) > numbers.get(
            "max", numbers.get("min", 0)
        ):
            raise UsageError(f"--lengths {text!r}: at least one word, and min not above max")
        return cls(kind, tuple(numbers.items()))

    def draw(self, source: random.Random) -> int:
        """Words of one text."""
        n = dict(self.numbers)
        match self.kind:
            case "fixed":
                return round(n["words"])
            case "uniform":
                return source.randint(round(n["min"]), round(n["max"]))
            case _:
                drawn = n["median"] * source.lognormvariate(0.0, n["sigma"])
                return round(max(n["min"], min(n["max"], drawn)))

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(f'{key}={value:g}' for key, value in self.numbers)}"


class Workload(Protocol):
    """Where texts come from. `described`: for the results."""

    described: str

    def texts(self, seed: str, count: int) -> list[str]:
        """So many texts, determined by the seed."""
        ...


class Drawn:
    """Texts that never repeat.

    Args:
        words: the vocabulary, most frequent first.
    """

    def __init__(self, words: Sequence[str], lengths: Lengths) -> None:
        self._words = words
        self._lengths = lengths
        self.described = f"synthetic, words {lengths}"

    def texts(self, seed: str, count: int) -> list[str]:
        """See `Workload.texts`."""
        corpus, source = Corpus(self._words, seed), random.Random(f"lengths/{seed}")
        return [corpus.text(self._lengths.draw(source)) for _ in range(count)]


class FromFile:
    """Texts of a file, in an order that the seed decides; they repeat when more are asked for than the file has.

    Args:
        path: JSONL; a line is a string, or an object with one of the fields of `_FIELDS`, which may hold a list.

    Raises:
        UsageError: a line holds no text; names it.
    """

    def __init__(self, path: Path) -> None:
        self._texts = _read(path)
        self.described = f"{path.name}, {len(self._texts)} texts"

    def texts(self, seed: str, count: int) -> list[str]:
        """See `Workload.texts`."""
        source = random.Random(seed)
        found: list[str] = []
        while len(found) < count:
            found += source.sample(self._texts, len(self._texts))
        return found[:count]


def _read(path: Path) -> list[str]:
    found: list[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path.name}, line {number}: not JSON: {error}") from None
        if isinstance(value, dict):
            value = next((value[name] for name in _FIELDS if name in value), None)
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
            raise UsageError(f"{path.name}, line {number}: no text; expected a string or one of {', '.join(_FIELDS)}")
        found += texts
    if not found:
        raise UsageError(f"{path.name} holds no text")
    return found
