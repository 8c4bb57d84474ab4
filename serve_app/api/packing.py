"""Vectors as the numbers that answers carry in bytes; HTTP and gRPC share the check."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from serve_app.errors import InvalidRequest
from serve_app.messages import FloatArray

WIRE_TYPES: dict[str, np.dtype[Any]] = {"float32": np.dtype("<f4"), "float16": np.dtype("<f2")}
FLOAT16_MAX = 65_504.0


def as_wire(values: FloatArray, dtype: np.dtype[Any], field: str) -> npt.NDArray[Any]:
    """The values as little-endian numbers, contiguous.

    Args:
        dtype: one of `WIRE_TYPES`.
        field: the caller's, that asked for it.

    Raises:
        InvalidRequest: a value is too large for float16; a cast would make it infinity.
    """
    if dtype.itemsize == 2:
        size = np.abs(values)
        if (size > FLOAT16_MAX).any():  # NaN, a failed input's, is not
            text = f"{field}: {np.nanmax(size):.6g} does not fit float16; ask for float32, or normalize"
            raise InvalidRequest(text, field)
    return np.ascontiguousarray(values).astype(dtype, copy=False)
