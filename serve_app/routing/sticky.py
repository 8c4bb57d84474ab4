"""The same key always gets the same version."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from serve_app.errors import InvalidRequest
from serve_app.settings import StickySettings

_UNIT = 2.0**-53


def sticky_key(settings: StickySettings, headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """The request's key: the header, else the body's field; None when it brings neither.

    Args:
        headers: names in any case that `headers.get` takes in lower case, as Starlette's and gRPC's metadata do.

    Raises:
        InvalidRequest: the field holds something else than a text.
    """
    key = headers.get(settings.header.lower())
    if key:
        return key
    value = body.get(settings.field) if settings.field is not None else None
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"{settings.field}: must be a string: it decides which version answers", settings.field)
    return value or None


def pick(key: str, weights: Mapping[str, float], salt: str) -> str:
    """The version of a key, by weighted rendezvous hashing.

    Each version draws a number from the key's hash, exponentially distributed with the version's weight as its rate;
    the smallest wins. So a version wins its weight's share of the keys, a version that is added or grows takes keys and
    never hands any out, one that shrinks or leaves only hands out, and no history has to be kept: all gateway replicas
    agree, in every process and after every restart.

    Args:
        weights: weight by version, each above 0.
        salt: keeps the draws of different models, or experiments, apart.
    """
    return min(weights, key=lambda version: (-math.log(_draw(salt, version, key)) / weights[version], version))


def _draw(salt: str, version: str, key: str) -> float:
    """A number between 0 and 1, both excluded; the same one on every machine."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (salt, version, key):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return ((int.from_bytes(digest.digest(), "big") >> 11) + 0.5) * _UNIT
