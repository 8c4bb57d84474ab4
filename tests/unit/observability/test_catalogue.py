"""The catalogue: names, labels and buckets are fit for Prometheus."""

from __future__ import annotations

import itertools
import re

import pytest

from serve_app.observability.catalogue import BY_NAME, HAPROXY, OURS, RAY_SERVE, VLLM, Kind, Merge, Metric
from serve_app.vocabulary import Stage

UNBOUNDED = {"request_id", "id", "query", "document", "url", "user", "path", "message", "key"}


@pytest.mark.parametrize("metric", OURS, ids=lambda metric: metric.name)
def test_every_metric_is_named_and_labelled_as_prometheus_advises(metric: Metric) -> None:
    assert re.fullmatch(r"poolserve_[a-z][a-z0-9_]*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help[-1] in ".0123456789"
    assert not set(metric.labels) & (UNBOUNDED | {"le", "quantile", "job", "instance"})
    assert len(set(metric.page_labels)) == len(metric.page_labels)
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    if metric.merge in {Merge.MIN, Merge.MAX}:
        assert metric.kind is Kind.GAUGE


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(OURS)
    assert not set(BY_NAME) & (VLLM.keys() | RAY_SERVE.keys() | HAPROXY.keys())


@pytest.mark.parametrize("name", ["poolserve_request_seconds", "poolserve_stage_seconds"])
def test_buckets_tell_tens_of_milliseconds_apart(name: str) -> None:
    between = [bound for bound in BY_NAME[name].buckets if 0.01 <= bound <= 0.1]
    assert len(between) >= 8
    assert all(b / a <= 1.5 for a, b in itertools.pairwise(between))


def test_stages_in_the_help_are_the_vocabularys() -> None:
    assert all(stage.value in BY_NAME["poolserve_stage_seconds"].help for stage in Stage)
