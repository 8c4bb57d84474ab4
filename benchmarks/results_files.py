"""Result files: a JSON file with everything in it, and the Markdown page next to it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any


def write(result: dict[str, Any], text: str, folder: Path) -> tuple[Path, Path]:
    """Write `<date>-<name>.json` and `.md`; a number is added rather than an older result overwritten."""
    return write_at(free_path(result["name"], result["date"], folder), result, text)


def free_path(name: str, date: str, folder: Path) -> Path:
    """The JSON file of a new result, which does not exist yet."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{date[:10]}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}"
    number = 1
    while (data := folder / f"{stem}{f'-{number}' if number > 1 else ''}.json").exists():
        number += 1
    return data


def write_at(data: Path, result: dict[str, Any], text: str) -> tuple[Path, Path]:
    """Write or rewrite a result at a path of `free_path`. Never half: a run that is killed leaves whole files."""
    page = data.with_suffix(".md")
    content = {data: json.dumps(_finite(result), indent=1, ensure_ascii=False) + "\n", page: text}
    for path, written in content.items():
        replace(path, written)
    return data, page


def replace(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text)
    beside.replace(path)


def _finite(value: Any) -> Any:
    """NaN and infinity as null: JSON has no words for them."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
