"""PromQL that panels share."""

from __future__ import annotations

from cluster.dashboards.spec import Query, Variable

CHOSEN = 'model=~"$model",version=~"$version"'
WINDOW = "[$__rate_interval]"
BY = "model, version"
NAMED = "{{model}}@{{version}}"
CHOICES = (
    Variable("model", "poolserve_model_ready"),
    Variable("version", 'poolserve_model_ready{model=~"$model"}'),
)
QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Per second, added up over everything but the labels `by`."""
    return f"sum{f' by ({by})' if by else ''} (rate({metric}{{{where}}}{WINDOW}))"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    """A quantile of a histogram; without the `_bucket`."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) (rate({histogram}_bucket{{{where}}}{WINDOW})))"


def mean(histogram: str, by: str, where: str = "") -> str:
    """Mean of a histogram's observations."""
    return f"{rate(f'{histogram}_sum', by, where)} / {rate(f'{histogram}_count', by, where)}"


def share(part: str, whole: str) -> str:
    """A ratio that is 0, not missing, where nothing of the part was ever counted."""
    return f"({part} or {whole} * 0) / ({whole} > 0)"


def quantiles(histogram: str, where: str = "", by: str = "", legend: str = "") -> tuple[Query, ...]:
    return tuple(Query(quantile(q, histogram, by, where), f"{legend} {name}".strip()) for q, name in QUANTILES)


def one(expr: str, legend: str = "") -> tuple[Query, ...]:
    return (Query(expr, legend),)


ANSWERED = 'status_class="2xx"'
