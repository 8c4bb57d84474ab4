"""Who may import what: Ray only in deployments and the builder, vLLM only in the adapter."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RAY = {"serve_app/app.py"}
VLLM = {"serve_app/engine/vllm_engine.py", "serve_app/plugin_host/vllm_side.py"}
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "serve_app").rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Top-level packages that a module imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("module", MODULES)
def test_moving_parts_stay_behind_their_adapters(module: str) -> None:
    imports = _imports(ROOT / module)
    assert "ray" not in imports or module in RAY
    assert "vllm" not in imports or module in VLLM or "vllm_plugin" in module
    assert "deployments" not in imports or module in RAY


def test_the_vocabulary_imports_nothing_of_ours() -> None:
    assert "serve_app" not in _imports(ROOT / "serve_app" / "vocabulary.py")
    assert set(MODULES) > RAY
    assert set(MODULES) > VLLM
