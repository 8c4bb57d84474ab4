"""Logits to scores, and the check that they are numbers."""

from __future__ import annotations

import numpy as np

from serve_app.errors import InternalError
from serve_app.messages import FloatArray
from serve_app.vocabulary import Activation


def activate(logits: FloatArray, activation: Activation) -> FloatArray:
    """Applies `activation`; softmax runs over the last axis. Shape and dtype stay."""
    if activation is Activation.SIGMOID:
        # exp of a negative number only: exp(100) overflows float32
        small = np.exp(-np.abs(logits))
        return np.where(logits >= 0, 1 / (1 + small), small / (1 + small)).astype(np.float32)
    if activation is Activation.SOFTMAX:
        shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), dtype=np.float32)
    return logits


def finite(values: FloatArray) -> FloatArray:
    """`values`, all of them numbers.

    Raises:
        InternalError: one is NaN or infinite. A 16 bit model can overflow; such a value must not become a rank.
    """
    if not np.isfinite(values).all():
        index = int(np.argwhere(~np.isfinite(values))[0][0])
        raise InternalError(f"the model gave a value that is not a number for input {index}")
    return values
