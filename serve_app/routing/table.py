"""The routing table: names and keys in, decisions out."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from serve_app.errors import InvalidRequest, UnknownModel
from serve_app.routing.sticky import pick, sticky_key
from serve_app.settings import LATEST, ModelRoute, RoutingSettings, ShadowSettings
from serve_app.vocabulary import MADE_FOR, OPERATIONS, Operation, Task


@dataclass(frozen=True, slots=True)
class Target:
    """One model version and the application that serves it."""

    model: str
    version: str
    application: str
    task: Task
    weight: float


class Choice(StrEnum):
    """How a version was chosen; the first word of the header `X-Routing`."""

    PINNED = "pinned"
    """The caller named it."""
    LATEST = "latest"
    """The caller asked for `name@latest`."""
    STICKY = "sticky"
    """By the caller's key."""
    WEIGHTED = "weighted"
    """By chance, according to the weights."""
    DEFAULT = "default"
    """One version alone takes the model's traffic."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who serves a request.

    Attributes:
        target: who answers.
        how: why that one.
        shadow: who gets a copy; None: nobody.
        copies: how copies are sent; None where `shadow` is.
        sticky_field: the body's field that the key may come from, and that therefore has an effect.
    """

    target: Target
    how: Choice
    shadow: Target | None = None
    copies: ShadowSettings | None = None
    sticky_field: str | None = None

    def header(self, *, copied: bool) -> str:
        """Value of `X-Routing`; copied: whether the shadow took its copy."""
        return f"{self.how}; shadow={self.shadow.version}" if self.shadow is not None and copied else str(self.how)


def digest(settings: RoutingSettings) -> str:
    """12 hex digits that name a table by its content, whatever the order of its keys."""
    content = orjson.dumps(settings.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def latest(model: ModelRoute) -> str:
    """What `name@latest` means: what the table says, else the greatest version (9 < 10, 1.9 < 1.10)."""
    return model.latest or max(model.versions, key=_natural)


def _natural(version: str) -> list[str | int]:
    # Texts and numbers take turns, so that two versions compare text with text and number with number.
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", version)]


class RoutingTable:
    """The gateway's table. Immutable: a change makes a new one.

    Args:
        settings: the gateway's `user_config`.
        chance: draws of the weights and of the copies.
    """

    def __init__(self, settings: RoutingSettings, chance: random.Random | None = None) -> None:
        self.settings = settings
        self.digest = digest(settings)
        self._chance = chance or random.Random()
        self._targets = {
            name: {
                version: Target(name, version, route.application, route.task, route.weight)
                for version, route in model.versions.items()
            }
            for name, model in settings.models.items()
        }
        self._defaults = frozenset(name for name, model in settings.models.items() if model.default)
        self._latest = {name: latest(model) for name, model in settings.models.items()}

    def __iter__(self) -> Iterator[Target]:
        for versions in self._targets.values():
            yield from versions.values()

    @property
    def shadowed(self) -> frozenset[str]:
        """Applications that get copies."""
        return frozenset(
            self._targets[name][model.shadow.version].application
            for name, model in self.settings.models.items()
            if model.shadow is not None
        )

    def describe(self, target: Target) -> dict[str, Any]:
        """What `GET /v1/models` says of a version's place in the table."""
        model = self.settings.models[target.model]
        total = sum(version.weight for version in model.versions.values())
        return {
            "weight": target.weight,
            "share": round(target.weight / total, 6),
            "latest": self._latest[target.model] == target.version,
            "sticky": model.sticky.model_dump(exclude={"salt"}) if model.sticky is not None else None,
            "shadow": model.shadow.model_dump() if model.shadow is not None else None,
        }

    def resolve(self, model: str | None, operation: Operation) -> Target:
        """The version that serves a request without a key; see `route`."""
        return self.route(model, operation).target

    def route(
        self,
        model: str | None,
        operation: Operation,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Decision:
        """Decides who serves a request.

        Args:
            model: `name`, `name@version`, `name@latest`, or None where one model only serves, or is made for, the
                operation, or is the default among those.
            operation: what is asked for.
            headers, body: where a sticky key may be.

        Raises:
            UnknownModel: no such model or version; the message lists what exists.
            InvalidRequest: the model does not serve the operation, None is ambiguous, or the key is not a text.
        """
        if model is None:
            return self._balanced(self._only_model(operation), operation, headers or {}, body or {})
        name, at, version = model.partition("@")
        versions = self._targets.get(name)
        if versions is None:
            raise UnknownModel(f"model: '{model[:100]}' does not exist; there are: {self._names()}", "model")
        if not at:
            return self._balanced(name, operation, headers or {}, body or {})
        wanted = self._latest[name] if version == LATEST else version
        if wanted not in versions:
            raise UnknownModel(
                f"model: '{name}' has no version '{version[:60]}'; there are: {', '.join(versions)}", "model"
            )
        target = versions[wanted]
        if operation not in OPERATIONS[target.task]:
            raise self._cannot(name, operation)
        if version == LATEST:
            return self._with_shadow(Decision(target, Choice.LATEST), operation)
        return Decision(target, Choice.PINNED)

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

    def _balanced(
        self, name: str, operation: Operation, headers: Mapping[str, str], body: Mapping[str, Any]
    ) -> Decision:
        targets = [t for t in self._targets[name].values() if operation in OPERATIONS[t.task]]
        if not targets:
            raise self._cannot(name, operation)
        sticky = self.settings.models[name].sticky
        # Read also where there is nothing to choose, so that a bad key fails the same before and during a canary.
        key = sticky_key(sticky, headers, body) if sticky is not None else None
        field = sticky.field if sticky is not None else None
        weighted = [t for t in targets if t.weight > 0]
        if len(weighted) < 2:
            decision = Decision((weighted or targets)[0], Choice.DEFAULT, sticky_field=field)
        elif key is not None and sticky is not None:
            version = pick(key, {t.version: t.weight for t in weighted}, sticky.salt or name)
            decision = Decision(self._targets[name][version], Choice.STICKY, sticky_field=field)
        else:
            target = self._chance.choices(weighted, [t.weight for t in weighted])[0]
            decision = Decision(target, Choice.WEIGHTED, sticky_field=field)
        return self._with_shadow(decision, operation)

    def _with_shadow(self, decision: Decision, operation: Operation) -> Decision:
        copies = self.settings.models[decision.target.model].shadow
        if copies is None or self._chance.random() >= copies.share:
            return decision
        shadow = self._targets[decision.target.model][copies.version]
        if shadow == decision.target or operation not in OPERATIONS[shadow.task]:
            return decision
        return Decision(decision.target, decision.how, shadow, copies, decision.sticky_field)

    def _cannot(self, name: str, operation: Operation) -> InvalidRequest:
        return InvalidRequest(f"model: '{name}' does not serve {operation}", "model")

    def _names(self) -> str:
        return ", ".join(f"{name} ({', '.join(versions)})" for name, versions in self._targets.items()) or "none"
