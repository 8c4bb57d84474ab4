"""The whole application in one process: front end, pipelines, fake engines; the wiring of Ray Serve left out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from serve_app.engine.fake_engine import FakeEngine
from serve_app.errors import ModelUnavailable
from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.pipeline import Pipeline, canary_request
from serve_app.routing import Target
from serve_app.settings import GatewaySettings, RoutingSettings
from tests.absa_cases import LABELS, SENTIMENT
from tests.checkpoints import Checkpoints
from tests.parity import images
from tests.unit.models import text_model


@dataclass
class LocalBackend:
    """Pipelines in this process, by application name."""

    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    calls: list[tuple[Context, PipelineRequest]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    """Raised by the next calls, first one first."""

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        self.calls.append((context, request))
        if self.failures:
            raise self.failures.pop(0)
        if target.application not in self.pipelines:
            raise ModelUnavailable("the model's application is not running")
        return await self.pipelines[target.application].run(context, request)

    async def canary(self, target: Target, deadline: float) -> None:
        await self.run(target, Context("canary", deadline), canary_request(target.task))


@dataclass
class App:
    """What a test needs to see."""

    client: httpx.AsyncClient
    frontend: Frontend
    backend: LocalBackend
    engines: dict[str, FakeEngine]
    loader: images.DecodingLoader

    async def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """POST as JSON; header names with underscores for dashes."""
        return await self.client.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


def large_vectors(app: App) -> None:
    """From now on the first component of every vector of `emb` is 100,000."""
    engine = app.engines["emb"]
    run = engine.run

    async def large(*arguments: Any) -> Any:
        output = await run(*arguments)
        output.values[:, 0] = 1e5
        return output

    engine.run = large  # type: ignore[method-assign]


SETTINGS = {"max_documents": 50, "max_documents_in_flight": 60, "max_body_mib": 1, "default_timeout_ms": 5_000}
TASKS = {
    "ce": ("bert", 1, "rerank"),
    "emb": ("bert", 0, "embed"),
    "clf": ("roberta", 3, "classify"),
    "clip": ("clip", 0, "embed"),
    "siglip": ("siglip", 0, "embed"),
    "fusion": ("fusion", 1, "image_rank"),
    "absa": ("absa", 9, "absa"),
}
FUSION = Path(__file__).parents[2] / "model_zoo" / "fusion-mini"


@pytest.fixture(scope="session")
def image_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random dual encoders, and the model zoo's fusion ranker."""
    made = {kind: getattr(images, kind)(tmp_path_factory.mktemp(kind)) for kind in ("clip", "siglip")}
    return made | {"fusion": FUSION}


@pytest.fixture(scope="session")
def absa_checkpoint(checkpoints: Checkpoints) -> Path:
    """A random model with two heads."""
    return checkpoints.two_heads(LABELS, SENTIMENT)


@pytest.fixture
async def app(
    checkpoints: Checkpoints,
    image_checkpoints: dict[str, Path],
    absa_checkpoint: Path,
    request: pytest.FixtureRequest,
) -> AsyncIterator[App]:
    """Models ce (rerank), emb (embed), clf (classify), clip and siglip (embed), fusion (image_rank) and absa (absa),
    version 1 each.

    `request.param` changes the settings.
    """
    backend, engines, loader = LocalBackend(), {}, images.DecodingLoader()
    with ThreadPoolExecutor(1) as executor:
        for name, (kind, labels, task) in TASKS.items():
            if kind in image_checkpoints:
                model = text_model(image_checkpoints[kind], task, name=name, max_model_len=16)
            elif kind == "absa":
                model = text_model(absa_checkpoint, task, name=name)
            else:
                model = text_model(getattr(checkpoints, kind)(labels), task, name=name)
            engines[name] = FakeEngine(model.settings, width=labels)
            backend.pipelines[f"{name}-1"] = Pipeline(model, engines[name], executor, loader)
        settings = GatewaySettings.model_validate(SETTINGS | getattr(request, "param", {}))
        frontend = Frontend(settings, backend)
        frontend.reconfigure(
            RoutingSettings.model_validate(
                {
                    "models": {
                        name: {"versions": {"1": {"application": f"{name}-1", "task": task}}}
                        for name, (_, _, task) in TASKS.items()
                    }
                }
            )
        )
        transport = httpx.ASGITransport(frontend.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            await client.get("/ready")  # no canary may run beside a test
            backend.calls.clear()
            yield App(client, frontend, backend, engines, loader)
