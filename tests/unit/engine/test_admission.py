"""Admission is all or nothing, gives back what it took, and never locks a large request out for ever."""

from __future__ import annotations

import pytest

from serve_app.engine.admission import Admission
from serve_app.errors import Overloaded
from serve_app.settings import AdmissionSettings

LIMITS = AdmissionSettings(max_documents_in_flight=10, max_tokens_in_flight=100)


def test_sequences_and_tokens_are_both_limits() -> None:
    admission = Admission(LIMITS)
    with admission.take(8, 50):
        with pytest.raises(Overloaded, match="8 documents in flight, 3 more"):
            admission.take(3, 1).__enter__()
        with pytest.raises(Overloaded, match="50 tokens in flight, 51 more"):
            admission.take(1, 51).__enter__()
        assert (admission.sequences, admission.tokens) == (8, 50)
        with admission.take(2, 50):
            assert (admission.sequences, admission.tokens) == (10, 100)
    assert (admission.sequences, admission.tokens) == (0, 0)


def test_room_is_given_back_when_the_work_fails() -> None:
    admission = Admission(LIMITS)
    with pytest.raises(RuntimeError), admission.take(8, 50):
        raise RuntimeError
    assert (admission.sequences, admission.tokens) == (0, 0)


def test_a_request_over_the_limit_runs_alone() -> None:
    admission = Admission(LIMITS)
    with admission.take(500, 5_000), pytest.raises(Overloaded):
        admission.take(1, 1).__enter__()


def test_the_wait_is_bounded() -> None:
    admission = Admission(LIMITS)
    with admission.take(1, 1), pytest.raises(Overloaded) as caught:
        admission.take(10, 1_000_000_000).__enter__()
    assert 1 <= caught.value.retry_after_s <= 30
