"""`python -m cluster materialize` on configurations, and what it says of wrong calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.__main__ import main
from serve_app.check import check_file
from tests.checkpoints import Checkpoints
from tests.unit.models import settings_for


def _config(folder: Path, *args: dict[str, Any]) -> Path:
    applications = [
        {"name": f"{a['name']}-1", "route_prefix": None, "import_path": "serve_app.app:model", "args": a} for a in args
    ]
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"applications": applications}))
    return path


def _args(source: Path, name: str, **more: Any) -> dict[str, Any]:
    settings = settings_for(source, "rerank", name=name)
    return {**settings.model_dump(mode="json", exclude_defaults=True), **more}


def test_a_configuration_is_taken_whole(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, source = tmp_path / "models", checkpoints.bert(1)
    block = {"materialized": {"folder": str(root)}}
    root.mkdir()
    config = _config(tmp_path, _args(source, "a", **block), _args(source, "b", **block), _args(source, "c"))
    assert any("run `python -m cluster materialize`" in str(p) for p in check_file(config).problems)
    assert main(["materialize", str(config)]) == 0
    assert capsys.readouterr().out.count("fetched") == 1  # a and b share it; c does not ask for it
    assert check_file(config).problems == []
    assert main(["materialize", str(config), "--check", "sizes"]) == 0
    assert "verified" in capsys.readouterr().out
    assert main(["materialize", str(config), "--to", str(tmp_path / "elsewhere")]) == 1
    assert "engines would look in" in capsys.readouterr().err


def test_wrong_calls_say_what_is_wrong(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = _config(tmp_path, _args(checkpoints.bert(1), "a"))
    for arguments, message in (
        ([str(config)], "no model has `materialized`"),
        ([str(config), "--to", str(tmp_path), "--revision", "x"], "--revision: a configuration names its own"),
        (["org/model"], "--to FOLDER: required"),
        ([str(tmp_path / "none.yaml")], "cannot be read"),
        (["/nowhere/model", "--to", str(tmp_path)], "'/nowhere/model' does not exist"),
    ):
        assert main(["materialize", *arguments]) == 1, arguments
        assert message in capsys.readouterr().err


def test_an_application_with_a_wrong_field_is_not_left_out_silently(
    checkpoints: Checkpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = {"materialized": {"folder": str(tmp_path / "models")}}
    good, wrong = (_args(checkpoints.bert(1), name, **block) for name in ("a", "b"))
    config = _config(tmp_path, good, {**wrong, "max_sequences": 3})
    assert main(["materialize", str(config)]) == 1
    said = capsys.readouterr()
    assert said.err == "error: applications[1].args.max_sequences: unknown key\n"
    assert said.out.count("fetched") == 1  # what can be read is materialized
    assert main(["materialize", str(config)]) == 1
    for settings in ([good], [wrong]):  # what the check says of the folder's content is no reason
        assert main(["materialize", str(_config(tmp_path, *settings))]) == 0


def test_a_folder_that_is_on_other_machines_only_is_noted(checkpoints: Checkpoints, tmp_path: Path) -> None:
    config = _config(tmp_path, _args(checkpoints.bert(1), "a", materialized={"folder": "/nowhere/models"}))
    report = check_file(config)
    assert report.problems == []
    assert any("'/nowhere/models' is not on this machine" in note for note in report.notes)
