"""Configuration files and files of inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve_app.settings import ModelSettings
from serve_app.verify import cli
from tests.unit.models import settings_for
from tests.unit.verify.stand_in import serving


class Verify:
    """Runs the command on a model and lines of inputs.

    Attributes:
        folder: where its files lie.
        result: what the last run wrote with --json.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.result: dict[str, Any] = {}

    def config(self, *models: ModelSettings) -> Path:
        """A configuration file with these models."""
        path = self.folder / "config.yaml"
        applications = [
            {
                "name": model.application,
                "route_prefix": None,
                "import_path": "serve_app.app:model",
                "args": model.model_dump(mode="json", exclude_defaults=True),
            }
            for model in models
        ]
        path.write_text(yaml.safe_dump({"applications": applications}))
        return path

    def inputs(self, lines: list[dict[str, Any]]) -> Path:
        """A file of inputs."""
        path = self.folder / "inputs.jsonl"
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        return path

    def __call__(
        self,
        checkpoint: Path,
        task: str,
        lines: list[dict[str, Any]],
        *options: str,
        start: Callable[..., Any] | None = None,
        **settings: Any,
    ) -> int:
        """The exit code."""
        config = self.config(settings_for(checkpoint, task, **{"max_model_len": 512, **settings}))
        out = self.folder / "out.json"
        out.unlink(missing_ok=True)
        arguments = [str(config), "tiny", str(self.inputs(lines)), "--json", str(out), *options]
        code = cli.main(arguments, start or serving())
        self.result = json.loads(out.read_text()) if out.exists() else {}
        return code

    def limit(self, name: str) -> dict[str, Any]:
        """One limit of the last run."""
        return next(limit for limit in self.result["limits"] if limit["name"] == name)


@pytest.fixture
def verify(tmp_path: Path) -> Verify:
    return Verify(tmp_path)
