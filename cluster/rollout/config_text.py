"""Edits of a serve configuration's text that leave everything else in it, comments included, as it is.

The routing table is edited value by value (`yaml_places`), and what comes out is compared with what was meant: a table
whose anchors or comments stand in the way is refused. Applications are put in and taken out by lines. A copy is made
with ruamel.yaml, which keeps comments and styles; only the copy, since ruamel hangs the comment above an application on
the one before it, so that it would leave with the wrong one.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from cluster.rollout.yaml_places import Alias, NotEditable, compose, ends, put, span, take
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
    for i, app in enumerate(loaded["applications"]):
        if not isinstance(app, dict):
            raise ConfigError(f"applications[{i}]: must be a mapping")
        deployments = app.get("deployments") or []
        if not isinstance(deployments, list) or not all(isinstance(deployment, dict) for deployment in deployments):
            raise ConfigError(f"applications[{i}].deployments: must be a list of mappings")
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
    changes = _changes(_user_config(content(text))["models"][model], wanted, latest)
    if not changes:
        return text
    try:
        first, last = span(text, _user_config(_Nodes(compose(text)))["models"][model].node)
        block = text[first:last]
        for path, value in changes.items():
            if value is None:
                block = take(block, path)
            else:  # a version's name stays text
                block = put(
                    block, path, _inline(path, value), _quoted(path[-1]) if path[:-1] == ("versions",) else None
                )
        edited = text[:first] + block + text[last:]
        if content(edited) != _changed(text, model, changes):
            raise NotEditable("the edit would change something else too, or not all that it should")
    except (NotEditable, ConfigError, YAMLError, yaml.YAMLError) as error:
        raise ConfigError(
            f"the block of '{model}' in the routing table cannot be edited as it is written: {error}. "
            "Write it without anchors and aliases, each field on a line of its own"
        ) from None
    routing(edited)  # a table that the gateway would refuse never reaches the file
    return edited


_Changes = Mapping[tuple[str, ...], Any]
"""By path below a model's block: the value to set; None: the field goes."""


def _changes(route: Mapping[str, Any], wanted: Mapping[str, Mapping[str, Any] | None], latest: str | None) -> _Changes:
    """What differs from what is wanted."""
    changes: dict[tuple[str, ...], Any] = {}
    if route.get("latest") != latest:
        changes["latest",] = latest
    versions = {str(version): fields for version, fields in route["versions"].items()}
    for version, fields in wanted.items():
        if fields is not None and version not in versions:
            changes["versions", version] = {name: _plain(value) for name, value in fields.items()}
        elif fields is None and version in versions:
            changes["versions", version] = None
        elif fields is not None:
            differing = {name: _plain(v) for name, v in fields.items() if versions[version].get(name) != v}
            changes |= {("versions", version, name): value for name, value in differing.items()}
    return changes


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _changed(text: str, model: str, changes: _Changes) -> dict[str, Any]:
    """The content as it is to be after the changes."""
    document: dict[str, Any] = _unshared(content(text))
    for path, value in changes.items():
        fields = _user_config(document)["models"][model]
        for name in path[:-1]:
            fields = next(child for key, child in fields.items() if str(key) == name)
        key = next((key for key in fields if str(key) == path[-1]), path[-1])
        if value is None:
            del fields[key]
        else:
            fields[key] = value
    return document


def _unshared(data: Any) -> Any:
    """A copy in which what several aliases share is there several times."""
    if isinstance(data, dict):
        return {key: _unshared(value) for key, value in data.items()}
    return [_unshared(item) for item in data] if isinstance(data, list) else data


def _inline(path: tuple[str, ...], value: Any) -> str:
    """A value's YAML within braces, in one line. `latest` is a version's name, which stays text."""
    if path == ("latest",):
        return _quoted(value)
    dumped = yaml.safe_dump([value], default_flow_style=True, sort_keys=False, allow_unicode=True, width=2**20)
    return dumped.strip()[1:-1]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _Nodes:
    """YAML nodes, read like the data that they stand for."""

    def __init__(self, node: yaml.Node | None) -> None:
        self.node = node

    def __getitem__(self, name: str) -> Any:
        found = self.get(name)
        if not isinstance(found, _Nodes):
            raise NotEditable(f"'{name}' is not written where it is used")
        return found

    def get(self, name: str) -> Any:
        assert self.node is not None
        value = next((value for key, value in self.node.value if key.value == name), None)
        value = value.target if isinstance(value, Alias) else value
        return value.value if isinstance(value, yaml.ScalarNode) else None if value is None else _Nodes(value)

    def __iter__(self) -> Iterator[_Nodes]:
        assert self.node is not None
        return (_Nodes(node.target if isinstance(node, Alias) else node) for node in self.node.value)


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
    for key, value in compose(text).value:
        if key.value == "applications":
            if getattr(value, "flow_style", True):
                raise ConfigError("applications: written in one line; give each application lines of its own")
            for item in value.value:
                if isinstance(item, yaml.MappingNode) and any(
                    k.value == "name" and v.value == name for k, v in item.value
                ):
                    return item.start_mark.line, max(mark.line for mark in ends(item)) + 1
    raise ConfigError(f"application '{name}' is not written out in the list of applications")
