"""What several messages hold: arrays, a request's context, images as they are named, errors of items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from serve_app.vocabulary import MediaErrorCode

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Context:
    """What every stage needs to know about a request.

    Attributes:
        request_id: the caller's `X-Request-Id`, or one made by the gateway.
        deadline: wall-clock time (`time.time()`, seconds) at which the answer is worth nothing any more.
        operation: the route's operation, for error texts and logs.
        trace: W3C `traceparent` of the span that the stage belongs to; "": the request is not traced.
    """

    request_id: str
    deadline: float
    operation: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image as the caller named it: exactly one of both.

    Attributes:
        url: where it is; any string, not checked yet.
        data: its bytes, as sent in the request.
        complaint: why nothing can be made of what was sent, in the caller's words and with the field's name; `data` is
            empty then. "": it looks like an image so far.
    """

    url: str | None = None
    data: bytes | None = None
    complaint: str = ""

    def __repr__(self) -> str:  # neither URLs nor bytes belong into logs
        return f"ImageRef({'url' if self.data is None else f'{len(self.data)} bytes'})"


@dataclass(frozen=True, slots=True)
class ItemError:
    """One document or input that has no answer, while the others have theirs.

    Attributes:
        index: its place in the request's documents or inputs.
        code: why.
        message: in the caller's words; names the field, tells nothing of what was found at a URL.
    """

    index: int
    code: MediaErrorCode
    message: str
