"""A copy of a plugin for one request: what the request leaves in it dies with it.

The interface has no call for "this request will have no answer", so a plugin that keeps something in `pre_process` and
takes it out in `post_process` keeps it for ever when a client leaves, a deadline passes or an engine fails in between.
Calling `post_process` with outputs that do not exist is no cure: it may write files, count, or fail before it has
cleaned up. So the plugin that was constructed, the prototype, never sees a request. Each request has a copy of it,
whose tables are its own, and no reference to the copy outlives the request.

Copied are the instance, tables and lists among its attributes and those of its classes, and objects of the plugin's own
package that these lead to. Shared is everything else: vLLM's config and renderer, tokenizers, models, locks, numbers,
and tables that were large when the plugin was constructed. Out of reach are tables in a module.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import MutableMapping, MutableSequence, MutableSet
from types import MethodType
from typing import Any, TypeVar

LARGE = 1_000
"""Entries from which a table that the constructor filled is taken for the plugin's knowledge (a vocabulary), not for
requests' state, and shared: copying it would cost more than the rest of the request."""

_NOT_THEIRS = {"vllm", "builtins", "abc", "typing", "torch", "transformers", "pydantic", "serve_app"}
"""Packages whose objects are never copied."""
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_SEQUENCES = (list, set, deque)

P = TypeVar("P")


def private_copy(plugin: P) -> P:
    """A copy of `plugin` for one request; costs microseconds for most plugins."""
    packages = {_package(cls) for cls in type(plugin).__mro__} - _NOT_THEIRS
    return _Copier(packages).instance(plugin)


def _package(cls: type) -> str:
    return cls.__module__.partition(".")[0]


class _Copier:
    """Copies what belongs to a plugin, each object once.

    Args:
        packages: top-level packages of the plugin's classes.
    """

    def __init__(self, packages: set[str]) -> None:
        self._packages = packages
        self._done: dict[int, Any] = {}

    def instance(self, value: P) -> P:
        """An object of the plugin's package, its attributes copied, tables of its classes made its own."""
        twin = copy.copy(value)
        self._done[id(value)] = twin
        attributes = getattr(twin, "__dict__", {})
        for cls in reversed(type(value).__mro__):
            if _package(cls) in self._packages:
                tables = {k: v for k, v in vars(cls).items() if not k.startswith("__") and _is_table(v)}
                attributes.update({k: self._copy(v) for k, v in tables.items() if k not in vars(value)})
        for name, attribute in list(getattr(value, "__dict__", {}).items()):
            attributes[name] = self._copy(attribute)
        return twin

    def _copy(self, value: Any) -> Any:
        if id(value) in self._done:
            return self._done[id(value)]
        if isinstance(value, MethodType):
            # A stored method of the prototype would write into the prototype.
            return MethodType(value.__func__, self._copy(value.__self__))
        if _is_table(value):
            return self._table(value)
        if isinstance(value, type) or _package(type(value)) not in self._packages or not hasattr(value, "__dict__"):
            return value
        return self.instance(value)

    def _table(self, value: Any) -> Any:
        if len(value) > LARGE:
            return value
        if type(value) in _MAPPINGS:
            twin = self._done[id(value)] = copy.copy(value)
            for key, item in value.items():
                twin[key] = self._copy(item)
            return twin
        if type(value) in _SEQUENCES:
            twin = self._done[id(value)] = copy.copy(value)
            if not isinstance(value, set):
                twin.clear()
                twin.extend(self._copy(item) for item in value)
            return twin
        # cachetools and the like keep their entries inside; what is empty holds nothing that could fail to be copied.
        twin = self._done[id(value)] = copy.deepcopy(value) if len(value) == 0 else copy.copy(value)
        return twin


def _is_table(value: Any) -> bool:
    return isinstance(value, (MutableMapping, MutableSequence, MutableSet)) and not isinstance(value, (bytearray, type))
