"""What one side, the reference or the server, answered; and the tick that moves the progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, overload

from serve_app.messages import AbsaItem, FloatArray

T = TypeVar("T")

Tick = Callable[[int], None]
"""Called with the number of inputs that were just done."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One side's answer to one line.

    Attributes:
        values: float32 [documents] or [labels]: logits; [dimensions]: a vector; None: ABSA, or no answer.
        scores: the same after the activation; None for vectors.
        labels: names of the columns of a classifier's values.
        item: ABSA's answer.
        truncated: documents that were cut, as far as this side says so; 0 for a line that is one input.
        failed: message by document, for those without an answer; their values are NaN.
        error: why the whole line has no answer; None: it has one.
    """

    values: FloatArray | None = None
    scores: FloatArray | None = None
    labels: tuple[str, ...] = ()
    item: AbsaItem | None = None
    truncated: frozenset[int] = frozenset()
    failed: Mapping[int, str] = field(default_factory=dict)
    error: str | None = None


class Ticking(Sequence[T]):
    """A sequence that moves the progress bar as it is walked through, and knows how far that went.

    Args:
        items: the sequence.
        tick: moves the bar.
    """

    def __init__(self, items: Sequence[T], tick: Tick) -> None:
        self._items = items
        self._tick = tick
        self.started = 0

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        for item in self._items:
            self.started += 1
            yield item
            self._tick(1)
