"""Every error as a gRPC status with details that programs read."""

from __future__ import annotations

import base64
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from serve_app.errors import STATUS, InvalidRequest, Overloaded, PoolserveError
from serve_app.rpc import status

TABLE = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    413: "RESOURCE_EXHAUSTED",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""HTTP status and gRPC code of each error, as the API says."""


@pytest.mark.parametrize("cls", list(STATUS), ids=lambda cls: cls.__name__)
def test_every_class_has_its_code_message_and_details(cls: type[PoolserveError]) -> None:
    error = cls("documents[3]: too long", "documents[3]")
    assert status.code_of(error).name == TABLE[STATUS[cls].http]
    told = status_pb2.Status.FromString(status.details_of(error, "my-id"))
    assert (told.code, told.message) == (status.code_of(error).value[0], "documents[3]: too long")
    info = error_details_pb2.ErrorInfo()
    assert told.details[0].Unpack(info)
    assert (info.reason, info.domain) == (error.code.upper(), "poolserve")
    assert dict(info.metadata) == {"code": error.code, "param": "documents[3]", "request_id": "my-id"}


def _details(error: PoolserveError) -> dict[str, object]:
    found: dict[str, object] = {}
    for packed in status_pb2.Status.FromString(status.details_of(error, "id")).details:
        cls = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])
        message = cls()
        packed.Unpack(message)
        found[cls.DESCRIPTOR.name] = message
    return found


def test_a_bad_field_and_a_wait_have_details_of_their_own() -> None:
    bad = _details(InvalidRequest("top_n: must be at least 1", "top_n"))["BadRequest"]
    assert bad.field_violations[0].field == "top_n"  # type: ignore[attr-defined]
    retry = _details(Overloaded("full", None, 2.5))["RetryInfo"]
    assert retry.retry_delay.ToMilliseconds() == 2_500  # type: ignore[attr-defined]
    assert set(_details(InvalidRequest("no field"))) == {"ErrorInfo"}


@pytest.mark.parametrize("letter", ["x", "é", "卫", "😀", "\x00", "\ud800"])
def test_trailers_stay_small_whatever_the_message(letter: str) -> None:
    error = InvalidRequest(letter * 100_000, letter * 100_000)
    size = len(quote(status.message_of(error))) + len(base64.b64encode(status.details_of(error, "r" * 128)))
    assert size < 7_000  # of 8,192


def test_metadata_has_lower_case_names_and_ascii_values() -> None:
    assert status.metadata_of({"X-Request-Id": "a", "X-Model-Version": "é"}) == (
        ("x-request-id", "a"),
        ("x-model-version", "?"),
    )
    assert status.code_of(Overloaded("full")) is grpc.StatusCode.RESOURCE_EXHAUSTED
