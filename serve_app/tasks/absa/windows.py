"""Long texts in overlapping windows, and one row per token out of them again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from serve_app.messages import FloatArray


def window_starts(tokens: int, room: int, step: int) -> list[int]:
    """First token of each window of `room` tokens; the last window may be shorter, as Transformers cuts them.

    Args:
        tokens: of the text, special tokens not counted.
        room: tokens of a window.
        step: from one window's start to the next one's; what is left of `room` is shared.
    """
    windows = 1 if tokens <= room else 1 + -(-(tokens - room) // step)
    return [window * step for window in range(windows)]


def merge_windows(parts: Sequence[FloatArray], starts: Sequence[int]) -> FloatArray:
    """One row per token, [tokens, width], from the window where the token has the most context; the earlier one of two.

    A token's context in a window is the number of tokens to the window's nearer end. The text's own ends do not count:
    nothing is missing there.

    Args:
        parts: each window's rows, without special tokens.
        starts: each window's first token.
    """
    if len(parts) == 1:
        return parts[0]
    tokens = starts[-1] + len(parts[-1])
    best = np.full(tokens, -1, dtype=np.int64)
    merged = np.empty((tokens, parts[0].shape[1]), dtype=np.float32)
    for part, start in zip(parts, starts, strict=True):
        end = start + len(part)
        before = np.arange(len(part)) if start else np.full(len(part), tokens)
        after = np.arange(len(part) - 1, -1, -1) if end < tokens else np.full(len(part), tokens)
        context = np.minimum(before, after)
        better = context > best[start:end]
        best[start:end][better] = context[better]
        merged[start:end][better] = part[better]
    return merged
