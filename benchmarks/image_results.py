"""A result of an image benchmark: written after every turn, so that a run that is cut off leaves what it measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environment, results_files
from benchmarks.pages import listed, machine, parity_table, plain, table
from benchmarks.parity import Agreement, verdict
from benchmarks.stats import show
from benchmarks.turns import Measurement, Summary, failures, summaries

UNFINISHED = "unfinished: turns are missing"


@dataclass(frozen=True, slots=True)
class Section:
    """A further part of the page: a paragraph, and a table if `rows` are given."""

    title: str
    text: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    def lines(self) -> Iterator[str]:
        """Markdown."""
        yield from (f"## {self.title}", "", self.text, "")
        if self.rows:
            yield from (*table(self.header, self.rows), "")


def busy(hardware: Mapping[str, Any]) -> list[str]:
    """A note for a machine that had other work before the run began: whoever has more threads gets more of it."""
    load, cpus = hardware["load_before"], hardware["cpus"]
    if load <= cpus / 2:
        return []
    return [f"the machine was busy, load {load} on {cpus} CPUs: rates and latencies are not quotable, CPU time is"]


@dataclass(slots=True)
class ImageResult:
    """What a run knows so far.

    Attributes:
        name: of the files.
        method: one paragraph: what a turn is.
        unit: what a request has many of: `images` or `pairs`.
        command: the command line.
        folder: where the files go.
        settings: options of the run.
        baseline: side that ratios are taken against; None: no ratios.
        extra_columns: figures of `Measurement.extra` that get a column, and their headings.
        problems: why the figures may not be quoted, beside failed requests and parity.
        notes: what a reader must know besides.
    """

    name: str
    method: str
    unit: str
    command: Sequence[str]
    folder: Path
    settings: dict[str, Any]
    baseline: str | None = None
    commit: str | None = None
    model: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    extra_columns: dict[str, str] = field(default_factory=dict)
    turns: list[Measurement] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    finished: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    _conditions: dict[str, Any] = field(default_factory=dict)
    _path: Path | None = None

    def __post_init__(self) -> None:
        self._conditions = environment.conditions(self.name, self.command, self.commit, environment.hardware())
        self.notes += busy(self._conditions["hardware"])

    def out_of_time(self, number: int, seconds: float) -> None:
        """The budget was spent in a round: what is whole counts, and without a whole round nothing does."""
        said = f"{number} rounds: after {seconds:.0f} s the time was up"
        if number:
            self.turns = [turn for turn in self.turns if turn.round < number]
            self.notes.append(said)
        else:
            self.problems.append(f"{said}, turns are missing")

    def valid(self) -> bool:
        """Whether the figures may be quoted."""
        return bool(self.turns) and not self._found()

    def _found(self) -> list[str]:
        found = [*self.problems, *([] if self.finished else [UNFINISHED]), *failures(self.turns)]
        return found + [
            f"parity of {a.backend} against {a.against}: {a.max_abs:.2g} is over {a.threshold:g}"
            for a in self.agreements
            if not a.passed
        ]

    def write(self) -> Path:
        """Writes or rewrites both files; returns the page."""
        if self._path is None:
            self._path = results_files.free_path(self.name, self._conditions["date"], self.folder)
        found = self._found()
        summed = summaries(self.turns, self.baseline)
        result = self._conditions | {
            "model": self.model,
            "dtypes": self.dtypes,
            "settings": environment.shorten(self.settings) | {"baseline": self.baseline},
            "method": self.method,
            "valid": self.valid(),
            "problems": found,
            "notes": self.notes,
            "summary": [asdict(s) for s in summed],
            "parity": {"verdict": verdict(self.agreements), "agreements": [asdict(a) for a in self.agreements]},
            "data": self.data,
            "rows": [asdict(t) for t in self.turns],
        }
        _, page = results_files.write_at(self._path, result, "\n".join(self._page(result, summed)))
        return page

    def _page(self, result: Mapping[str, Any], summed: Sequence[Summary]) -> Iterator[str]:
        yield from (f"# {result['name']}, {result['date']}", "", f"valid: {'yes' if result['valid'] else 'NO'}")
        yield from (f"parity: {result['parity']['verdict']}", "")
        if said := [*map(plain, result["problems"]), *result["notes"]]:
            yield from (*(f"* {line}" for line in said), "")
        yield from (self.method, "", *self._table(summed), "")
        if any(s.stages for s in summed):
            yield from ("## Stages", "", "p50 in ms, median over rounds; from `Server-Timing`.", "")
            yield from (*_stages(summed), "")
        for section in self.sections:
            yield from section.lines()
        if self.agreements:
            yield from ("## Parity of scores", "", *parity_table(self.agreements), "")
        yield from ("## Conditions", "", *machine(result))
        if self.dtypes:
            yield f"* dtype: {listed(self.dtypes)}"
        if self.model:
            yield f"* model: {listed(self.model)}"
        yield f"* settings: {listed(result['settings'])}"
        yield f"* versions: {listed(result['versions'])}"
        yield f"* load before the run: {result['hardware']['load_before']}"
        yield f"* started by: `{' '.join(result['command'])}`"
        yield ""

    def _table(self, summed: Sequence[Summary]) -> Iterator[str]:
        if not summed:
            return iter(())
        ratio = [f"{self.unit}/s ÷ {self.baseline}"] if self.baseline else []
        header = [*summed[0].condition, "side", "p50 ms", "p95 ms", "requests/s", f"{self.unit}/s", *ratio]
        header += [*self.extra_columns.values(), "requests", "errors"]

        def cells(s: Summary) -> list[str]:
            figures = [s.p50_ms, s.p95_ms, s.requests_per_s, s.items_per_s, *([s.speedup] if ratio else [])]
            extra = [show(s.extra.get(name, float("nan"))) for name in self.extra_columns]
            return [*map(str, s.condition.values()), s.side, *map(str, figures), *extra, str(s.requests), str(s.errors)]

        return table(header, map(cells, summed))


def _stages(summed: Sequence[Summary]) -> Iterator[str]:
    names = list(dict.fromkeys(name for s in summed for name in s.stages))
    return table(
        [*summed[0].condition, "side", *names],
        (
            [
                *map(str, s.condition.values()),
                s.side,
                *(show(s.stages[n]["p50_ms"]) if n in s.stages else "-" for n in names),
            ]
            for s in summed
        ),
    )
