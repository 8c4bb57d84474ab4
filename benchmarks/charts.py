"""A report as one HTML page: tables and inline SVG, nothing from elsewhere. The look is that of `serve_app verify`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape

from benchmarks.stats import Spread, show

WIDTH, MARGIN, BAR = 760, 56, 24
LABEL = 300
"""Pixels for a bar's name."""
COLOURS = ("#2463c7", "#c2571a", "#18794e", "#8e4ec6", "#b5407c", "#6f6e77", "#0d8f9c", "#a18072")
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;display:block;overflow-x:auto}
th,td{border-bottom:1px solid #8886;padding:.3rem .8rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.passed{color:#18794e}.failed{color:#c62a2f;font-weight:600}
figure{display:inline-block;margin:0 1rem 1rem 0}figcaption{font-weight:600}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}
.axis{stroke:currentColor;stroke-opacity:.5}.grid{stroke:#8884}.range{stroke:currentColor;stroke-width:1.5}
"""


def page(title: str, blocks: Iterable[str]) -> str:
    """The page; blocks are HTML."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{''.join(blocks)}</body></html>\n"
    )


def paragraph(text: str, kind: str = "") -> str:
    """Text, escaped; `kind`: `passed` or `failed`."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells that begin with a digit are set to the right."""

    def cell(text: str) -> str:
        return f"<td{' class=n' if text[:1].isdigit() else ''}>{escape(text)}</td>"

    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def bars(title: str, rows: Sequence[tuple[str, Spread]]) -> str:
    """Medians as bars from zero, with the range over rounds as a line. Empty when nothing is finite."""
    kept = [(name, value) for name, value in rows if math.isfinite(value.median)]
    if not kept:
        return ""
    most = max(value.high for _, value in kept) or 1.0
    names = {name: None for name, _ in kept}
    colour = {name.split(" · ")[0]: None for name in names}
    palette = dict(zip(colour, _cycle(len(colour)), strict=True))
    parts = []
    for i, (name, value) in enumerate(kept):
        y = i * BAR + 4
        x = _scale(0.0, most, LABEL, WIDTH - 90)
        middle = y + (BAR - 8) / 2
        parts.append(
            f'<text x="{LABEL - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LABEL}" y="{y}" width="{max(1.0, x(value.median) - LABEL):.1f}" height="{BAR - 8}" '
            f'fill="{palette[name.split(" · ")[0]]}"><title>{escape(f"{name}: {value}")}</title></rect>'
            f'<line class="range" x1="{x(value.low):.1f}" x2="{x(value.high):.1f}" y1="{middle}" y2="{middle}"/>'
            f'<text x="{x(value.high) + 6:.1f}" y="{middle + 4:.1f}">{escape(show(value.median))}</text>'
        )
    return _figure(title, "".join(parts), len(kept) * BAR + 8)


Points = Sequence[tuple[float, float]]


def lines(title: str, horizontal: str, vertical: str, series: Mapping[str, Points], marks: Points = ()) -> str:
    """Lines over a common axis from zero up. Empty when nothing is finite.

    Args:
        marks: stretches (from, to) of the horizontal axis that are shaded.
    """
    kept = {name: [p for p in points if all(map(math.isfinite, p))] for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return ""
    height = 320
    xs = [x for points in kept.values() for x, _ in points]
    most = max(y for points in kept.values() for _, y in points) or 1.0
    x, y = _scale(min(xs), max(xs), MARGIN, WIDTH - 12), _scale(0.0, most * 1.05, height - MARGIN, 12)
    parts = [
        f'<rect x="{x(a):.1f}" y="12" width="{x(b) - x(a):.1f}" height="{height - MARGIN - 12}" fill="#8882"/>'
        for a, b in marks
    ]
    for step in range(6):
        at, value = most * 1.05 * step / 5, min(xs) + (max(xs) - min(xs)) * step / 5
        parts.append(
            f'<line class="grid" x1="{MARGIN}" x2="{WIDTH - 12}" y1="{y(at):.1f}" y2="{y(at):.1f}"/>'
            f'<text x="{MARGIN - 6}" y="{y(at) + 4:.1f}" text-anchor="end">{show(at)}</text>'
            f'<text x="{x(value):.1f}" y="{height - MARGIN + 18}" text-anchor="middle">{show(value)}</text>'
        )
    for (name, points), colour in zip(kept.items(), _cycle(len(kept)), strict=True):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in sorted(points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        parts += [
            f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5" fill="{colour}">'
            f"<title>{escape(f'{name}: {show(b)} at {show(a)}')}</title></circle>"
            for a, b in points
        ]
    legend = "".join(
        f'<tspan fill="{colour}">■</tspan><tspan> {escape(name)}   </tspan>'
        for name, colour in zip(kept, _cycle(len(kept)), strict=True)
    )
    parts.append(
        f'<line class="axis" x1="{MARGIN}" y1="{height - MARGIN}" x2="{WIDTH - 12}" y2="{height - MARGIN}"/>'
        f'<text x="{(WIDTH + MARGIN) / 2:.0f}" y="{height - 20}" text-anchor="middle">{escape(horizontal)}</text>'
        f'<text x="14" y="{height / 2:.0f}" text-anchor="middle" transform="rotate(-90 14 {height / 2:.0f})">'
        f'{escape(vertical)}</text><text x="{MARGIN}" y="{height - 3}">{legend}</text>'
    )
    return _figure(title, "".join(parts), height)


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def _figure(title: str, content: str, height: int) -> str:
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">{content}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>"
