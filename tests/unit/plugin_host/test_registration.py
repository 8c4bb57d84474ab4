"""A plugin is found, or the start stops with its own error."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from serve_app.plugin_host import registration
from serve_app.plugin_host.registration import PluginError, explain, failures, is_ours, processor_class
from tests.cluster import ROOT


def test_an_installed_plugin_is_imported(echo_installed: Path) -> None:
    assert processor_class("echo").__module__ == "echo_plugin.processor"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("echo_broken", "failed to load: ModuleNotFoundError: No module named 'a_package_that_is_not_there'"),
        ("echo_declines", "failed to load: ImportError: its entry point returned None"),
        ("echo_no_class", r"leads to echo_plugin\.processor\.WORDS, which is no class"),
        ("nowhere", "'nowhere' .* is not installed; installed are: .*echo"),
    ],
)
def test_one_that_cannot_be_had_says_why(echo_installed: Path, name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        processor_class(name)


def test_one_that_vllms_own_list_leaves_out(echo_installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "poolserve,other")
    with pytest.raises(PluginError, match="VLLM_PLUGINS leaves 'echo' out"):
        processor_class("echo")
    monkeypatch.setenv("VLLM_PLUGINS", "poolserve,echo")
    assert processor_class("echo").__name__ == "EchoProcessor"


def _points(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [point for point in points if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(registration.importlib.metadata, "entry_points", found)


def test_two_packages_of_one_name_are_refused_and_one_listed_twice_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    here = EntryPoint("p", f"{__name__}:register", registration.GROUP)
    _points(monkeypatch, here, here)
    assert processor_class("p") is Found
    _points(monkeypatch, here, EntryPoint("p", "elsewhere:register", registration.GROUP))
    with pytest.raises(PluginError, match="several packages register 'p'"):
        processor_class("p")


class Found:
    """What `register` leads to."""


def register() -> str:
    return f"{__name__}.Found"


def test_our_own_processors_are_known_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyproject.toml registers them."""
    import tomllib

    content: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = content["project"]["entry-points"][registration.GROUP]
    assert sorted(listed) == ["absa", "image_rank", "rerank"]
    points = [EntryPoint(name, value, registration.GROUP) for name, value in listed.items()]
    _points(monkeypatch, *points, EntryPoint("p", f"{__name__}:register", registration.GROUP))
    assert all(is_ours(name) for name in listed)
    assert not is_ours("p")
    for name, point in zip(listed, points, strict=True):
        assert processor_class(name).__name__.lower() == name.replace("_", ""), point


def test_an_engine_that_does_not_start_names_the_model_plugin_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    cause = ValueError("architecture not supported")
    _points(monkeypatch, EntryPoint("good", f"{__name__}:register", registration.GENERAL_GROUP))
    assert failures() == {}
    explain(cause)
    _points(monkeypatch, EntryPoint("mine", "a_package_that_is_not_there:register", registration.GENERAL_GROUP))
    with pytest.raises(PluginError, match=r"'mine' failed to load: ModuleNotFoundError: .*a_package") as caught:
        explain(cause)
    assert caught.value.__cause__ is cause
