"""`up` when something is wrong: it says what, and leaves nothing behind."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from serve_app.up import bring_up, port_owner
from tests.checkpoints import Checkpoints
from tests.cluster import default_config, running


def test_an_application_that_cannot_start_ends_the_start_with_its_reason(
    checkpoints: Checkpoints, tmp_path: Path
) -> None:
    config = default_config()
    del config["controller_options"]  # a machine has room for one HAProxy of Ray Serve, and it may be in use
    config["applications"] = config["applications"][:2]
    models = config["applications"][0]["deployments"][0]["user_config"]["models"]
    models.clear()
    models["minilm"] = {"versions": {"1": {"application": "minilm-1", "task": "embed"}}}
    arguments = config["applications"][1]["args"]
    arguments["engine"] = {"kind": "fake"}
    folder = tmp_path / "broken"
    folder.mkdir()
    source = checkpoints.bert(0)
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "tokenizer.json").write_text("{}")  # what a check of the files' presence cannot see
    arguments["source"] = str(folder)
    with pytest.raises(AssertionError, match="minilm-1: DEPLOY_FAILED"), running(config, tmp_path, timeout=400):
        pass


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port_owner(port) is not None
        config = tmp_path / "config.yaml"
        config.write_text(f"http_options: {{port: {port}}}\napplications: []\n")
        assert bring_up(config, 1) == 1
    assert f"port {port} is taken" in capsys.readouterr().err
