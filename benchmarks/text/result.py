"""A result that grows: JSON, Markdown and HTML, rewritten after every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import charts, environment, results_files
from benchmarks.image_results import UNFINISHED, busy
from benchmarks.pages import listed, machine, plain, table
from benchmarks.rounds import SATURATED
from benchmarks.stats import show
from benchmarks.text.agree import TextAgreement, agreement_cells, agreement_table
from benchmarks.text.summary import TextSummary, summaries
from benchmarks.turns import Measurement, failures


@dataclass(slots=True)
class TextResult:
    """What a run knows so far.

    Attributes:
        method: one paragraph: what a turn is.
        unit: what a request has many of: `texts` or `documents`.
        settings, model, dtypes, lengths: conditions, for the results.
        backends: described servers.
        baselines: sides that ratios are taken against.
        problems: why the figures may not be quoted, beside failed requests and parity.
        notes: what a reader must know besides.
    """

    name: str
    method: str
    unit: str
    command: Sequence[str]
    folder: Path
    settings: dict[str, Any]
    commit: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, Any] = field(default_factory=dict)
    backends: list[dict[str, Any]] = field(default_factory=list)
    baselines: list[str] = field(default_factory=list)
    turns: list[Measurement] = field(default_factory=list)
    agreements: list[TextAgreement] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    finished: bool = False
    _conditions: dict[str, Any] = field(default_factory=dict)
    _path: Path | None = None

    def __post_init__(self) -> None:
        self._conditions = environment.conditions(self.name, self.command, self.commit, environment.hardware())
        self.notes += busy(self._conditions["hardware"])

    def valid(self) -> bool:
        """Whether the figures may be quoted."""
        return bool(self.turns) and not self._found()

    def verdict(self) -> str:
        """Of parity."""
        if not self.agreements:
            return "not checked"
        return "passed" if all(a.passed for a in self.agreements) else "FAILED"

    def _found(self) -> list[str]:
        found = [*self.problems, *([] if self.finished else [UNFINISHED]), *failures(self.turns)]
        return found + [
            f"parity of {a.side} against {a.against}: {a.limits()}" for a in self.agreements if not a.passed
        ]

    def write(self) -> Path:
        """Writes or rewrites the three files; returns the Markdown page."""
        if self._path is None:
            self._path = results_files.free_path(self.name, self._conditions["date"], self.folder)
        summed = summaries(self.turns, self.baselines)
        result = self._conditions | {
            "model": self.model,
            "dtypes": self.dtypes,
            "lengths": self.lengths,
            "settings": environment.shorten(self.settings) | {"baselines": self.baselines},
            "backends": self.backends,
            "method": self.method,
            "valid": self.valid(),
            "problems": self._found(),
            "notes": self.notes,
            "summary": [asdict(s) for s in summed],
            "parity": {
                "verdict": self.verdict(),
                "agreements": [asdict(a) | {"passed": a.passed} for a in self.agreements],
            },
            "rows": [asdict(turn) for turn in self.turns],
        }
        _, page = results_files.write_at(self._path, result, "\n".join(self._markdown(result, summed)))
        html = charts.page(f"{self.name}, {result['date']}", self._html(result, summed))
        results_files.replace(self._path.with_suffix(".html"), html)
        return page

    def _header(self, summed: Sequence[TextSummary]) -> list[str]:
        rate = f"{self.unit}/s"
        ratios = [f"{what} ÷ {name}" for name in self.baselines for what in (rate, "p50")]
        figures = ["p50 ms", "p95 ms", "p99 ms", "mean ms", f"p50 ms/{self.unit[:-1]}", "requests/s", rate]
        conditions = list(summed[0].condition) if summed else []
        return [*conditions, "side", *figures, *ratios, "requests", "errors"]

    def _cells(self, s: TextSummary) -> list[str]:
        ratios = [str(part) for name in self.baselines for part in (s.ratios[name].rate, s.ratios[name].latency)]
        figures = [s.p50_ms, s.p95_ms, s.p99_ms, s.mean_ms, s.text_ms, s.requests_per_s, s.texts_per_s]
        return [*map(str, s.condition.values()), s.side, *map(str, figures), *ratios, str(s.requests), str(s.errors)]

    def _conditions_said(self, result: Mapping[str, Any], summed: Sequence[TextSummary]) -> Iterator[str]:
        yield from machine(result)
        yield f"* dtype: {listed(self.dtypes)}"
        if self.model:
            yield f"* model: {listed(self.model)}"
        yield f"* lengths: {listed(self.lengths)}"
        yield f"* settings: {listed(result['settings'])}"
        yield f"* versions: {listed(result['versions'])}"
        busiest = max((s.client_cpu for s in summed), default=0.0)
        warning = ", the client may be what was measured" if busiest > SATURATED else ""
        yield f"* busiest load process: {100 * busiest:.0f} % of a core{warning}"
        yield f"* load before the run: {result['hardware']['load_before']}"
        yield f"* started by: `{' '.join(result['command'])}`"
        for backend in self.backends:
            if backend["command"]:
                yield f"* {backend['name']}: `{' '.join(backend['command'])}`"

    def _markdown(self, result: Mapping[str, Any], summed: Sequence[TextSummary]) -> Iterator[str]:
        yield from (f"# {result['name']}, {result['date']}", "", f"valid: {'yes' if result['valid'] else 'NO'}")
        yield from (f"parity: {self.verdict()}", "")
        if said := [*map(plain, result["problems"]), *result["notes"]]:
            yield from (*(f"* {line}" for line in said), "")
        yield from (self.method, "", *table(self._header(summed), map(self._cells, summed)), "")
        if any(s.stages for s in summed):
            yield from ("## Stages", "", "p50 in ms, median over rounds; from `Server-Timing`.", "")
            names = list(dict.fromkeys(name for s in summed for name in s.stages))
            yield from table([*summed[0].condition, "side", *names], self._stages(summed, names))
            yield ""
        if flat := self._flat(summed):
            text = f"p50 per {self.unit[:-1]}, ms; and over that of the smallest request."
            yield from (f"## By {self.unit} of a request", "", text, "", *table(*flat), "")
        if self.agreements:
            yield from ("## Parity", "", *agreement_table(self.agreements), "")
        yield from ("## Conditions", "", *self._conditions_said(result, summed), "")

    def _sizes(self, summed: Sequence[TextSummary]) -> dict[tuple[str, str], list[TextSummary]]:
        """Sides and loads that were measured with several sizes of requests, the smallest first."""
        groups: dict[tuple[str, str], list[TextSummary]] = {}
        for s in summed:
            if s.condition["load"] != "offline":
                groups.setdefault((str(s.condition["load"]), s.side), []).append(s)
        return {
            key: sorted(group, key=lambda s: int(s.condition[self.unit]))
            for key, group in groups.items()
            if len(group) > 1
        }

    def _flat(self, summed: Sequence[TextSummary]) -> tuple[list[str], list[list[str]]] | None:
        """How p50 per text changes with the size of a request: header and rows."""
        groups = self._sizes(summed)
        if not groups:
            return None
        sizes = sorted({int(s.condition[self.unit]) for group in groups.values() for s in group})
        rows = []
        for (load, side), group in groups.items():
            first = group[0].text_ms.median
            by_size = {int(s.condition[self.unit]): s.text_ms.median for s in group}
            cells = [f"{show(by_size[n])} ({show(by_size[n] / first)}x)" if n in by_size else "-" for n in sizes]
            rows.append([load, side, *cells])
        return ["load", "side", *map(str, sizes)], rows

    def _stages(self, summed: Sequence[TextSummary], names: Sequence[str]) -> Iterator[list[str]]:
        for s in summed:
            if s.stages:
                cells = [show(s.stages[n]["p50_ms"]) if n in s.stages else "-" for n in names]
                yield [*map(str, s.condition.values()), s.side, *cells]

    def _html(self, result: Mapping[str, Any], summed: Sequence[TextSummary]) -> Iterator[str]:
        valid = result["valid"]
        yield charts.paragraph("valid" if valid else "NOT valid", "passed" if valid else "failed")
        for line in [*result["problems"], *result["notes"]]:
            yield charts.paragraph(line)
        yield charts.paragraph(self.method)
        yield charts.bars(f"{self.unit}/s: median, and range over rounds", [(s.label, s.texts_per_s) for s in summed])
        served = [s for s in summed if s.condition.get("load") != "offline"]
        yield charts.bars("p50 of a request, ms", [(s.label, s.p50_ms) for s in served])
        yield charts.bars("p95 of a request, ms", [(s.label, s.p95_ms) for s in served])
        series = {
            f"{side}, {load}": [(float(s.condition[self.unit]), s.text_ms.median) for s in group]
            for (load, side), group in self._sizes(summed).items()
        }
        yield charts.lines(f"p50 per {self.unit[:-1]}", f"{self.unit} of a request", "ms", series)
        yield "<h2>Figures</h2>" + charts.html_table(self._header(summed), map(self._cells, summed))
        if self.agreements:
            header = ["side", "against", "texts", "same", "max abs", "mean abs", "least cosine", "limits", ""]
            yield "<h2>Parity</h2>" + charts.html_table(header, map(agreement_cells, self.agreements))
        yield "<h2>Conditions</h2>"
        yield from (charts.paragraph(line.removeprefix("* ")) for line in self._conditions_said(result, summed))
