"""A baseline server that does everything in one process: `python -m benchmarks.one_process CONFIG.yaml`.

The same front end, pipelines and engines as Poolserve's, from the same configuration, but without Ray: requests are
parsed, images fetched and decoded, texts tokenized and engines fed by one process, with one thread pool of the size
that Python gives servers by default. What differs from Poolserve is where the work is done, and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from serve_app.check import check_file
from serve_app.engine.factory import engine_of
from serve_app.errors import ModelUnavailable
from serve_app.frontend import Frontend
from serve_app.media.fetch import Fetcher
from serve_app.media.loader import ImageLoader
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.pipeline import Pipeline, canary_request
from serve_app.routing import Target
from serve_app.settings import ImageLoaderSettings, ModelSettings
from serve_app.tasks.model import load_text_model


class Pipelines:
    """The models of this process, by application name, and the loader that they share."""

    def __init__(self) -> None:
        self.by_application: dict[str, Pipeline] = {}
        self.loader: ImageLoader | None = None

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        """See `frontend.Backend.run`."""
        if target.application not in self.by_application:
            raise ModelUnavailable("the model's application is not running")
        return await self.by_application[target.application].run(context, request)

    async def canary(self, target: Target, deadline: float) -> None:
        """See `frontend.Backend.canary`."""
        await self.run(target, Context("canary", deadline), canary_request(target.task))


async def start(
    models: Mapping[str, ModelSettings], images: ImageLoaderSettings, executor: ThreadPoolExecutor
) -> tuple[Pipelines, list[Any]]:
    """Starts all engines, one after the other: each measures what memory is free."""
    pipelines, engines = Pipelines(), []
    pipelines.loader = loader = ImageLoader(images, Fetcher(images), executor)
    for settings in models.values():
        model = load_text_model(settings)
        engine = engine_of(settings, model.checkpoint)
        await engine.start()
        engines.append(engine)
        pipelines.by_application[settings.application] = Pipeline(model, engine, executor, loader)
    return pipelines, engines


async def serve(config: Path, port: int) -> int:
    """Serves a configuration until SIGINT or SIGTERM; returns the exit code."""
    import uvicorn

    report = check_file(config)
    for problem in report.problems:
        print(f"error: {problem}", file=sys.stderr)
    if report.problems or report.gateway is None or report.routing is None:
        return 1
    images = next(iter(report.loaders.values()), ImageLoaderSettings())
    threads = min(32, (os.cpu_count() or 1) + 4)
    with ThreadPoolExecutor(threads, "work") as executor:
        pipelines, engines = await start(report.models, images, executor)
        frontend = Frontend(report.gateway, pipelines)
        frontend.reconfigure(report.routing)
        print(f"ready to serve {', '.join(pipelines.by_application)} at {time.strftime('%X')}", flush=True)
        server = uvicorn.Server(
            uvicorn.Config(frontend.app(), host="127.0.0.1", port=port, access_log=False, log_level="warning")
        )
        try:
            await server.serve()
        finally:
            for engine in engines:
                await engine.shutdown()
            if pipelines.loader is not None:
                await pipelines.loader.close()
    return 0


def main() -> int:
    """Command line."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.one_process", description=__doc__)
    p.add_argument("config", type=Path)
    p.add_argument("--port", type=int, default=8031)
    a = p.parse_args()
    return asyncio.run(serve(a.config, a.port))


if __name__ == "__main__":
    sys.exit(main())
