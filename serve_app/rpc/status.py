"""Errors as gRPC statuses: the code and message of api.md's table, and google.rpc details for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from serve_app.errors import InvalidRequest, Overloaded, PoolserveError, status_of

DOMAIN = "poolserve"
"""`ErrorInfo.domain`."""
DETAILS = "grpc-status-details-bin"
MESSAGE_BYTES = 900
"""Of a message. It stands in the trailers twice, percent-encoded (three times as long at worst) and in base64; clients
accept 8 kB of trailers."""

Metadata = tuple[tuple[str, str | bytes], ...]


def code_of(error: PoolserveError) -> grpc.StatusCode:
    """The table's gRPC code."""
    return grpc.StatusCode[status_of(error).grpc]


def message_of(error: PoolserveError) -> str:
    """The error's message, bounded in bytes."""
    encoded = error.message.encode("utf-8", "replace")
    return encoded[:MESSAGE_BYTES].decode("utf-8", "ignore") + ("…" if len(encoded) > MESSAGE_BYTES else "")


def details_of(error: PoolserveError, request_id: str) -> bytes:
    """The google.rpc.Status with ErrorInfo, and with BadRequest or RetryInfo where they apply."""
    param = (error.param or "").encode("utf-8", "replace").decode()
    info = {"code": error.code, "request_id": request_id} | ({"param": param} if param else {})
    details: list[Message] = [
        error_details_pb2.ErrorInfo(reason=error.code.upper(), domain=DOMAIN, metadata=info),
    ]
    if isinstance(error, InvalidRequest) and param:
        violation = error_details_pb2.BadRequest.FieldViolation(field=param, description=error.code)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if isinstance(error, Overloaded):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(round(error.retry_after_s * 1e3))
        details.append(retry)
    status = status_pb2.Status(code=code_of(error).value[0], message=message_of(error))
    status.details.extend(_any(detail) for detail in details)
    return bytes(status.SerializeToString())


def metadata_of(told: Mapping[str, str]) -> Metadata:
    """What HTTP says in headers, as trailing metadata."""
    return tuple((name.lower(), value.encode("ascii", "replace").decode()) for name, value in told.items())


async def abort(
    context: grpc.aio.ServicerContext, error: PoolserveError, told: Mapping[str, str], request_id: str
) -> NoReturn:
    """Ends the RPC with an error."""
    trailing = (*metadata_of(told), (DETAILS, details_of(error, request_id)))
    await context.abort(code_of(error), message_of(error), trailing)
    raise AssertionError("abort raises")


def _any(message: Message) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(message)
    return packed
