"""Documents that were scored in pieces."""

from __future__ import annotations

import numpy as np

from serve_app.messages import FloatArray, IntArray


def best_of_chunks(values: FloatArray, owners: IntArray | None, documents: int) -> FloatArray:
    """The best value among each document's pieces, float32 [documents].

    Args:
        values: float32 [sequences].
        owners: int32 [sequences], the document of each sequence; None: one sequence each.
    """
    if owners is None:
        return values
    best = np.full(documents, -np.inf, dtype=np.float32)
    np.maximum.at(best, owners, values)
    return best
