"""Everything that can go wrong, and what the caller is told.

    PoolserveError
    ├── CallerError                      the request is at fault
    │   ├── InvalidRequest               400 invalid_request
    │   │   ├── UnknownField             400 unknown_field
    │   │   └── ContextLengthExceeded    400 context_length_exceeded
    │   ├── Unauthenticated              401 unauthenticated
    │   ├── NotFound                     404 not_found
    │   │   └── UnknownModel             404 model_not_found
    │   ├── MethodNotAllowed             405 method_not_allowed
    │   ├── TooLarge                     413 payload_too_large
    │   └── NoUsableImage                422 media_unreachable, media_forbidden, media_too_large, media_undecodable
    └── ServerError                      we are at fault, or busy
        ├── Overloaded                   429 overloaded
        ├── InternalError                500 internal_error
        ├── ModelUnavailable             503 model_unavailable
        │   ├── EngineDead               503 engine_dead
        │   └── ReplicaDied              503 replica_died
        └── DeadlineExceeded             504 deadline_exceeded

One table, `STATUS`, gives each class its HTTP and gRPC status. Errors cross process boundaries by pickle, so every
constructor argument is also in `args`; a test pickles each class and another fails when a class is missing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MESSAGE_LIMIT = 450
"""Characters of a message that reach the caller. It stands in a body twice; the body stays under 2 kB."""


class PoolserveError(Exception):
    """Base of all errors of this package.

    Args:
        message: what happened, in the caller's words: names the field and the index, no path, no stack trace.
        param: the request field at fault, e.g. `documents[3]`.
    """

    code: str = "internal_error"

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param)
        self.message = message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "…"
        self.param = param if param is None or len(param) <= 200 else param[:200] + "…"

    def __str__(self) -> str:
        return self.message


class CallerError(PoolserveError):
    """The request is at fault; sending it again unchanged cannot succeed."""

    code = "invalid_request"


class InvalidRequest(CallerError):
    """A value is missing or wrong."""


class UnknownField(InvalidRequest):
    """A field this route does not know, or knows and cannot honour."""

    code = "unknown_field"


class ContextLengthExceeded(InvalidRequest):
    """A text is longer than the model reads and may not be cut."""

    code = "context_length_exceeded"


class Unauthenticated(CallerError):
    """Keys are configured and none, or a wrong one, was sent."""

    code = "unauthenticated"


class NotFound(CallerError):
    """No such route."""

    code = "not_found"


class UnknownModel(NotFound):
    """No such model or version; the message lists what exists."""

    code = "model_not_found"


class MethodNotAllowed(CallerError):
    """The route exists, for another HTTP method."""

    code = "method_not_allowed"


class TooLarge(CallerError):
    """The body, or the number of documents, is over a configured limit."""

    code = "payload_too_large"


class NoUsableImage(CallerError):
    """No image of the request, or not the query's, could be used.

    Args:
        reason: a `vocabulary.MediaErrorCode`; the error's code.
    """

    code = "media_undecodable"

    def __init__(self, message: str, param: str | None = None, reason: str = "media_undecodable") -> None:
        super().__init__(message, param)
        self.args = (message, param, reason)
        self.code = str(reason)


class ServerError(PoolserveError):
    """Not the caller's fault; the same request may succeed later."""


class Overloaded(ServerError):
    """No room for the request now.

    Args:
        retry_after_s: seconds after which room is expected; sent as `Retry-After`.
    """

    code = "overloaded"

    def __init__(self, message: str, param: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message, param)
        self.args = (message, param, retry_after_s)
        self.retry_after_s = retry_after_s


class InternalError(ServerError):
    """Our fault; logged with the request id."""


class ModelUnavailable(ServerError):
    """The model is configured but not ready."""

    code = "model_unavailable"


class EngineDead(ModelUnavailable):
    """The inference engine has died or no longer answers; its replica is being replaced."""

    code = "engine_dead"


class ReplicaDied(ModelUnavailable):
    """A replica died under a call. Scoring has no side effect, so the gateway repeats the call once, elsewhere."""

    code = "replica_died"


class DeadlineExceeded(ServerError):
    """The request's deadline passed; its work was cancelled."""

    code = "deadline_exceeded"


@dataclass(frozen=True, slots=True)
class Status:
    """HTTP status, gRPC status name, and the `type` and TEI `error_type` words for the body."""

    http: int
    grpc: str
    type: str
    tei_type: str


STATUS: dict[type[PoolserveError], Status] = {
    PoolserveError: Status(500, "INTERNAL", "server_error", "backend"),
    CallerError: Status(400, "INVALID_ARGUMENT", "invalid_request_error", "validation"),
    InvalidRequest: Status(400, "INVALID_ARGUMENT", "invalid_request_error", "validation"),
    UnknownField: Status(400, "INVALID_ARGUMENT", "invalid_request_error", "validation"),
    ContextLengthExceeded: Status(400, "INVALID_ARGUMENT", "invalid_request_error", "validation"),
    Unauthenticated: Status(401, "UNAUTHENTICATED", "authentication_error", "validation"),
    NotFound: Status(404, "NOT_FOUND", "not_found_error", "validation"),
    UnknownModel: Status(404, "NOT_FOUND", "not_found_error", "validation"),
    MethodNotAllowed: Status(405, "UNIMPLEMENTED", "invalid_request_error", "validation"),
    TooLarge: Status(413, "RESOURCE_EXHAUSTED", "invalid_request_error", "validation"),
    NoUsableImage: Status(422, "INVALID_ARGUMENT", "invalid_request_error", "validation"),
    ServerError: Status(500, "INTERNAL", "server_error", "backend"),
    Overloaded: Status(429, "RESOURCE_EXHAUSTED", "overloaded_error", "overloaded"),
    InternalError: Status(500, "INTERNAL", "server_error", "backend"),
    ModelUnavailable: Status(503, "UNAVAILABLE", "server_error", "unhealthy"),
    EngineDead: Status(503, "UNAVAILABLE", "server_error", "unhealthy"),
    ReplicaDied: Status(503, "UNAVAILABLE", "server_error", "unhealthy"),
    DeadlineExceeded: Status(504, "DEADLINE_EXCEEDED", "timeout_error", "backend"),
}


def status_of(error: PoolserveError) -> Status:
    """The table's row for an error's own class."""
    return STATUS[type(error)]


def error_body(error: PoolserveError, *, tei: bool = False) -> dict[str, Any]:
    """The JSON body of an error answer; `tei` adds the field that TEI clients read."""
    status = status_of(error)
    body: dict[str, Any] = {
        "error": {"message": error.message, "type": status.type, "code": error.code, "param": error.param},
        "detail": error.message,
    }
    if tei:
        body["error_type"] = status.tei_type
    return body
