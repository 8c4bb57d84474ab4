"""A copy's tables are its own; what is large or foreign is shared."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from typing import Any

from cachetools import TTLCache

from serve_app.plugin_host.isolation import LARGE, private_copy


class Helper:
    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.notes: dict[str, Any] = {}


class Plugin:
    shared_by_all: dict[str, int] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {
            "dict": {},
            "ordered": OrderedDict(),
            "default": defaultdict(list),
            "counter": Counter(),
            "list": [],
            "set": set(),
            "deque": deque(maxlen=5),
            "cachetools": TTLCache(10, 60.0),
            "nested": {"inner": {}},
        }
        self.filled = {"a": 1}
        self.vocabulary = {str(i): i for i in range(LARGE + 1)}
        self.lock = threading.Lock()
        self.foreign = Fraction(1, 2)
        self.helper = Helper(self)
        self.stored_method = self.write
        self.methods = [self.write]
        self.itself = self

    def write(self, key: str) -> None:
        self.tables["dict"][key] = key


def test_every_kind_of_table_is_the_copys_own() -> None:
    plugin = Plugin()
    twin = private_copy(plugin)
    tables = twin.tables
    for name in ("dict", "ordered", "default", "counter", "cachetools"):
        tables[name]["k"] = 1
    tables["nested"]["inner"]["k"] = 1
    tables["list"].append(1)
    tables["set"].add(1)
    tables["deque"].append(1)
    twin.helper.notes["k"] = 1
    twin.shared_by_all["k"] = 1
    twin.filled["b"] = 2
    assert all(len(table) == 0 for name, table in plugin.tables.items() if name != "nested")
    assert plugin.tables["nested"] == {"inner": {}}
    assert plugin.helper.notes == {}
    assert Plugin.shared_by_all == {}
    assert plugin.filled == {"a": 1}
    assert twin.filled == {"a": 1, "b": 2}
    assert tables["deque"].maxlen == 5
    assert tables["default"]["new"] == []


def test_stored_methods_and_loops_lead_to_the_copy() -> None:
    plugin = Plugin()
    twin = private_copy(plugin)
    twin.stored_method("one")
    twin.methods[0]("two")
    assert plugin.tables["dict"] == {}
    assert set(twin.tables["dict"]) == {"one", "two"}
    assert twin.itself is twin
    assert twin.helper.owner is twin


def test_large_tables_locks_and_foreign_objects_are_shared() -> None:
    plugin = Plugin()
    twin = private_copy(plugin)
    assert twin.vocabulary is plugin.vocabulary
    assert twin.lock is plugin.lock
    assert twin.foreign is plugin.foreign
    assert type(twin) is Plugin
