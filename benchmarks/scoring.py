"""Scores of a server for the parity set, one request after the other."""

from __future__ import annotations

from collections.abc import Sequence

import aiohttp

from benchmarks.backends import Backend
from benchmarks.load import connect
from benchmarks.wire import MalformedAnswer, RerankCase, body, scores


class ParityRequestFailed(Exception):
    """A backend did not answer a request of the parity set; nothing is measured then."""


async def backend_scores(backend: Backend, cases: Sequence[RerankCase], timeout_s: float) -> list[list[float]]:
    """Scores by request, in the order of the request's documents.

    Raises:
        ParityRequestFailed: with what the server said.
    """
    found = []
    async with connect(timeout_s) as session:
        for number, case in enumerate(cases):
            payload = body(case, backend.model, backend.return_documents)
            try:
                async with session.post(backend.url, data=payload) as response:
                    answer = await response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise ParityRequestFailed(f"{backend.name}, parity request {number}: {error!r}") from error
            if response.status != 200:
                said = answer[:500].decode(errors="replace")
                raise ParityRequestFailed(f"{backend.name}, parity request {number}: {response.status} {said}")
            try:
                found.append(scores(answer, len(case.documents)))
            except MalformedAnswer as error:
                raise ParityRequestFailed(f"{backend.name}, parity request {number}: {error}") from error
    return found
