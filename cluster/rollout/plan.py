"""The rollout as a machine: what the configuration looks like in a phase, and which phase follows. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cluster.rollout.config_text import (
    ConfigError,
    add_version,
    application,
    content,
    remove_application,
    routing,
    set_versions,
)
from cluster.rollout.state import Kind, Options, Phase, State
from serve_app.routing.table import latest
from serve_app.settings import ModelSettings


def application_name(model: str, version: str) -> str:
    """Name of the application that serves a version."""
    return ModelSettings.model_construct(name=model, version=version).application


def begin(text: str, kind: Kind, model: str, old: str | None, new: str, options: Options, now: float) -> State:
    """The first state of a rollout, all of whose edits, and those of the way back, have been tried on the text.

    See `_begin`.
    """
    state = _begin(text, kind, model, old, new, options, now)
    edited = text
    for step in walk(state):
        if step.phase not in {Phase.UNROUTE, Phase.REMOVE, Phase.DONE}:
            back = edited
            for step_back in walk(failed(step, "?", now)):
                back = desired(back, step_back)
            content(back)
        edited = desired(edited, step)
    content(edited)
    return state


def _begin(text: str, kind: Kind, model: str, old: str | None, new: str, options: Options, now: float) -> State:
    """The first state of a rollout.

    Args:
        text: the configuration.
        old: the version that has the traffic, or that retires; None: the one with the largest weight.

    Raises:
        ConfigError: the configuration does not allow it.
    """
    models = routing(text).models
    if model not in models:
        raise ConfigError(f"model '{model}' is not in the routing table; there are: {', '.join(models) or 'none'}")
    route = models[model]
    old = old or max(route.versions, key=lambda version: route.versions[version].weight)
    if old not in route.versions:
        raise ConfigError(
            f"'{model}' has no version '{old}' in the routing table; there are: {', '.join(route.versions)}"
        )
    if kind is Kind.RETIRE:
        _check_retires(text, model, old)
        return State(kind, model, old, "", Phase.UNROUTE, now, options, route.versions[old].weight, route.latest)
    if new in route.versions:
        raise ConfigError(f"'{model}@{new}' is in the routing table already")
    if kind is Kind.RED_BLACK and route.versions[old].weight == 0:
        raise ConfigError(f"'{model}@{old}' has no traffic to take over; its weight is 0")
    if kind is Kind.RED_BLACK and route.shadow is not None and route.shadow.version == old:
        raise ConfigError(f"'{model}@{old}' gets copies (shadow) and would leave; take that out of the table first")
    if application(text, application_name(model, old)) is None:
        raise ConfigError(f"application '{application_name(model, old)}' is not in this file")
    written = application(text, application_name(model, new)) is not None
    if not written:  # says now what is wrong with the changes
        add_version(text, application_name(model, old), new, options.changes)
    elif options.changes:
        raise ConfigError(f"application '{application_name(model, new)}' is in the file already; --set would change it")
    weight = route.versions[old].weight
    return State(kind, model, old, new, Phase.DEPLOY, now, options, weight, route.latest, latest(route), written)


def _check_retires(text: str, model: str, version: str) -> None:
    route = routing(text).models[model]
    if len(route.versions) == 1:
        raise ConfigError(f"'{model}@{version}' is the model's last version")
    if route.versions[version].weight > 0:
        raise ConfigError(f"'{model}@{version}' has traffic: its weight is {route.versions[version].weight:g}")
    if route.shadow is not None and route.shadow.version == version:
        raise ConfigError(f"'{model}@{version}' gets copies (shadow)")
    if route.latest == version:
        raise ConfigError(f"'{model}@{version}' is the table's latest")


def desired(text: str, state: State) -> str:
    """The configuration of a state's phase, made from that of any state before it; unchanged if it is that already."""
    old, new = application_name(state.model, state.old), application_name(state.model, state.new)
    match state.phase:
        case Phase.DEPLOY:
            if application(text, new) is None:
                text = add_version(text, old, state.new, state.options.changes)
        case Phase.ROUTE | Phase.WARM | Phase.SHIFT | Phase.KEEP:
            settings = application(text, new)
            if settings is None:
                raise ConfigError(f"application '{new}' has left the file during the rollout")
            taken = round(state.weight * state.share / 100, 9)
            route = {"application": new, "task": str(settings.task), "weight": taken}
            versions = {state.new: route}
            if state.kind is Kind.RED_BLACK:
                versions |= {state.old: {"weight": round(state.weight - taken, 9)}}
            # Until all traffic has moved, `name@latest` must not mean the version that is still on trial.
            follows = state.phase is Phase.KEEP and state.meant == state.old
            text = set_versions(text, state.model, versions, state.new if follows else state.meant)
        case Phase.RETURN:
            versions = {state.old: {"weight": state.weight}}
            if state.new in routing(text).models[state.model].versions:
                versions |= {state.new: {"weight": 0}}
            text = set_versions(text, state.model, versions, state.meant)
        case Phase.UNROUTE:
            text = set_versions(text, state.model, {state.leaving: None}, _latest_after(state))
        case Phase.REMOVE:
            if not (state.reason and (state.written or state.options.keep_failed)):
                text = remove_application(text, application_name(state.model, state.leaving))
        case Phase.DONE if ends_with_an_edit(state):
            text = set_versions(text, state.model, {}, state.latest)
        case Phase.DONE:
            pass
    return text


def ends_with_an_edit(state: State) -> bool:
    """Whether the configuration of the last phase may differ from that of the phase before."""
    return state.kind is Kind.BESIDE and not state.reason


def _latest_after(state: State) -> str | None:
    """The table's `latest` once the rollout is over: it follows the new version only if somebody wrote one."""
    if state.kind is Kind.RED_BLACK and not state.reason and state.latest == state.old:
        return state.new
    return state.latest


_ORDER = {
    Kind.RED_BLACK: [Phase.DEPLOY, Phase.ROUTE, Phase.WARM, Phase.SHIFT, Phase.KEEP, Phase.UNROUTE, Phase.REMOVE],
    Kind.BESIDE: [Phase.DEPLOY, Phase.ROUTE, Phase.WARM],
    Kind.RETIRE: [Phase.UNROUTE, Phase.REMOVE],
}
_WAY_BACK = [Phase.RETURN, Phase.UNROUTE, Phase.REMOVE]


def succeeded(state: State, now: float) -> State:
    """The state after this phase has gone well."""
    if state.phase is Phase.SHIFT and state.step + 1 < len(state.options.steps):
        return replace(state, step=state.step + 1, since=now)
    order = _WAY_BACK if state.reason else _ORDER[state.kind]
    place = order.index(state.phase) + 1
    return replace(state, phase=order[place] if place < len(order) else Phase.DONE, since=now)


def failed(state: State, reason: str, now: float) -> State:
    """The state after the new version has turned out worse: on the way back.

    Raises:
        ValueError: there is no way back from this phase.
    """
    if state.reason or state.phase in {Phase.UNROUTE, Phase.REMOVE, Phase.DONE}:
        raise ValueError(f"no way back from phase {state.phase}")
    # Never in the table, so there is nothing to return.
    phase = Phase.REMOVE if state.phase is Phase.DEPLOY else Phase.RETURN
    return replace(state, phase=phase, since=now, reason=reason)


def walk(state: State) -> Iterator[State]:
    """The states from here to the end, if all goes well."""
    while state.phase is not Phase.DONE:
        yield state
        state = succeeded(state, state.since)
    yield state
