"""Which version of which model serves a request."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from serve_app.errors import InvalidRequest, UnknownModel
from serve_app.settings import RoutingSettings
from serve_app.vocabulary import MADE_FOR, OPERATIONS, Operation, Task


@dataclass(frozen=True, slots=True)
class Target:
    """One model version and the application that serves it."""

    model: str
    version: str
    application: str
    task: Task
    weight: float


class RoutingTable:
    """The gateway's table. Immutable: a change makes a new one.

    Args:
        settings: the gateway's `user_config`.
    """

    def __init__(self, settings: RoutingSettings) -> None:
        self._targets = {
            name: {
                version: Target(name, version, route.application, route.task, route.weight)
                for version, route in model.versions.items()
            }
            for name, model in settings.models.items()
        }
        self._defaults = frozenset(name for name, model in settings.models.items() if model.default)

    def __iter__(self) -> Iterator[Target]:
        for versions in self._targets.values():
            yield from versions.values()

    def resolve(self, model: str | None, operation: Operation) -> Target:
        """The version that serves a request.

        Args:
            model: `name`, `name@version`, or None where one model only serves, or is made for, the operation, or is the
                default among those.
            operation: what is asked for.

        Raises:
            UnknownModel: no such model or version; the message lists what exists.
            InvalidRequest: the model does not serve the operation, or None is ambiguous.
        """
        if model is None:
            return self._weighted(self._only_model(operation), operation)
        name, _, version = model.partition("@")
        versions = self._targets.get(name)
        if versions is None:
            raise UnknownModel(f"model: '{model[:100]}' does not exist; there are: {self._names()}", "model")
        if "@" not in model:
            return self._weighted(name, operation)
        if version not in versions:
            raise UnknownModel(
                f"model: '{name}' has no version '{version[:60]}'; there are: {', '.join(versions)}", "model"
            )
        target = versions[version]
        if operation not in OPERATIONS[target.task]:
            raise self._cannot(name, operation)
        return target

    def _only_model(self, operation: Operation) -> str:
        tasks = {name: {target.task for target in versions.values()} for name, versions in self._targets.items()}
        names = [name for name, has in tasks.items() if any(operation in OPERATIONS[task] for task in has)]
        # An embedder ranks by cosine as well: beside one reranker it does not make a request without a model
        # ambiguous. TEI's clients cannot name a model at all.
        made_for = [name for name in names if MADE_FOR.get(operation) in tasks[name]]
        if len(made_for) == 1:
            return made_for[0]
        defaults = [name for name in made_for or names if name in self._defaults]
        if len(defaults) == 1:
            return defaults[0]
        if not names:
            raise UnknownModel(f"model: no model serves {operation}; there are: {self._names()}", "model")
        if len(names) > 1:
            several = ", ".join(names)
            raise InvalidRequest(f"model: required, since several models serve {operation}: {several}", "model")
        return names[0]

    def _weighted(self, name: str, operation: Operation) -> Target:
        targets = [t for t in self._targets[name].values() if operation in OPERATIONS[t.task]]
        if not targets:
            raise self._cannot(name, operation)
        weighted = [t for t in targets if t.weight > 0]
        if len(weighted) < 2:
            return (weighted or targets)[0]
        return random.choices(weighted, [t.weight for t in weighted])[0]

    def _cannot(self, name: str, operation: Operation) -> InvalidRequest:
        return InvalidRequest(f"model: '{name}' does not serve {operation}", "model")

    def _names(self) -> str:
        return ", ".join(f"{name} ({', '.join(versions)})" for name, versions in self._targets.items()) or "none"
