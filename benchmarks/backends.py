"""The servers under test: named on the command line, or launched by the run itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from benchmarks.environment import command_line, shorten
from benchmarks.processes import Server

UNKNOWN = "unknown"
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
    "half": "float16",
    UNKNOWN: UNKNOWN,
}


class UsageError(ValueError):
    """The command line asks for something that would give no comparable figures."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One side of the comparison.

    Attributes:
        name: in tables and on the command line.
        url: the route, in full.
        model: sent in each request; None: left out.
        dtype: as stated by the caller or the launched configuration; never guessed.
        return_documents: ask for the documents back. vLLM always sends them; Poolserve on request only.
        server: what to start and stop; None for one that runs already.
        shape: how requests and answers look, where there is more than one way (`text/wire.py`).
    """

    name: str
    url: str
    model: str | None
    dtype: str
    return_documents: bool = False
    server: Server | None = field(default=None, compare=False)
    shape: str | None = None

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    def described(self) -> dict[str, Any]:
        """What results say about it."""
        server = self.server
        return {
            "name": self.name,
            "url": self.url,
            "model": self.model,
            "dtype": self.dtype,
            "return_documents": self.return_documents,
            "shape": self.shape,
            "command": command_line(server.command) if server else None,
            "environment": shorten(server.env) if server else None,
            "start_seconds": server.start_seconds if server else None,
        }


def dtype_name(text: str) -> str:
    """The full name of a number format.

    Raises:
        UsageError: `auto` and other words that name no format; vLLM's `auto` makes 16 bit out of float32.
    """
    try:
        return DTYPES[text.lower()]
    except KeyError:
        raise UsageError(f"dtype {text!r} names no number format; one of {', '.join(sorted(DTYPES))}") from None


def parse_backend(text: str, model: str | None = None, shapes: Mapping[str, str] | None = None) -> Backend:
    """`NAME=URL[,model=NAME][,dtype=DTYPE]`; a URL without a path gets `/rerank`.

    Args:
        model: used where the text names none.
        shapes: the shapes that `shape=` may name, the first of them by default, and the path of each.
    """
    name, equals, rest = text.partition("=")
    url, *options = rest.split(",")
    parts = urlsplit(url)
    if not name or not equals or parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"--backend {text!r}: expected NAME=http://HOST:PORT[,model=NAME][,dtype=DTYPE]")
    found = dict(option.partition("=")[::2] for option in options)
    known = ["model", "dtype", *(["shape"] if shapes else [])]
    if unknown := set(found) - set(known):
        raise UsageError(f"--backend {text!r}: unknown key {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    shape = found.get("shape", next(iter(shapes))) if shapes else None
    if shapes and shape not in shapes:
        raise UsageError(f"--backend {text!r}: no shape {shape!r}; known: {', '.join(shapes)}")
    path = shapes[shape] if shapes and shape else "/rerank"
    return Backend(
        name=name,
        url=url if parts.path.strip("/") else url.rstrip("/") + path,
        model=found.get("model", model),
        dtype=dtype_name(found.get("dtype", UNKNOWN)),
        shape=shape,
    )


def check_backends(backends: Sequence[Backend], allow_dtype_mismatch: bool = False) -> None:
    """Refuse a run whose sides cannot be compared.

    Raises:
        UsageError: no backend, a name twice, or number formats that differ. A stated and an unstated format count as
            different: nothing shows that they are the same.
    """
    if not backends:
        raise UsageError("name at least one server: --backend, --launch-vllm or --launch-poolserve")
    names = [b.name for b in backends]
    if len(set(names)) < len(names):
        raise UsageError(f"backend names must differ: {', '.join(names)}")
    dtypes = {b.name: b.dtype for b in backends}
    if len(set(dtypes.values())) > 1 and not allow_dtype_mismatch:
        stated = ", ".join(f"{name} {dtype}" for name, dtype in dtypes.items())
        raise UsageError(
            f"number formats differ ({stated}): state the same with dtype= or --dtype, or pass --allow-dtype-mismatch"
        )


def parity_threshold(backends: Sequence[Backend]) -> float:
    """Largest score difference that passes: 0.05 where 16 bit is at work, else 1e-3 (unstated formats included)."""
    return 0.05 if any(b.dtype.endswith("float16") for b in backends) else 1e-3
