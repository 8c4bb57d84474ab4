"""The OpenAPI description as one HTML page that loads nothing from anywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:3rem;border-top:1px solid #d0d7de;padding-top:1rem}
code,pre{font:14px/1.45 ui-monospace,monospace;background:#f3f5f7;border-radius:4px}
code{padding:.1em .3em}pre{padding:.8rem;overflow:auto}
table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.35rem .6rem;
border-bottom:1px solid #e3e7eb}tr.off td{color:#6a737d}nav a{margin-right:1rem}
@media(prefers-color-scheme:dark){body{color:#e6e9ec;background:#14171a}code,pre{background:#22272c}
td,th,h2{border-color:#363c42}a{color:#7ab7ff}tr.off td{color:#8b949e}}
"""


def docs_page(spec: Mapping[str, Any]) -> str:
    """One HTML page: routes, fields with type, default and meaning, and a curl command for each.

    Args:
        spec: what `openapi.openapi` returns.
    """
    info, paths = spec["info"], spec["paths"]
    links = "".join(f'<a href="#{_anchor(path)}"><code>{escape(path)}</code></a>' for path in paths)
    sections = "".join(
        _section(path, method, item, spec) for path, ops in paths.items() for method, item in ops.items()
    )
    components = spec["components"]
    headers = [(name, item["description"]) for name, item in components["headers"].items()]
    headers += [(item["name"], item["description"]) for item in components["parameters"].values()]
    statuses = [(status, item["description"]) for status, item in components["responses"].items()]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])} {escape(info['version'])}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{_prose(info['description'])}</p>"
        f"<nav>{links}</nav>{sections}"
        f"<h2>Headers</h2>{_table(headers)}<h2>Error statuses</h2>{_table(statuses)}</body></html>"
    )


def type_words(schema: Mapping[str, Any]) -> str:
    """A JSON schema's type in a few words: `integer`, `list of string`, `"float" or "base64"`, …"""
    if "anyOf" in schema:
        words = [type_words(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(words))
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        items = type_words(schema.get("items", {}))
        return f"list of ({items})" if " or " in items else f"list of {items}"
    if schema.get("properties"):
        return "{" + ", ".join(f'"{name}"' for name in schema["properties"]) + "}"
    return str(schema.get("type", "anything"))


def _section(path: str, method: str, item: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    parts = [
        f'<h2 id="{_anchor(path)}"><code>{method.upper()} {escape(path)}</code></h2><p>{_prose(item["summary"])}.</p>'
    ]
    if "requestBody" in item:
        content = item["requestBody"]["content"]["application/json"]
        for shape in content["schema"].get("anyOf", [content["schema"]]):
            schema = spec["components"]["schemas"][shape["$ref"].rsplit("/", 1)[1]]
            parts.append(f"<p>{_prose(schema.get('description', ''))}</p>{_fields(schema)}")
        bodies = [json.dumps(body, ensure_ascii=False).replace("'", "'\\''") for body in _examples(content)]
        calls = [f"curl localhost:8000{path} -H 'content-type: application/json' -d '{body}'" for body in bodies]
    else:
        calls = [f"curl localhost:8000{path}"]
    answers = _examples(item["responses"]["200"]["content"]["application/json"])
    for call, answer in zip(calls, answers, strict=True):
        parts += [_pre(call), _pre(json.dumps(answer, indent=1, ensure_ascii=False))]
    return "".join(parts)


def _examples(content: Mapping[str, Any]) -> list[Any]:
    return [example["value"] for example in content["examples"].values()]


def _fields(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in sorted(schema["properties"].items(), key=lambda pair: pair[0] not in required):
        off = field.get("x-accepted-without-effect") or "not" in field
        default = "required" if name in required else json.dumps(field.get("default"))
        rows.append(
            f"{'<tr class=off>' if off else '<tr>'}<td><code>{escape(name)}</code></td>"
            f"<td>{'' if off else escape(type_words(field))}</td>"
            f"<td>{'' if off or default == 'null' else escape(default)}</td>"
            f"<td>{_prose(field.get('description', ''))}</td></tr>"
        )
    return f"<table><tr><th>field</th><th>type</th><th>default</th><th></th></tr>{''.join(rows)}</table>"


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{_prose(text)}</td></tr>" for name, text in rows)
    return f"<table>{cells}</table>"


def _pre(text: str) -> str:
    return f"<pre>{escape(text, quote=False)}</pre>"


def _prose(text: str) -> str:
    """Escaped text with `code` set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _anchor(path: str) -> str:
    return path.strip("/").replace("/", "-")
