"""Decoders whose prompts are cut over several steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from serve_app.messages import ClassifyRequest
from serve_app.tasks.classify.build_input import build_input
from tests.checkpoints import Checkpoints
from tests.parity.conftest import Served, serving

LENGTH, STEP = 64, 96


@pytest.fixture(scope="module")
def served(checkpoints: Checkpoints) -> Iterator[Served]:
    with serving(checkpoints.qwen3(3), "classify", max_model_len=LENGTH, max_num_batched_tokens=STEP) as started:
        yield started


def test_prompts_as_long_as_the_window_are_finished_in_chunks(served: Served) -> None:
    """vLLM 0.26 holds back the window's last position: once cut, such a prompt is never finished there."""
    request = ClassifyRequest([f"{number} fox " * LENGTH for number in range(12)])
    built = build_input(served.model, request)
    assert set(np.diff(built.offsets)) == {LENGTH}
    # Prompts that fit into no step whole, for LENGTH does not divide STEP.
    together = served.run(request, deadline_s=60)
    alone = [served.run(ClassifyRequest([text])).scores[0] for text in request.inputs[:2]]
    np.testing.assert_allclose(together.scores[:2], alone, atol=1e-4)
