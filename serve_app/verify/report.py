"""What was found, for the terminal and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from serve_app.verify.compare import Case, Comparison
from serve_app.verify.limits import Check
from serve_app.verify.reading import Fact

CUT = 120
"""Characters of an input that are shown."""
MISSING = 10
"""Inputs without an answer that are shown."""


@dataclass(frozen=True, slots=True)
class Side:
    """One side. versions: of its libraries."""

    place: str
    dtype: str
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a run has to say.

    Attributes:
        model, task: what was verified.
        source, saved: the checkpoint, and the number format that it was saved in.
        inputs: (lines, inputs): a line of documents has one input per document.
        facts: what the reference reads beside what the configuration says.
        notes: what a reader should know.
        worst: cases to show.
    """

    model: str
    task: str
    source: str
    saved: str
    inputs: tuple[int, int]
    reference: Side
    served: Side
    facts: Sequence[Fact]
    notes: Sequence[str]
    found: Comparison
    checks: Sequence[Check]
    worst: Sequence[Case]

    @property
    def passed(self) -> bool:
        """Whether every limit is kept."""
        return all(check.passed for check in self.checks)


def figures(report: Report) -> list[tuple[str, str]]:
    """The figures of a report, named, those without a limit among them."""
    found = report.found
    rows = [("inputs", f"{report.inputs[1]} in {report.inputs[0]} lines")]
    rows += [("differences", _differences(found.values.max, found.values.mean, found.values.count))]
    if found.scores is not None:
        scores = found.scores
        rows.append(("differences of scores", _differences(scores.max, scores.mean, scores.count)))
    if found.cosine is not None:
        rows.append(("least cosine", f"{found.cosine:.6f}"))
    if (ranking := found.ranking) is not None:
        groups = f" of {ranking.groups} groups" if ranking.groups > 1 else ""
        rows.append(
            ("rank correlation (Spearman)", f"{ranking.spearman:.6f}, least {ranking.spearman_min:.6f}{groups}")
        )
        if ranking.k:
            rows.append(("top-1 agreement", f"{ranking.top1:.4f}{groups}"))
            rows.append((f"top-{ranking.k} agreement", f"{ranking.topk:.4f}"))
    if found.labels is not None:
        rows.append(("label agreement", f"{found.labels.agree} of {found.labels.total}"))
    if found.spans is not None:
        rows.append(("span agreement", f"{found.spans.agree} of {found.spans.total} texts, F1 {found.span_f1:.4f}"))
    rows.append(("cut by the server", str(found.truncated)))
    return rows


def number(value: float) -> str:
    """A figure as a reader wants it."""
    if not math.isfinite(value):
        return "none" if math.isnan(value) else "one side only"
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.3g}"


def cut(text: str, limit: int = CUT) -> str:
    """A text on one line, and not all of a long one."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def print_report(report: Report, console: Console) -> None:
    """The report as tables."""
    title = f"{report.model} ({report.task}): {report.source}, saved in {report.saved}"
    console.print(Text(title, "bold"), soft_wrap=True)
    console.print(_sides(report))
    console.print(_table("What the reference reads", ("", "reference", "configuration", "from"), _facts(report)))
    console.print(_table("Agreement", ("", ""), [(Text(a), Text(b)) for a, b in figures(report)]))
    if report.worst:
        rows = [
            (
                Text(str(case.line)),
                Text(number(case.difference)),
                Text(_shown(case.reference)),
                Text(_shown(case.served)),
                Text(cut(case.what, 40)),
                Text(cut(case.text)),
            )
            for case in report.worst
        ]
        heads = ("line", "difference", "reference", "served", "what", "input")
        console.print(_table("Worst cases", heads, rows))
    for missing in report.found.missing[:MISSING]:
        console.print(Text(f"no answer: line {missing.line}: {missing.message}: {cut(missing.text, 60)}", "red"))
    limits = [
        (
            Text(check.name),
            Text(number(check.value)),
            Text(f"{'at most' if check.at_most else 'at least'} {number(check.limit)}"),
            Text("ok", "green") if check.passed else Text("FAILED", "bold red"),
        )
        for check in report.checks
    ]
    console.print(_table("Limits", ("", "found", "asked for", ""), limits))
    for note in report.notes:
        console.print(Text(f"note: {note}"))
    agrees = Text("the served model agrees with the reference", "bold green")
    console.print(agrees if report.passed else Text("the served model does NOT agree with the reference", "bold red"))


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON can hold it: NaN and infinity become null, points and cases stay out."""
    found = dataclasses.asdict(report.found)
    del found["cases"], found["points"]
    values: dict[str, Any] = {
        "model": report.model,
        "task": report.task,
        "source": report.source,
        "saved": report.saved,
        "inputs": {"lines": report.inputs[0], "inputs": report.inputs[1]},
        "reference": dataclasses.asdict(report.reference),
        "served": dataclasses.asdict(report.served),
        "reads": [dataclasses.asdict(fact) | {"differs": fact.differs} for fact in report.facts],
        "notes": list(report.notes),
        "agreement": found,
        "limits": [dataclasses.asdict(check) | {"passed": check.passed} for check in report.checks],
        "worst": [dataclasses.asdict(case) | {"difference": case.difference} for case in report.worst],
        "passed": report.passed,
    }
    plain = _plain(values)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _differences(largest: float, mean: float, count: int) -> str:
    return f"max {number(largest)}, mean {number(mean)} over {count} values" if count else "none"


def _shown(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.6g}"


def _sides(report: Report) -> Table:
    rows = [
        (Text(name), Text(side.place), Text(side.dtype), Text(", ".join(f"{n} {v}" for n, v in side.versions.items())))
        for name, side in (("reference", report.reference), ("served", report.served))
    ]
    return _table("Sides", ("", "where", "dtype", "versions"), rows)


def _facts(report: Report) -> list[tuple[Text, ...]]:
    return [
        (
            Text(fact.name),
            Text(cut(fact.reference, 60), "bold" if fact.differs else ""),
            Text(cut(fact.configured, 60), "bold yellow" if fact.differs else ""),
            Text(fact.source),
        )
        for fact in report.facts
    ]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Text]]) -> Table:
    table = Table(*heads, title=Text(title), title_justify="left", show_header=any(heads))
    for row in rows:
        table.add_row(*row)
    return table
