"""The report as one HTML page: tables and inline SVG, nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from serve_app.verify.compare import Case
from serve_app.verify.report import Report, cut, figures, number

WIDTH, HEIGHT, MARGIN = 460, 320, 56
MAX_POINTS = 2_000
"""Points of a scatter plot; of more, every so manieth."""
BINS = 24
_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}
th,td{border-bottom:1px solid #8886;padding:.3rem .8rem;text-align:left;vertical-align:top}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.passed{color:#18794e}.failed{color:#c62a2f;font-weight:600}.differs{background:#ffe08a55}
figure{display:inline-block;margin:0 1rem 1rem 0}figcaption{font-weight:600}
svg{max-width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:currentColor}
.axis{stroke:currentColor;stroke-opacity:.5}.line{stroke:#8888;stroke-dasharray:4 4}
.point{fill:#2463c7;fill-opacity:.5}.bar{fill:#2463c7}.limit{stroke:#c62a2f;stroke-width:1.5}
"""


def html_page(report: Report) -> str:
    """The page; every text of the inputs is escaped."""
    title = f"{report.model}: {'agrees' if report.passed else 'does not agree'} with Transformers"
    verdict = "passed" if report.passed else "failed"
    limit = next((check.limit for check in report.checks if check.name == "largest difference"), None)
    body = [
        f'<h1>{escape(report.model)}</h1><p class="{verdict}">The served model '
        f"{'agrees' if report.passed else 'does not agree'} with the reference.</p>",
        f"<p>Task {escape(report.task)}, checkpoint {escape(report.source)}, saved in {escape(report.saved)}.</p>",
        _table(("", "where", "dtype", "versions"), _sides(report)),
        "<h2>Limits</h2>",
        _table(("", "found", "asked for", ""), _limits(report)),
        "<h2>Agreement</h2>",
        _table(("", ""), [f"<td>{escape(name)}</td><td>{escape(value)}</td>" for name, value in figures(report)]),
        scatter(report.found.points),
        histogram(report.found.cases, limit),
        "<h2>What the reference reads</h2>",
        _table(("", "reference", "configuration", "from"), _facts(report)),
        "<h2>Worst cases</h2>" + _table(_CASE_HEADS, _cases(report.worst)) if report.worst else "",
        "<h2>Without an answer</h2>" + _table(("line", "why", "input"), _missing(report))
        if report.found.missing
        else "",
        "".join(f"<p>{escape(note)}</p>" for note in report.notes),
    ]
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>\n"
    )


def scatter(points: Sequence[tuple[float, float]]) -> str:
    """Served against reference. On the dashed line both are equal."""
    kept = [point for point in points if all(map(math.isfinite, point))]
    kept = kept[:: max(1, math.ceil(len(kept) / MAX_POINTS))]
    if not kept:
        return ""
    low, high = min(map(min, kept)), max(map(max, kept))
    span = high - low or 1.0
    low, high = low - 0.04 * span, high + 0.04 * span

    def x(value: float) -> float:
        return MARGIN + (value - low) / (high - low) * (WIDTH - MARGIN - 12)

    def y(value: float) -> float:
        return HEIGHT - MARGIN - (value - low) / (high - low) * (HEIGHT - MARGIN - 12)

    dots = "".join(f'<circle class="point" cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5"/>' for a, b in kept)
    diagonal = f'<line class="line" x1="{x(low):.1f}" y1="{y(low):.1f}" x2="{x(high):.1f}" y2="{y(high):.1f}"/>'
    ticks = "".join(
        f'<text x="{x(value):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{value:.3g}</text>'
        f'<text x="{MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        for value in np.linspace(low, high, 5).tolist()
    )
    return _figure("Served against reference", diagonal + dots + ticks + _axes("reference", "served"))


def histogram(cases: Sequence[Case], limit: float | None) -> str:
    """How many differences are how large, in powers of ten; the red line is the limit."""
    bins = list(decades([case.difference for case in cases], limit))
    if not bins:
        return ""
    start, end = math.log10(bins[0][0]), math.log10(bins[-1][1])
    most = max(count for _, _, count in bins)

    def x(value: float) -> float:
        return MARGIN + (math.log10(value) - start) / (end - start) * (WIDTH - MARGIN - 12)

    def y(count: float) -> float:
        return HEIGHT - MARGIN - count / most * (HEIGHT - MARGIN - 12)

    bars = "".join(
        f'<rect class="bar" x="{x(low) + 0.5:.1f}" y="{y(count):.1f}" width="{x(high) - x(low) - 1:.1f}" '
        f'height="{y(0) - y(count):.1f}"><title>{number(low)} to {number(high)}: {count}</title></rect>'
        for low, high, count in bins
        if count
    )
    ticks = "".join(
        f'<text x="{x(10.0**power):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">1e{power}</text>'
        for power in range(math.ceil(start), math.floor(end) + 1)
    )
    ticks += "".join(f'<text x="{MARGIN - 6}" y="{y(n) + 4:.1f}" text-anchor="end">{n}</text>' for n in (0, most))
    if limit and start <= math.log10(limit) <= end:
        bars += f'<line class="limit" x1="{x(limit):.1f}" y1="12" x2="{x(limit):.1f}" y2="{HEIGHT - MARGIN}"/>'
    return _figure("Differences", bars + ticks + _axes("absolute difference", "values"))


def decades(differences: Sequence[float], limit: float | None) -> Iterator[tuple[float, float, int]]:
    """(from, to, count) of the finite differences: they span orders of magnitude. The limit is inside."""
    values = np.array([value for value in differences if math.isfinite(value)])
    if not len(values):
        return
    high = max(float(values.max()), limit or 0.0, 1e-9)
    floor = max(high * 1e-6, 1e-12)
    counts, edges = np.histogram(
        np.log10(np.maximum(values, floor)), bins=BINS, range=(math.log10(floor), math.log10(high) + 0.1)
    )
    for count, a, b in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield 10.0**a, 10.0**b, count


def _figure(title: str, content: str) -> str:
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">{content}</svg>'
    return f"<figure><figcaption>{title}</figcaption>{svg}</figure>"


def _axes(horizontal: str, vertical: str) -> str:
    bottom = HEIGHT - MARGIN
    return (
        f'<line class="axis" x1="{MARGIN}" y1="{bottom}" x2="{WIDTH - 12}" y2="{bottom}"/>'
        f'<line class="axis" x1="{MARGIN}" y1="12" x2="{MARGIN}" y2="{bottom}"/>'
        f'<text x="{(WIDTH + MARGIN) / 2:.0f}" y="{HEIGHT - 12}" text-anchor="middle">{horizontal}</text>'
        f'<text x="14" y="{HEIGHT / 2:.0f}" text-anchor="middle" transform="rotate(-90 14 {HEIGHT / 2:.0f})">'
        f"{vertical}</text>"
    )


_CASE_HEADS = ("line", "difference", "reference", "served", "what", "input")


def _table(heads: Sequence[str], rows: Sequence[str]) -> str:
    head = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in heads)}</tr>" if any(heads) else ""
    return f"<table>{head}{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _sides(report: Report) -> list[str]:
    return [
        f"<td>{name}</td><td>{escape(side.place)}</td><td>{escape(side.dtype)}</td>"
        f"<td>{escape(', '.join(f'{n} {v}' for n, v in side.versions.items()))}</td>"
        for name, side in (("reference", report.reference), ("served", report.served))
    ]


def _limits(report: Report) -> list[str]:
    return [
        f'<td>{escape(check.name)}</td><td class="n">{number(check.value)}</td>'
        f"<td>{'at most' if check.at_most else 'at least'} {number(check.limit)}</td>"
        f'<td class="{"passed" if check.passed else "failed"}">{"ok" if check.passed else "failed"}</td>'
        for check in report.checks
    ]


def _facts(report: Report) -> list[str]:
    return [
        f"<td>{escape(fact.name)}</td><td>{escape(fact.reference)}</td>"
        f"<td{' class=differs' if fact.differs else ''}>{escape(fact.configured)}</td><td>{escape(fact.source)}</td>"
        for fact in report.facts
    ]


def _cases(cases: Sequence[Case]) -> list[str]:
    return [
        f'<td class="n">{case.line}</td><td class="n">{number(case.difference)}</td>'
        f'<td class="n">{case.reference:.6g}</td><td class="n">{case.served:.6g}</td>'
        f"<td>{escape(cut(case.what, 60))}</td><td>{escape(cut(case.text, 400))}</td>"
        for case in cases
    ]


def _missing(report: Report) -> list[str]:
    return [
        f'<td class="n">{item.line}</td><td>{escape(item.message)}</td><td>{escape(cut(item.text, 400))}</td>'
        for item in report.found.missing
    ]
