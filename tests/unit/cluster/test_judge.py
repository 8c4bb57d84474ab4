"""Comparing two versions by counters, probes and scores."""

from __future__ import annotations

import pytest

from cluster.rollout.judge import Answer, GatewayView, of_probes, traffic, worse_probes, worse_scores, worse_traffic
from cluster.rollout.ray_cluster import scores_of
from cluster.rollout.state import Limits, Sample

LIMITS = Limits(min_requests=10)


def _view(replica: str, **row: object) -> GatewayView:
    return GatewayView(replica, 0.0, "t", None, {("ce", "2"): row} if row else {})


def test_replicas_are_put_together_and_new_ones_count_from_zero() -> None:
    before = {"a": _view("a", answered=100, errors=5, refused=1, histogram={"10": 90, "20": 10}), "gone": _view("gone")}
    after = {
        "a": _view("a", answered=160, errors=7, refused=2, histogram={"10": 150, "20": 10}),
        "new": _view("new", answered=40, errors=0, refused=0, histogram={"30": 40}),
    }
    sample = traffic(before, after, "ce", "2")
    assert (sample.requests, sample.errors) == (103, 3)
    assert sample.p50_ms == pytest.approx(1.1**10, abs=0.01)
    assert sample.p95_ms == pytest.approx(1.1**30, abs=0.01)
    assert traffic(before, after, "ce", "1") == Sample(0, 0, None, None)


@pytest.mark.parametrize(
    ("new", "old", "worse"),
    [
        (Sample(100, 0, 20.0), Sample(100, 0, 10.0), False),  # within ratio and slack
        (Sample(100, 0, 26.0), Sample(100, 0, 10.0), True),
        (Sample(9, 9, 999.0), Sample(100, 0, 10.0), False),  # too few to tell
        (Sample(100, 99, 10.0), None, False),  # nothing to compare with
        (Sample(100, 2, 10.0), Sample(100, 0, 10.0), True),
        (Sample(100, 2, 10.0), Sample(100, 2, 10.0), False),  # the old one fails as often
        (Sample(100, 100, None), Sample(100, 0, 10.0), True),
    ],
)
def test_traffic(new: Sample, old: Sample | None, worse: bool) -> None:
    assert (worse_traffic(new, old, LIMITS) is not None) == worse


def test_probes_go_by_their_median() -> None:
    good = [Answer(200, 10.0)] * 18
    assert worse_probes(of_probes([*good, Answer(200, 900.0)]), of_probes(good), LIMITS) is None
    assert "median" in str(worse_probes(of_probes([Answer(200, 90.0)] * 5), of_probes(good), LIMITS))
    assert worse_probes(of_probes([*good, Answer(503, 1.0)]), of_probes(good), LIMITS) is None  # one may fail
    assert "2 of 20" in str(worse_probes(of_probes([*good, *[Answer(0, 1.0)] * 2]), of_probes(good), LIMITS))
    assert of_probes([]) == Sample(0, 0, None, None)


def test_scores() -> None:
    def answers(*scores: tuple[float, ...]) -> list[Answer]:
        return [Answer(200, 1.0, row) for row in scores]

    limits = Limits(score_difference=0.1, top1=0.5)
    assert worse_scores(answers((0.1, 0.9)), answers((0.15, 0.9)), limits)[0] is None
    assert "0.8" in str(worse_scores(answers((0.1, 0.9)), answers((0.9, 0.9)), limits)[0])
    order = worse_scores(answers((0.5, 0.51)), answers((0.51, 0.5)), limits)[0]
    assert order == "the first place is the same in 0% of the rankings; the limit is 50%"
    failed = worse_scores([Answer(400, 1.0, (), "no such field")], answers((1.0,)), Limits())[0]
    assert failed == "canary request 1: 400 no such field"
    assert worse_scores(answers(()), answers(()), Limits()) == (None, "no scores to compare")
    assert worse_scores(answers(()), answers(()), limits)[0] == "the canary set has no scores to compare"


@pytest.mark.parametrize("limits", [Limits(), Limits(score_difference=0.1, top1=0.5)])
def test_a_comparison_of_nothing_does_not_pass(limits: Limits) -> None:
    good, bad, none = Answer(200, 1.0, (0.1, 0.9)), Answer(400, 1.0, (), "no query"), Answer(0, 1.0, (), "refused")
    both = worse_scores([good, bad], [good, bad], limits)[0]
    assert both == "canary request 2: 400 no query; neither does the old version answer it: 400 no query"
    assert worse_scores([none], [good], limits)[0] == "canary request 1: no answer refused"
    old = worse_scores([good], [bad], limits)[0]
    assert old == "the old version answers no request of the canary set: 400 no query"
    assert worse_scores([good, good], [bad, good], limits)[0] is None  # the new version answers more


@pytest.mark.parametrize("limits", [Limits(), Limits(score_difference=0.1, top1=0.5)])
def test_another_number_of_scores_is_a_difference(limits: Limits) -> None:
    three, two, none = (Answer(200, 1.0, row) for row in ((0.1, 0.9, 0.2), (0.1, 0.9), ()))
    assert worse_scores([two, two], [two, three], limits)[0] == "canary request 2: 2 scores, the old version's 3"
    assert worse_scores([none], [two], limits)[0] == "canary request 1: 0 scores, the old version's 2"


def test_scores_of_every_shape_of_answer() -> None:
    rerank = {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]}
    assert scores_of(rerank) == (0.1, 0.9)
    assert scores_of({"data": [{"index": 0, "score": 0.5}, {"index": 1, "score": 0.6}]}) == (0.5, 0.6)
    assert scores_of({"data": [{"index": 0, "embedding": [1, 0.5]}]}) == (1.0, 0.5)
    assert scores_of({"data": [{"index": 0, "probs": [0.25, 0.75], "label": "a"}]}) == (0.25, 0.75)
    assert scores_of({"data": [{"index": 0, "spans": []}]}) == ()
    assert scores_of([]) == ()
