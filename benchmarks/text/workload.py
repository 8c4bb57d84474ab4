"""Texts: the user's own from a JSONL file, or drawn with a stated distribution of lengths."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Sequence
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
    """Where texts, or pairs of a query and a document, come from. `described`: for the results."""

    described: str

    def texts(self, seed: str, count: int, together: int = 1) -> list[Any]:
        """So many texts, determined by the seed. Of pairs, each `together` have one query: they go into one request."""
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

    def texts(self, seed: str, count: int, together: int = 1) -> list[str]:
        """See `Workload.texts`."""
        corpus, source = Corpus(self._words, seed), random.Random(f"lengths/{seed}")
        return [corpus.text(self._lengths.draw(source)) for _ in range(count)]


class DrawnPairs:
    """Documents that never repeat; a query has 5-16 words.

    Args:
        words: the vocabulary, most frequent first.
        lengths: of the documents.
    """

    def __init__(self, words: Sequence[str], lengths: Lengths) -> None:
        self._words = words
        self._lengths = lengths
        self.described = f"synthetic, queries of 5-16 words, words of a document {lengths}"

    def texts(self, seed: str, count: int, together: int = 1) -> list[Any]:
        """See `Workload.texts`."""
        corpus, source = Corpus(self._words, seed), random.Random(f"lengths/{seed}")
        found: list[Any] = []
        while len(found) < count:
            query = corpus.query()
            found += [(query, corpus.text(self._lengths.draw(source))) for _ in range(together)]
        return found[:count]


class FromFile:
    """Texts of a file, in an order that the seed decides; they repeat when more are asked for than the file has.

    A request of several pairs has a line's query and documents: the first ones when the line has more, all of them
    again when it has fewer.

    Args:
        path: JSONL; a line is a string, or an object with one of the fields of `_FIELDS`, which may hold a list.
        pairs: a line is an object with `query` and `documents` instead, or one `document`.

    Raises:
        UsageError: a line holds no text; names it.
    """

    def __init__(self, path: Path, *, pairs: bool = False) -> None:
        self._lines = _read(path, _pairs if pairs else _texts)
        self._pairs = pairs
        count = sum(map(len, self._lines))
        self.described = f"{path.name}, {count} {'pairs' if pairs else 'texts'}"

    def texts(self, seed: str, count: int, together: int = 1) -> list[Any]:
        """See `Workload.texts`."""
        source = random.Random(seed)
        whole = self._pairs and together > 1
        groups = self._lines if whole else [[text] for line in self._lines for text in line]
        found: list[Any] = []
        while len(found) < count:
            for group in source.sample(groups, len(groups)):
                found += itertools.islice(itertools.cycle(group), together if whole else 1)
        return found[:count]


def _texts(value: Any) -> list[Any]:
    """What a line holds; empty: nothing of use."""
    if isinstance(value, dict):
        value = next((value[name] for name in _FIELDS if name in value), None)
    return value if isinstance(value, list) else [value]


def _pairs(value: Any) -> list[Any]:
    if not isinstance(value, dict):
        return []
    documents = value.get("documents", value.get("document"))
    listed = documents if isinstance(documents, list) else [documents]
    return [(value.get("query"), document) for document in listed]


def _is_text(item: Any) -> bool:
    return all(isinstance(part, str) and part.strip() for part in (item if isinstance(item, tuple) else (item,)))


def _read(path: Path, items: Callable[[Any], list[Any]]) -> list[list[Any]]:
    """What each line holds."""
    found: list[list[Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value: Any = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path.name}, line {number}: not JSON: {error}") from None
        texts = items(value)
        if not texts or not all(map(_is_text, texts)):
            wanted = "query and documents" if items is _pairs else f"a string or one of {', '.join(_FIELDS)}"
            raise UsageError(f"{path.name}, line {number}: no text; expected {wanted}")
        found.append(texts)
    if not found:
        raise UsageError(f"{path.name} holds no text")
    return found
