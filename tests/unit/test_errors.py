"""The error tree: complete table, pickling, messages that say little."""

from __future__ import annotations

import pickle

import pytest

from serve_app import errors
from serve_app.errors import STATUS, InvalidRequest, Overloaded, PoolserveError, error_body, status_of


def _tree(cls: type[PoolserveError]) -> list[type[PoolserveError]]:
    return [cls, *(c for sub in cls.__subclasses__() for c in _tree(sub))]


ALL = _tree(PoolserveError)


@pytest.mark.parametrize("cls", ALL, ids=lambda c: c.__name__)
def test_every_class_is_mapped_drawn_and_survives_pickling(cls: type[PoolserveError]) -> None:
    assert cls in STATUS
    assert cls.__name__ in (errors.__doc__ or "")
    error = cls("what happened", "documents[3]")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.message, copy.param) == (cls, "what happened", "documents[3]")
    assert status_of(copy) == STATUS[cls]


def test_overloaded_keeps_its_wait_through_pickling() -> None:
    copy = pickle.loads(pickle.dumps(Overloaded("full", None, 7.5)))
    assert copy.retry_after_s == 7.5


def test_body_is_bounded_whatever_the_message() -> None:
    import orjson

    body = error_body(InvalidRequest("x" * 1_000_000, "p" * 1_000_000))
    assert len(orjson.dumps(body)) < 2_000
    assert body["error"]["code"] == "invalid_request"


def test_tei_shape_has_its_own_word() -> None:
    assert error_body(Overloaded("full"), tei=True)["error_type"] == "overloaded"
    assert "error_type" not in error_body(Overloaded("full"))
