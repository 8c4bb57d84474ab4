"""Takes from clients the power that Ray Serve gives them through headers."""

from __future__ import annotations

import logging

from ray.serve._private import replica

logger = logging.getLogger("ray.serve")


def ignore_timeout_header() -> None:
    """In this replica `x-request-timeout-seconds` no longer sets, or switches off, Ray's own timeout.

    Ray would answer 408 in plain text. Our deadline (`X-Request-Timeout-Ms`) answers 504 as JSON and has a limit. Ray
    2.60 has no setting for this, and HAProxy's template no place for it.
    """
    if not hasattr(replica, "parse_request_timeout_header"):
        logger.warning("Ray Serve has changed: clients can set its timeout by header")
        return
    replica.parse_request_timeout_header = lambda headers, default_timeout_s: default_timeout_s
