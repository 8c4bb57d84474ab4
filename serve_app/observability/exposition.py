"""Prometheus's text format, version 0.0.4.

Not OpenMetrics: Prometheus prefers it where it is offered, refuses a whole page for one line that breaks its stricter
rules, and the pages of Ray and HAProxy, which are part of ours, are not made for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(slots=True)
class Block:
    """A family on the page. lines: its samples, ready."""

    name: str
    kind: str
    help: str
    lines: list[str] = field(default_factory=list)


def gauge(name: str, value: float, help: str) -> Block:
    """A family of one sample without labels."""
    return Block(name, "gauge", help, [f"{name} {number(value)}"])


def prefix(sample: str, labels: Iterable[tuple[str, str]]) -> str:
    """`name{label="value",…}` of a sample."""
    inside = ",".join(f'{name}="{escaped(value)}"' for name, value in labels)
    return f"{sample}{{{inside}}}" if inside else sample


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def number(value: float) -> str:
    """A sample's value; whole numbers without a fraction, as they are shorter."""
    if value == int(value) if abs(value) < 1e15 else False:
        return str(int(value))
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text := repr(value), text)


def render(blocks: Mapping[str, Block]) -> bytes:
    """The page, families in the order of their names."""
    parts = []
    for name in sorted(blocks):
        block = blocks[name]
        text = block.help.replace("\\", "\\\\").replace("\n", "\\n")
        parts.append(f"# HELP {name} {text}\n# TYPE {name} {block.kind}\n")
        parts.append("\n".join(block.lines))
        parts.append("\n")
    return "".join(parts).encode()
