"""The guide of docs/plugins.md, followed to the letter: its files, its command, its blocks, its request."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from serve_app.check import check_file
from serve_app.engine.fake_engine import FakeEngine
from serve_app.frontend import Frontend
from serve_app.messages import EngineBatch, EngineOutput
from serve_app.pipeline import Pipeline
from serve_app.plugin_host.host import plugin_host
from serve_app.settings import GatewaySettings, ModelSettings, RoutingSettings
from serve_app.tasks.model import load_text_model
from tests.app.conftest import LocalBackend
from tests.cluster import ROOT, default_config

GUIDE = (ROOT / "docs" / "plugins.md").read_text().partition("## Add your model")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", GUIDE, re.DOTALL)
FILES = dict(re.findall(r"`(shop_intents/[\w.]+)`:\n\n```\w+\n(.*?)```", GUIDE, re.DOTALL))


def blocks(kind: str) -> list[str]:
    """The guide's code blocks of a kind, in order."""
    return [text for name, text in BLOCKS if name == kind]


@dataclass
class Followed:
    """The guide's folder, installed, and its configuration."""

    config: dict[str, Any]
    path: Path
    body: dict[str, Any]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder, site = tmp_path_factory.mktemp("guide"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    install, ask = blocks("bash")
    command = shlex.split(install)
    assert command[:2] == ["pip", "install"]
    # The tests' own environment stays as it is; nothing may be downloaded.
    command = [sys.executable, "-m", *command[:2], "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*command, *shlex.split(install)[2:]], cwd=folder, check=True)
    application, route = (yaml.safe_load(text) for text in blocks("yaml"))
    config = default_config()
    config["applications"] += application
    config["applications"][0]["deployments"][0]["user_config"]["models"] |= route
    path = folder / "serve_config.yaml"
    path.write_text(yaml.safe_dump(config))
    sys.path.insert(0, str(site))
    yield Followed(config, path, json.loads(re.search(r"-d '(.*)'", ask, re.DOTALL)[1]))
    sys.path.remove(str(site))


def test_the_guide_has_the_files_and_blocks_that_it_speaks_of() -> None:
    assert set(FILES) == {"shop_intents/pyproject.toml", "shop_intents/__init__.py", "shop_intents/processor.py"}
    assert len(blocks("yaml")) == 2


def test_the_configuration_passes_the_check(followed: Followed) -> None:
    report = check_file(followed.path)
    assert [str(problem) for problem in report.problems] == []
    assert report.models["shop-intents-1"].io_processor_plugin == "shop_intents"


class Sure(FakeEngine):
    """An engine that is sure of the first of two texts only; probabilities, as vLLM's pooler gives them."""

    async def run(self, batch: EngineBatch, loaded: Any = None) -> EngineOutput:
        assert batch.params == {"task": "classify"}
        labels = self.width
        values = np.concatenate([np.eye(labels)[2] * 0.95, np.full(labels, 1 / labels)]).astype(np.float32)
        return EngineOutput(values, 0.0, 0.0, [(labels,), (labels,)])


async def test_the_request_gives_an_answer_of_the_documented_shape(followed: Followed) -> None:
    settings = ModelSettings.model_validate(followed.config["applications"][-1]["args"])
    model = load_text_model(settings)
    engine = Sure(settings, width=len(model.checkpoint.labels))
    with ThreadPoolExecutor(1) as executor:
        backend = LocalBackend({settings.application: Pipeline(model, engine, executor, plugin=plugin_host(model))})
        frontend = Frontend(GatewaySettings(), backend)
        user_config = followed.config["applications"][0]["deployments"][0]["user_config"]
        frontend.reconfigure(RoutingSettings.model_validate(user_config))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(frontend.app()), base_url="http://app") as client:
            response = await client.post("/pooling", json=followed.body)
            wrong = await client.post("/pooling", json={**followed.body, "data": {"texts": 3}})
    assert response.status_code == 200
    documented = json.loads(blocks("json")[0])
    body = response.json()
    assert set(body) == set(documented)
    assert (body["model"], body["model_version"]) == (documented["model"], documented["model_version"])
    assert [set(item) for item in body["data"]] == [set(item) for item in documented["data"]]
    assert body["data"][0]["intent"] == model.checkpoint.labels[2]
    assert body["data"][0]["score"] == pytest.approx(0.95)
    assert body["data"][1]["intent"] == "unsure"
    assert wrong.status_code == 400
    assert wrong.json()["error"]["message"] == "data: texts: must be a list of strings"
