"""What it costs to see: latency with and without metrics, access log and traces, and a scrape of many replicas.

Everything in one process, engines are fakes: the gateway's own work is all there is, so that a difference would show.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx

from benchmarks import environment, results_files
from benchmarks.pages import machine, table
from benchmarks.scrape import scrape_costs
from benchmarks.stats import quantile
from serve_app.checkpoint import read_checkpoint
from serve_app.engine.fake_engine import FakeEngine
from serve_app.frontend import Frontend
from serve_app.messages import Context, PipelineRequest, PipelineResult
from serve_app.observability.collector import Collector, Reporter
from serve_app.observability.registry import Registry
from serve_app.observability.reporter import ReportingThread
from serve_app.observability.request import Observer, make_observer
from serve_app.pipeline import Pipeline, canary_request
from serve_app.routing import Target
from serve_app.settings import GatewayObservabilitySettings, GatewaySettings, ModelSettings, RoutingSettings
from serve_app.startup import freeze
from serve_app.tasks.model import TextModel
from serve_app.tokenization import TextTokenizer

Turn = dict[str, Any]
"""milliseconds of its requests; cpu_ms: the process's per request."""
BASELINE, AGAIN = "off", "off again"
VARIANTS: dict[str, dict[str, Any]] = {
    BASELINE: {"metrics": {"enabled": False}, "access_log": {"enabled": False}},
    AGAIN: {"metrics": {"enabled": False}, "access_log": {"enabled": False}},
    "metrics": {"access_log": {"enabled": False}},
    "metrics, access log": {},
    "metrics, access log, 1 % traces": {"tracing": {"sample_ratio": 0.01}},
}
"""`off again` is the same as `off`: what both differ by is the noise."""
MODEL = environment.REPOSITORY / "model_zoo" / "ce-mini"
BODY = {"model": "ce-mini", "query": "winter boots", "documents": ["warm waterproof boots for winter walks"] * 20}


@dataclass
class LocalBackend:
    """A pipeline in this process."""

    pipeline: Pipeline

    async def run(self, target: Target, context: Context, request: PipelineRequest) -> PipelineResult:
        return await self.pipeline.run(context, request)

    async def canary(self, target: Target, deadline: float) -> None:
        await self.pipeline.run(Context("canary", deadline), canary_request(target.task))


def observability(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs both parts and writes the result."""
    hardware = environment.hardware()
    turns = asyncio.run(_latencies(a))
    scrape = scrape_costs(a.replicas)
    result = {
        **environment.conditions(a.name, command, a.commit, hardware),
        "settings": {
            "requests": a.requests,
            "concurrency": a.concurrency,
            "rounds": a.rounds,
            "engine_ms": a.engine_ms,
        },
        "turns": turns,
        "scrape": scrape,
    }
    text = page(result)
    print(text)
    for path in results_files.write(result, text, a.results_dir):
        print(path)
    return 0


async def _latencies(a: argparse.Namespace) -> dict[str, list[Turn]]:
    """Every variant's turns, in alternating rounds. Many short ones: a busy machine is busy for all variants then."""
    turns: dict[str, list[Turn]] = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder, otlp_receiver() as endpoint, ThreadPoolExecutor(1) as executor:
        backend = LocalBackend(_pipeline(executor, a.engine_ms / 1e3))
        clients: dict[str, httpx.AsyncClient] = {}
        ends: list[Callable[[], None]] = []
        for name, changes in VARIANTS.items():
            frontend, end = _frontend(backend, changes, endpoint, Path(folder))
            ends.append(end)
            clients[name] = httpx.AsyncClient(transport=httpx.ASGITransport(frontend.app()), base_url="http://app")
        for client in clients.values():
            await _turn(client, 2 * a.requests, a.concurrency)
        freeze()  # as every deployment does
        names = list(VARIANTS)
        for number in range(a.rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                turns[name].append(await _turn(clients[name], a.requests, a.concurrency))
        for client in clients.values():
            await client.aclose()
        for end in ends:
            end()
    return turns


def _pipeline(executor: ThreadPoolExecutor, delay_s: float) -> Pipeline:
    settings = ModelSettings.model_validate(
        {"name": "ce-mini", "version": "1", "source": str(MODEL), "task": "rerank", "device": "cpu", "dtype": "float32"}
        | {"max_model_len": 512, "max_num_seqs": 128, "max_num_batched_tokens": 4096}
    )
    model = TextModel.of(settings, read_checkpoint(MODEL, settings), TextTokenizer(MODEL))
    return Pipeline(model, FakeEngine(settings, delay_s=delay_s), executor)


def _frontend(
    backend: LocalBackend, changes: dict[str, Any], endpoint: str, folder: Path
) -> tuple[Frontend, Callable[[], None]]:
    if "tracing" in changes:
        changes = changes | {"tracing": {"endpoint": endpoint, **changes["tracing"]}}
    settings = GatewayObservabilitySettings.model_validate(changes)
    registry = Registry()
    observer: Observer = make_observer(settings, registry, f"bench{id(registry)}", folder)
    frontend = Frontend(GatewaySettings(observability=settings), backend, observer=observer)
    route = {"versions": {"1": {"application": "ce-mini-1", "task": "rerank"}}}
    frontend.reconfigure(RoutingSettings.model_validate({"models": {"ce-mini": route}}))
    if not settings.metrics.enabled:
        return frontend, observer.close
    collector = Collector()
    reporter = Reporter("Gateway", "", "", "bench", time.time())
    thread = ReportingThread(registry, reporter, collector.push, settings.metrics.interval_s)
    thread.start()

    def end() -> None:
        thread.stop()
        observer.close()

    return frontend, end


async def _turn(client: httpx.AsyncClient, requests: int, concurrency: int) -> Turn:
    """A closed loop."""
    left = iter(range(requests))
    milliseconds: list[float] = []
    cpu = time.process_time()

    async def one() -> None:
        for _ in left:
            started = time.perf_counter()
            response = await client.post("/v1/rerank", json=BODY)
            milliseconds.append(1e3 * (time.perf_counter() - started))
            response.raise_for_status()

    await asyncio.gather(*(one() for _ in range(concurrency)))
    return {"milliseconds": milliseconds, "cpu_ms": 1e3 * (time.process_time() - cpu) / requests}


@contextmanager
def otlp_receiver() -> Iterator[str]:
    """The URL of something that takes spans."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def _quantile(turns: Sequence[Turn], q: float) -> float:
    return quantile([ms for turn in turns for ms in turn["milliseconds"]], q)


def noise(turns: dict[str, list[Turn]]) -> float:
    """Milliseconds by which p95 differs at most between a variant's even and odd rounds."""
    return max(abs(_quantile(of[::2], 0.95) - _quantile(of[1::2] or of, 0.95)) for of in turns.values())


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    turns, scrape, settings = result["turns"], result["scrape"], result["settings"]
    p95 = {name: _quantile(of, 0.95) for name, of in turns.items()}
    cpu = {name: quantile([turn["cpu_ms"] for turn in of], 0.5) for name, of in turns.items()}
    rows = [
        [
            name,
            f"{_quantile(of, 0.5):.2f}",
            f"{p95[name]:.2f}",
            f"{p95[name] - p95[BASELINE]:+.2f}",
            f"{cpu[name]:.3f}",
            f"{cpu[name] - cpu[BASELINE]:+.3f}",
        ]
        for name, of in turns.items()
    ]
    lines = [
        f"# {result['name']}",
        "",
        f"20 documents a request, {settings['concurrency']} in flight, a fake engine of {settings['engine_ms']:g} ms, "
        f"all in one process. {settings['rounds']} alternating rounds of {settings['requests']} requests, quantiles "
        "over all of a variant's requests; CPU time is the process's, load generator included, median of the rounds. "
        f"`{AGAIN}` is `{BASELINE}` once more: what both differ by is noise. Between a variant's even and odd rounds "
        f"p95 differs by up to {noise(turns):.2f} ms: that is the run-to-run noise.",
        "",
        *table(["", "p50 ms", "p95 ms", "p95 against off", "CPU ms a request", "against off"], rows),
        "",
        f"## A page of {scrape['replicas']:.0f} engine replicas",
        "",
        *table(
            ["", ""],
            [
                ["series of a replica", f"{scrape['series']:.0f}"],
                ["a replica's snapshot, once a second", f"{scrape['snapshot_ms']:.2f} ms of one of its threads"],
                [
                    "its report",
                    f"{scrape['report_bytes'] / 1e3:.1f} kB (the first {scrape['first_report_bytes'] / 1e3:.0f})",
                ],
                [
                    "the collector takes a report in",
                    f"{scrape['report_ms']:.3f} ms (the first {scrape['first_report_ms']:.1f})",
                ],
                ["the page, at most once a second", f"{scrape['page_ms']:.0f} ms, {scrape['page_bytes'] / 1e6:.2f} MB"],
                [
                    "a node agent's page, filtered",
                    f"{scrape['node_agent_page_ms']:.1f} ms for {scrape['node_agent_page_bytes'] / 1e6:.2f} MB",
                ],
            ],
        ),
        "",
        *machine(result),
    ]
    return "\n".join(lines) + "\n"
