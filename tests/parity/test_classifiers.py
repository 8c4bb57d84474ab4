"""Multi-label classifiers in fp32 against Transformers. The multi-class one is in the running server's tests."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from serve_app.messages import ClassifyRequest
from serve_app.tasks.classify.reference import reference_logits
from serve_app.vocabulary import DType
from tests.checkpoints import CORPUS, Checkpoints
from tests.parity.conftest import Served, serving

TEXTS = [*CORPUS, "Hi", "", "좋아요", "😀", "the quick fox " * 80]


@pytest.fixture(scope="module", params=["vllm", "torch"])
def served(request: pytest.FixtureRequest, checkpoints: Checkpoints) -> Iterator[Served]:
    folder = checkpoints.bert(4, problem_type="multi_label_classification")
    engine = {"kind": request.param, "enforce_eager": True}
    with serving(folder, "classify", max_model_len=128, engine=engine) as started:
        yield started


def test_each_label_has_a_probability_of_its_own(served: Served) -> None:
    want = reference_logits(served.model.checkpoint.folder, TEXTS, dtype=DType.FLOAT32, max_length=128)
    result = served.run(ClassifyRequest(TEXTS))
    np.testing.assert_allclose(result.scores, 1 / (1 + np.exp(-want)), atol=1e-4)
    np.testing.assert_allclose(served.run(ClassifyRequest(TEXTS, raw_scores=True)).scores, want, atol=1e-4)
    assert result.labels == ("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3")
    assert not np.allclose(result.scores.sum(1), 1)


def test_pairs_have_token_types(served: Served) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = served.model.checkpoint.folder
    pairs = [("the food", "the quick fox is good"), ("fox", ""), ("a", "b c d")]
    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForSequenceClassification.from_pretrained(folder).eval(),
    )
    with torch.inference_mode():
        want = [model(**tokenizer([a], [b], return_tensors="pt")).logits[0].numpy() for a, b in pairs]
    got = served.run(ClassifyRequest(pairs, raw_scores=True)).scores
    np.testing.assert_allclose(got, np.stack(want), atol=1e-4)
