"""Activations against torch, also far out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from serve_app.tasks.activation import activate
from serve_app.vocabulary import Activation

LOGITS = np.array([[-200.0, -88.0, -3.5], [0.0, 1e-8, 7.25], [88.0, 200.0, 1e4]], dtype=np.float32)


@pytest.mark.filterwarnings("error")
def test_sigmoid_and_softmax_equal_torch() -> None:
    tensor = torch.from_numpy(LOGITS)
    np.testing.assert_allclose(activate(LOGITS, Activation.SIGMOID), tensor.sigmoid().numpy(), atol=1e-7)
    np.testing.assert_allclose(activate(LOGITS, Activation.SOFTMAX), tensor.softmax(-1).numpy(), atol=1e-7)
    assert activate(LOGITS, Activation.NONE) is LOGITS
    assert activate(LOGITS, Activation.SIGMOID).dtype == np.float32
