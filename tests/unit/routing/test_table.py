"""The routing table: names, versions, weights, ambiguity."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from serve_app.errors import InvalidRequest, UnknownModel
from serve_app.routing import Choice, RoutingTable
from serve_app.routing.table import digest
from serve_app.settings import RoutingSettings
from serve_app.vocabulary import Operation
from tests.cluster import default_config


def _table(defaults: tuple[str, ...] = (), /, **models: dict[str, tuple[str, float]]) -> RoutingTable:
    return RoutingTable(
        RoutingSettings.model_validate(
            {
                "models": {
                    name: {
                        "default": name in defaults,
                        "versions": {
                            version: {"application": f"{name}-{version}", "task": task, "weight": weight}
                            for version, (task, weight) in versions.items()
                        },
                    }
                    for name, versions in models.items()
                }
            }
        )
    )


def test_name_and_version() -> None:
    table = _table(ce={"1": ("rerank", 1), "2": ("rerank", 0)})
    assert table.resolve("ce", Operation.RERANK).version == "1"
    assert table.resolve("ce@2", Operation.RERANK).application == "ce-2"


@pytest.mark.parametrize("name", ["nope", "ce@77", "ce@", "@1", "", "CE", "ce@1@1"])
def test_unknown_names_say_what_exists(name: str) -> None:
    table = _table(ce={"1": ("rerank", 1)})
    with pytest.raises(UnknownModel, match=r"ce \(1\)|there are: 1"):
        table.resolve(name, Operation.RERANK)


def test_no_name_where_one_model_only_serves_the_operation() -> None:
    table = _table(ce={"1": ("rerank", 1)}, clf={"1": ("classify", 1)})
    assert table.resolve(None, Operation.RERANK).model == "ce"
    assert table.resolve(None, Operation.CLASSIFY).model == "clf"
    with pytest.raises(UnknownModel, match="no model serves embed"):
        table.resolve(None, Operation.EMBED)


def test_no_name_means_the_one_model_made_for_the_operation() -> None:
    table = _table(minilm={"1": ("embed", 1)}, ce={"1": ("rerank", 1)})
    assert table.resolve(None, Operation.RERANK).model == "ce"
    assert table.resolve(None, Operation.SCORE).model == "ce"
    assert table.resolve(None, Operation.EMBED).model == "minilm"


@pytest.mark.parametrize("task", ["embed", "rerank"])
def test_no_name_where_several_do_is_refused(task: str) -> None:
    table = _table(a={"1": (task, 1)}, b={"1": (task, 1)})
    with pytest.raises(InvalidRequest, match="several models serve rerank: a, b"):
        table.resolve(None, Operation.RERANK)


def test_no_name_goes_to_the_default_among_several() -> None:
    models = {"a": {"1": ("embed", 1.0)}, "b": {"1": ("embed", 1.0)}, "ce": {"1": ("rerank", 1.0)}}
    assert _table(("b",), **models).resolve(None, Operation.EMBED).model == "b"
    assert _table(("b",), **models).resolve(None, Operation.RERANK).model == "ce"  # the one that is made for it
    for defaults in ((), ("a", "b"), ("ce",)):
        with pytest.raises(InvalidRequest, match="several models serve embed: a, b"):
            _table(defaults, **models).resolve(None, Operation.EMBED)


def test_the_shipped_configuration_answers_clients_that_name_no_model() -> None:
    models = default_config()["applications"][0]["deployments"][0]["user_config"]
    table = RoutingTable(RoutingSettings.model_validate(models))
    wanted = {
        Operation.EMBED: "minilm",
        Operation.RERANK: "ce-mini",
        Operation.SCORE: "ce-mini",
        Operation.CLASSIFY: "intent-mini",
    }
    assert {operation: table.resolve(None, operation).model for operation in wanted} == wanted


def test_wrong_operation_is_the_callers_error() -> None:
    table = _table(ce={"1": ("rerank", 1)})
    for name in ("ce", "ce@1"):
        with pytest.raises(InvalidRequest, match="'ce' does not serve embed"):
            table.resolve(name, Operation.EMBED)


def test_weights_share_the_traffic() -> None:
    table = _table(ce={"1": ("rerank", 9), "2": ("rerank", 1)})
    counts = Counter(table.resolve("ce", Operation.RERANK).version for _ in range(4_000))
    assert 0.07 < counts["2"] / 4_000 < 0.13


def test_a_model_without_weight_is_refused() -> None:
    with pytest.raises(ValidationError, match="weight above 0"):
        _table(ce={"1": ("rerank", 0)})


def _routes(**model: Any) -> RoutingTable:
    """A reranker ce with versions 1, 2 and 10 of weights 90, 10 and 0, and an embedder version e."""
    versions = {
        version: {"application": f"ce-{version}", "task": task, "weight": weight}
        for version, task, weight in (("1", "rerank", 90), ("2", "rerank", 10), ("10", "rerank", 0), ("e", "embed", 0))
    }
    return RoutingTable(
        RoutingSettings.model_validate({"models": {"ce": {"versions": versions, **model}}}), random.Random(7)
    )


def test_a_canary_of_ten_per_cent_gets_ten_per_cent() -> None:
    table = _routes()
    counts = Counter(table.route("ce", Operation.RERANK).target.version for _ in range(2_000))
    assert 160 <= counts["2"] <= 240
    assert counts["1"] + counts["2"] == 2_000
    assert table.route("ce", Operation.RERANK).how is Choice.WEIGHTED


def test_how_a_version_was_chosen_is_said() -> None:
    table = _routes(sticky={})
    assert table.route("ce@10", Operation.RERANK).how is Choice.PINNED
    assert table.route("ce", Operation.RERANK, {"x-sticky-key": "a"}).how is Choice.STICKY
    assert table.route("ce", Operation.RERANK, {"x-sticky-key": ""}).how is Choice.WEIGHTED
    assert table.route("ce", Operation.EMBED).how is Choice.DEFAULT  # one version alone embeds
    assert table.route(None, Operation.RERANK, {"x-sticky-key": "a"}).how is Choice.STICKY


def test_latest_is_the_greatest_version_or_what_the_table_says() -> None:
    def latest(*versions: str, **model: Any) -> str:
        names = {version: {"application": "a", "task": "rerank"} for version in versions}
        table = RoutingTable(RoutingSettings.model_validate({"models": {"ce": {"versions": names, **model}}}))
        decision = table.route("ce@latest", Operation.RERANK)
        assert decision.how is Choice.LATEST
        return decision.target.version

    assert latest("9", "10", "1") == "10"
    assert latest("1.9", "1.10", "1.2") == "1.10"
    assert latest("v2", "v10") == "v10"
    assert latest("2026-11-29", "2026-12-01") == "2026-12-01"
    assert latest("1", "a", "2-b") == "a"
    assert latest("9", "10", latest="9") == "9"
    with pytest.raises(InvalidRequest, match="does not serve classify"):
        _routes().route("ce@latest", Operation.CLASSIFY)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"latest": "77"}, "latest: there is no version '77'"),
        ({"shadow": {"version": "77"}}, r"shadow\.version: there is no version '77'"),
        ({"shadow": {"version": "2", "share": 0}}, "share"),
        ({"sticky": {"field": "documents"}}, "field"),
        ({"versions": {"latest": {"application": "a", "task": "rerank"}}}, "cannot be a version's name"),
        ({"versions": {"1": {"application": "a", "task": "rerank", "weight": float("inf")}}}, "finite"),
    ],
)
def test_a_table_that_cannot_work_is_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _routes(**model)


def test_copies_go_to_the_shadow_and_never_follow_a_version_that_was_named() -> None:
    table = _routes(shadow={"version": "2", "share": 0.5})
    decisions = [table.route("ce", Operation.RERANK) for _ in range(2_000)]
    copied = [decision for decision in decisions if decision.shadow is not None]
    assert {decision.target.version for decision in copied} == {"1"}  # the shadow's own requests are not copied to it
    assert {decision.shadow.version for decision in copied if decision.shadow} == {"2"}
    assert 0.45 < len(copied) / sum(d.target.version == "1" for d in decisions) < 0.55
    assert copied[0].header(copied=True) == "weighted; shadow=2"
    assert copied[0].header(copied=False) == "weighted"
    assert all(table.route("ce@1", Operation.RERANK).shadow is None for _ in range(50))
    assert all(table.route("ce", Operation.EMBED).shadow is None for _ in range(50))  # the shadow does not embed


def test_the_digest_names_the_content() -> None:
    assert _routes().digest == _routes().digest
    assert _routes().digest != _routes(sticky={}).digest
    a, b = ({"application": f"ce-{v}", "task": "rerank"} for v in "12")
    tables = [{"models": {"ce": {"versions": versions}}} for versions in ({"1": a, "2": b}, {"2": b, "1": a})]
    assert len({digest(RoutingSettings.model_validate(table)) for table in tables}) == 1


def test_the_table_says_what_it_does() -> None:
    table = _routes(sticky={"field": "user"}, shadow={"version": "10", "share": 0.5})
    facts = {target.version: table.describe(target) for target in table}
    assert {version: fact["share"] for version, fact in facts.items()} == {"1": 0.9, "2": 0.1, "10": 0, "e": 0}
    assert facts["e"]["latest"] is True
    assert facts["1"]["sticky"] == {"header": "X-Sticky-Key", "field": "user"}
    assert facts["1"]["shadow"]["version"] == "10"
    assert table.shadowed == {"ce-10"}
