"""Writes docs/settings.md from the settings models. `--check` fails when the page is out of date."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from serve_app.settings import GatewaySettings, ImageLoaderSettings, ModelSettings, RoutingSettings, Settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
ROOTS = {
    "Model: `args` of `serve_app.app:model`": ModelSettings,
    "Gateway: `args` of `serve_app.app:gateway`": GatewaySettings,
    "Images: `args` of `serve_app.app:images`": ImageLoaderSettings,
    "Routing table: `user_config` of the deployment Gateway": RoutingSettings,
}


def nested(annotation: Any) -> list[type[Settings]]:
    """Settings classes inside an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return [annotation]
    return [cls for part in get_args(annotation) for cls in nested(part)]


def type_name(annotation: Any) -> str:
    """An annotation in a reader's words."""
    if get_origin(annotation) in (Union, types.UnionType):
        return " or ".join(type_name(part) for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is not None and str(get_origin(annotation)).endswith("Literal"):
        return " or ".join(f"`{value}`" for value in get_args(annotation))
    if isinstance(annotation, type) and hasattr(annotation, "__members__"):
        return " or ".join(f"`{member.value}`" for member in annotation)
    if nested(annotation):
        return "mapping"
    return {"str": "text", "int": "number", "float": "number", "bool": "true or false"}.get(
        getattr(annotation, "__name__", ""), "list" if "tuple" in str(annotation) else "mapping"
    )


def rows(cls: type[Settings], prefix: str = "") -> list[str]:
    """Table rows of a class and what it contains."""
    lines = []
    for name, field in cls.model_fields.items():
        default = "required" if field.is_required() else "-"
        if not field.is_required() and field.default is not PydanticUndefined and field.default is not None:
            default = f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
        inner = nested(field.annotation)
        lines.append(f"| `{prefix}{name}` | {type_name(field.annotation)} | {default} | {field.description} |")
        for sub in inner:
            star = ".*" if "dict" in str(field.annotation) else ""
            lines += rows(sub, f"{prefix}{name}{star}.")
    return lines


def page() -> str:
    """The whole page."""
    parts = ["# Settings\n\nMade by `scripts/settings_page.py` from `serve_app/settings/`. Unknown keys are refused.\n"]
    for title, cls in ROOTS.items():
        head = f"## {title}\n\n| option | value | default | meaning |\n| --- | --- | --- | --- |\n"
        parts.append(head + "\n".join(rows(cls)) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(
            0 if PAGE.read_text() == page() else "docs/settings.md is out of date: python scripts/settings_page.py"
        )
    PAGE.write_text(page())
