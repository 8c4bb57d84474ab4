"""Marks tests by their path and gives all of them the small checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checkpoints import Checkpoints

KINDS = ("unit", "app", "ray", "parity", "clients", "gpu")
ROOT = Path(__file__).parent
ORDER = {kind: i for i, kind in enumerate(("unit", "app", "parity", "ray", "clients", "gpu"))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by folder, and runs what is quick first. A cluster is started once and shared by `ray` and `clients`."""
    for item in items:
        kind = item.path.relative_to(ROOT).parts[0]
        if kind in KINDS:
            item.add_marker(kind)
    items.sort(key=lambda item: ORDER.get(item.path.relative_to(ROOT).parts[0], 0))


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """Random small checkpoints of every supported kind, made at first use."""
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))
