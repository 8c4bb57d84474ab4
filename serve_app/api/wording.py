"""How a refusal is worded: the caller's field, what it must be, what it was. No pydantic words, no long echo."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SHOWN = 40
"""Characters of a caller's value or field name that an error message repeats at most."""

_MUST_BE = {
    "string_type": "a string",
    "int_type": "an integer",
    "bool_type": "true or false",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "an object",
}
_COMPARED = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def kind_of(value: Any) -> str:
    """What a JSON value is, in JSON's words: `a number`, `an object`, `null`, …"""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, Mapping) else "a list"


def brief(value: Any) -> str:
    """A value fit for an error message: short, printable, one line; containers only by kind."""
    if isinstance(value, str):
        # repr escapes control characters and lone surrogates, which no JSON encoder would take.
        shown = repr(value[:SHOWN])
        if len(shown) > 2 * SHOWN:
            shown = shown[: 2 * SHOWN] + "'"
        return shown if len(value) <= SHOWN else shown[:-1] + "…" + shown[-1]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e15:
        return repr(value)
    return kind_of(value)


def field_path(location: Iterable[str | int]) -> str:
    """`("documents", 3, "text")` as `documents[3].text`."""
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            name = brief(step)[1:-1]
            path += f".{name}" if path else name
    return path


def complaint(kind: str, message: str, context: Mapping[str, Any], value: Any) -> str:
    """One pydantic error in our words, without the field's name.

    Args:
        kind: pydantic's error type, e.g. `int_type`.
        message: pydantic's message, used for kinds not listed here.
        context: pydantic's `ctx`, e.g. the limit that was passed.
        value: what the caller sent.
    """
    if kind == "missing":
        return "is required"
    if kind in _MUST_BE:
        return f"must be {_MUST_BE[kind]}; got {kind_of(value)}"
    if kind in _COMPARED:
        key, words = _COMPARED[kind]
        return f"must be {words} {context[key]}; got {brief(value)}"
    if kind == "literal_error":
        return f"must be {context['expected']}; got {brief(value)}"
    return f"{message.replace('Input should be', 'must be')[:120]}; got {brief(value)}"
