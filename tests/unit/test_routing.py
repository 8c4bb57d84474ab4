"""The routing table: names, versions, weights, ambiguity."""

from __future__ import annotations

from collections import Counter

import pytest
from pydantic import ValidationError

from serve_app.errors import InvalidRequest, UnknownModel
from serve_app.routing import RoutingTable
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
