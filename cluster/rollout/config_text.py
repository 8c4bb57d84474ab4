"""Edits of a serve configuration's text that leave everything else in it, comments included, as it is.

A model's block of the routing table, and an application that is copied, are edited with ruamel.yaml, which keeps
comments and styles, and put back in their place; the rest of the text is not touched. Applications are put in and
taken out by lines: ruamel hangs the comment above an application on the one before it, so that it would leave with the
wrong one.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from serve_app.settings import ModelSettings, RoutingSettings

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GATEWAY = "serve_app.app:gateway"


class ConfigError(ValueError):
    """The configuration does not allow what is asked for."""


def _round_trip() -> YAML:
    editor = YAML(typ="rt")
    editor.preserve_quotes = True
    editor.width = 4_096
    editor.indent(mapping=2, sequence=4, offset=2)
    editor.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))
    return editor


def _dump(document: Any) -> str:
    stream = io.StringIO()
    _round_trip().dump(document, stream)
    return stream.getvalue()


def content(text: str) -> dict[str, Any]:
    """The configuration as plain data. Raises ConfigError if it is none."""
    try:
        loaded = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(f"the configuration is no YAML: {error}") from None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("applications"), list):
        raise ConfigError("applications: required: a list")
    return loaded


@functools.lru_cache(maxsize=32)
def routing(text: str) -> RoutingSettings:
    """The routing table. Raises pydantic's ValidationError if it is wrong."""
    return RoutingSettings.model_validate(_user_config(content(text)))


@functools.lru_cache(maxsize=32)
def application(text: str, name: str) -> ModelSettings | None:
    """An application's settings; None: there is no such application."""
    found = [a for a in content(text)["applications"] if a.get("name") == name]
    return ModelSettings.model_validate(found[0].get("args") or {}) if found else None


def _user_config(document: Any) -> Any:
    for app in document["applications"]:
        if app.get("import_path") == GATEWAY:
            for deployment in app.get("deployments") or []:
                if deployment.get("name") == "Gateway" and deployment.get("user_config") is not None:
                    return deployment["user_config"]
    raise ConfigError(f"no application of {GATEWAY} with a routing table (deployments[Gateway].user_config)")


# --- the routing table ------------------------------------------------------------------------------------------------


def set_versions(text: str, model: str, wanted: Mapping[str, Mapping[str, Any] | None], latest: str | None) -> str:
    """The text with a model's versions changed.

    Args:
        wanted: by version: fields of its route to set, others stay; None: the version leaves the table.
        latest: the table's `latest`; None: it has none.
    """
    routes = routing(text).models
    if model not in routes:
        raise ConfigError(f"model '{model}' is not in the routing table; there are: {', '.join(routes)}")
    first, last, indent = _place_of_route(text, model)
    route = _round_trip().load("\n".join(line[indent:] for line in (" " * indent + text[first:last]).split("\n")))
    changed = _set(route, "latest", latest)
    for version, fields in wanted.items():
        key = next((key for key in route["versions"] if str(key) == version), None)
        if fields is None:
            changed |= key is not None and route["versions"].pop(key) is not None
            continue
        if key is None:
            key = DoubleQuotedScalarString(version)
            route["versions"][key] = CommentedMap()
            route["versions"][key].fa.set_flow_style()
        for name, value in fields.items():
            changed |= _set(route["versions"][key], name, value)
    if not changed:
        return text
    lines = _dump(route).rstrip("\n").split("\n")
    edited = text[:first] + "\n".join([lines[0], *(" " * indent + line for line in lines[1:])]) + text[last:]
    routing(edited)  # a table that the gateway would refuse never reaches the file
    return edited


def _place_of_route(text: str, model: str) -> tuple[int, int, int]:
    """Where a model's block of the table begins and ends in the text, and its column (0: written in one line)."""
    found = _user_config(_Nodes(_root(text)))["models"][model].node
    if found.flow_style:
        return found.start_mark.index, found.end_mark.index, 0
    end = text.find("\n", max(mark.index for mark in _ends(found)))  # with the comment behind the last value
    return found.start_mark.index, end if end >= 0 else len(text), found.start_mark.column


def _root(text: str) -> yaml.Node:
    root = yaml.compose(text)
    assert root is not None  # `content` has read it
    return root


class _Nodes:
    """YAML nodes, read like the data that they stand for."""

    def __init__(self, node: yaml.Node) -> None:
        self.node = node

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def get(self, name: str) -> Any:
        value = next((value for key, value in self.node.value if key.value == name), None)
        return value.value if isinstance(value, yaml.ScalarNode) else None if value is None else _Nodes(value)

    def __iter__(self) -> Iterator[_Nodes]:
        return (_Nodes(node) for node in self.node.value)


def _set(mapping: Any, name: str, value: Any) -> bool:
    if value is None:
        return name in mapping and mapping.pop(name, None) is not None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if mapping.get(name) == value:
        return False
    mapping[name] = DoubleQuotedScalarString(value) if name == "latest" else value
    return True


# --- whole applications -----------------------------------------------------------------------------------------------


def add_version(text: str, source: str, version: str, changes: Mapping[str, Any]) -> str:
    """The text with a copy of application `source` and its comment behind it, of another version.

    Args:
        changes: fields of the copy's `args` by dotted path, e.g. {"engine.enforce_eager": True}.
    """
    settings = application(text, source)
    if settings is None:
        raise ConfigError(f"there is no application '{source}' to copy")
    start, end = _lines_of(text, source)
    lines = text.splitlines(keepends=True)
    indent = len(lines[start]) - len(lines[start].lstrip(" "))
    block = "".join(line[indent:] if line.strip() else "\n" for line in lines[start:end])
    try:
        items = _round_trip().load(block)
        shares = any(isinstance(token, yaml.AnchorToken) for token in yaml.scan(block))
    except YAMLError:  # an alias of something outside
        shares = True
    if shares:  # copied by value, without its comments: an anchor must stay the only one of its name
        (plain,) = [app for app in content(text)["applications"] if app.get("name") == source]
        items = _round_trip().load(yaml.dump([plain], Dumper=_Expanded, sort_keys=False))
    item = items[0]
    item["args"]["version"] = DoubleQuotedScalarString(version)
    for path, value in changes.items():
        _set_path(item["args"], path, value)
    name = settings.model_copy(update={"version": version}).application
    item["name"] = name
    new = _dump(items)
    inner = len(new) - len(new.lstrip(" "))
    added = "".join(" " * indent + line[inner:] if line.strip() else "\n" for line in new.splitlines(keepends=True))
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += "\n"
    edited = "".join([*lines[:end], "\n", *lines[_comment_above(lines, start) : start], added, *lines[end:]])
    made = application(edited, name)
    if made is None or made.version != version:
        raise ConfigError(f"application '{source}' cannot be copied; write '{name}' by hand")
    return edited


class _Expanded(yaml.SafeDumper):
    """Writes out what several places share, each time."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _set_path(mapping: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        mapping = mapping.setdefault(parent, CommentedMap())
        if not isinstance(mapping, dict):
            raise ConfigError(f"{path}: {parent} holds no fields")
    mapping[last] = value


def remove_application(text: str, name: str) -> str:
    """The text without an application and the comment right above it; unchanged if it is not there."""
    if not any(app.get("name") == name for app in content(text)["applications"]):
        return text
    start, end = _lines_of(text, name)
    lines = text.splitlines(keepends=True)
    start = _comment_above(lines, start)
    if start > 0 and not lines[start - 1].strip():
        start -= 1
    edited = "".join(lines[:start] + lines[end:])
    if any(app.get("name") == name for app in content(edited)["applications"]):
        raise ConfigError(f"application '{name}' could not be taken out; remove it by hand")
    return edited


def _comment_above(lines: list[str], start: int) -> int:
    """First line of the comment that stands right above line `start`; `start` if there is none."""
    while start > 0 and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start


def _lines_of(text: str, name: str) -> tuple[int, int]:
    """First line of an application's list item, and the line behind its last; comments below belong to the next."""
    for key, value in _root(text).value:
        if key.value == "applications":
            if value.flow_style:
                raise ConfigError("applications: written in one line; give each application lines of its own")
            for item in value.value:
                if any(k.value == "name" and v.value == name for k, v in item.value):
                    return item.start_mark.line, max(mark.line for mark in _ends(item)) + 1
    raise ConfigError(f"there is no application '{name}'")


def _ends(node: yaml.Node) -> Iterator[yaml.Mark]:
    """Where the leaves end. A block collection's own end mark lies behind the comments that follow it."""
    if isinstance(node, yaml.ScalarNode) or getattr(node, "flow_style", False):
        block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
        yield _before(node.end_mark) if block else node.end_mark
        return
    for child in node.value:
        for part in child if isinstance(child, tuple) else (child,):
            yield from _ends(part)


def _before(mark: yaml.Mark) -> yaml.Mark:
    return yaml.Mark(mark.name, mark.index, max(0, mark.line - 1), 0, None, 0)
