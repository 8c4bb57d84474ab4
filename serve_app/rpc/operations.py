"""Every RPC that does inference: what it takes, the HTTP route's adapter that reads it, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from serve_app.api import absa, classify, embeddings, rerank, score
from serve_app.api.base import Adapter, Call, Limits
from serve_app.api.proto import poolserve_pb2 as pb
from serve_app.errors import InvalidRequest
from serve_app.rpc import answers, bodies

SERVICE = pb.DESCRIPTOR.services_by_name["Poolserve"]
"""Descriptor of `poolserve.v1.Poolserve`."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """One RPC.

    Attributes:
        request: the class of its request message.
        body: its request as a body of the HTTP route.
        adapter: the HTTP route's.
        answer: the request and the HTTP route's answer as the response message.
    """

    request: type[Message]
    body: Callable[[Any], dict[str, Any]]
    adapter: Adapter
    answer: Callable[[Any, Any], Message]

    def read(self, content: bytes, limits: Limits) -> tuple[Message, Call]:
        """The request and what it asks for. Raises CallerError."""
        message = parse(self.request, content)
        return message, self.adapter(self.body(message), limits)


def parse(request: type[Message], content: bytes) -> Message:
    """The message in `content`; InvalidRequest when there is none, UnknownField for fields of a newer .proto."""
    try:
        message = request.FromString(content)
    except DecodeError:
        raise InvalidRequest(f"what was sent is no {request.DESCRIPTOR.name}") from None
    bodies.refuse_unknown(message)
    return message


RPCS: dict[str, Rpc] = {
    "Rerank": Rpc(pb.RerankRequest, bodies.rerank, rerank.rerank, answers.rerank),
    "Score": Rpc(pb.ScoreRequest, bodies.score, score.score, answers.score),
    "Embed": Rpc(pb.EmbedRequest, bodies.embed, embeddings.embeddings, answers.embed),
    "Classify": Rpc(pb.ClassifyRequest, bodies.classify, classify.classify, answers.classify),
    "Absa": Rpc(pb.AbsaRequest, bodies.absa, absa.absa, answers.absa),
}
"""By name. `Models`, which asks no model, is the server's own."""
