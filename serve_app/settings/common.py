"""What all settings share: their base, names of models and versions, and what is said of errors."""

from __future__ import annotations

import re

from pydantic import BaseModel, ConfigDict, ValidationError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,95}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}")
LATEST = "latest"
"""`name@latest`; no version can be called that."""


def complaints(error: ValidationError) -> str:
    """What is wrong with settings, in one line: each field's path and why."""
    parts = []
    for item in error.errors(include_url=False, include_input=False):
        path = ".".join(map(str, item["loc"]))
        message = "unknown key" if item["type"] == "extra_forbidden" else item["msg"].removeprefix("Value error, ")
        parts.append(f"{path}: {message}")
    return "; ".join(parts)[:1_000]


class Settings(BaseModel):
    """Base: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
