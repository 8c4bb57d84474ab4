"""What dashboards and rules are made of. Plain data; `grafana` and `rules` write it down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Grafana's panel types that are used."""

    LINES = "timeseries"
    NUMBER = "stat"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query of a panel.

    Attributes:
        expr: PromQL; `$model`, `$version` and `$__rate_interval` are Grafana's to fill in.
        legend: Grafana's legend format, with `{{label}}`.
    """

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's unit: short, s, bytes, percentunit, reqps, …
        help: what to make of it; shown at the panel's corner.
        width: of 24 columns.
        stacked: areas on top of each other.
        top: upper end of the axis; None: as the data has it.
    """

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Kind = Kind.LINES
    help: str = ""
    width: int = 8
    height: int = 8
    stacked: bool = False
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at a dashboard's top: the values of a label.

    Attributes:
        name: what queries call it, without the dollar sign; also the label.
        series: the selector whose label values are offered.
    """

    name: str
    series: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard; `name` is its file's."""

    name: str
    title: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def uid(self) -> str:
        """Grafana's identifier, stable so that links survive an update."""
        return f"poolserve-{self.name}"


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording rule."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert.

    Attributes:
        name: CamelCase.
        expr: fires for every series that it gives.
        wait: for how long it must hold, as Prometheus writes durations.
        severity: page (somebody gets up) or ticket (somebody looks in working hours).
        summary: one line; `{{ $labels.x }}` and `{{ $value }}` are filled in.
        action: what to look at and what to turn.
    """

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    action: str
