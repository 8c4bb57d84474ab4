"""Marks tests by their path and gives all of them the small checkpoints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoints import Checkpoints
from tests.cluster import Server, default_config, running

KINDS = ("unit", "app", "ray", "parity", "clients", "gpu")
ROOT = Path(__file__).parent
ORDER = ("unit", "app", "parity", "own cluster", "clients", "ray", "gpu")
OWN_CLUSTER = {"test_multi_node.py", "test_rollout.py", "test_scaling.py", "test_start_failure.py"}
"""Before the shared cluster is there: two at once are more than two cores carry."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder, and runs what is quick first. A cluster is started once and shared by `ray` and `clients`."""
    for item in items:
        kind = item.path.relative_to(ROOT).parts[0]
        if kind in KINDS:
            item.add_marker(kind)
    items.sort(key=lambda item: (ORDER.index(_group(item.path)), "failures" in item.path.name))


def _group(path: Path) -> str:
    kind = path.relative_to(ROOT).parts[0]
    return "own cluster" if path.name in OWN_CLUSTER else kind if kind in KINDS else ORDER[0]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """Random small checkpoints of every supported kind, made at first use."""
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The embedded default on a real local cluster, started once for all tests that need it."""
    if url := os.environ.get("POOLSERVE_TEST_URL"):  # a server that is already there, for quick local rounds
        grpc = os.environ.get("POOLSERVE_TEST_GRPC", "")
        yield Server(url, None, Path(os.devnull), grpc)  # type: ignore[arg-type]
        return
    config = default_config()
    for application in config["applications"]:
        if application["name"] == "images":  # the tests' pictures come from this machine
            application["args"] |= {"allow_networks": ["127.0.0.1/32"], "allow_ports": [], "cache_mib": 8}
    with running(config, tmp_path_factory.mktemp("server")) as started:
        yield started
