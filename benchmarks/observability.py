"""What it costs to see: latency with and without metrics, access log and traces, and a scrape of many replicas.

Each process of `observability_worker` is a gateway with one variant's settings and a fake engine, so that the gateway's
own work is all there is. A variant has several processes, equal but for chance: what they differ by is the noise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import environment, results_files
from benchmarks.observability_worker import Took, Turn, work
from benchmarks.pages import machine, table
from benchmarks.scrape import scrape_costs
from benchmarks.stats import quantile

BASELINE = "off"
VARIANTS: dict[str, dict[str, Any]] = {
    BASELINE: {"metrics": {"enabled": False}, "access_log": {"enabled": False}},
    "metrics": {"access_log": {"enabled": False}},
    "metrics, access log": {},
    "metrics, access log, 1 % traces": {"tracing": {"sample_ratio": 0.01}},
}
LOADS = {
    "open": "requests at random times, on average at {load:.0%} of what the process can do",
    "closed": "{concurrency} in flight without a pause: the process's one core is always busy, so a request waits for "
    "the work of the others, and its latency grows by {concurrency} times what is added to each",
}
Process = dict[str, list[dict[str, Any]]]
"""The turns of one process by load, as `Took`."""


def observability(a: argparse.Namespace, command: Sequence[str]) -> int:
    """Runs both parts and writes the result."""
    hardware = environment.hardware()
    rate, processes = _latencies(a)
    result = {
        **environment.conditions(a.name, command, a.commit, hardware),
        "settings": {
            "requests": a.requests,
            "concurrency": a.concurrency,
            "rounds": a.rounds,
            "processes": a.processes,
            "load": a.load,
            "rate": rate,
            "engine_ms": a.engine_ms,
        },
        "processes": processes,
        "scrape": scrape_costs(a.replicas),
    }
    text = page(result)
    print(text)
    for path in results_files.write(result, text, a.results_dir):
        print(path)
    return 0


def _latencies(a: argparse.Namespace) -> tuple[float, dict[str, list[Process]]]:
    """The open loop's requests/s, and every variant's processes with their turns.

    Rounds of many short turns, one process at a time, in an order that rotates: a busy machine is busy for all of them.
    """
    with ExitStack() as stack:
        endpoint = stack.enter_context(otlp_receiver())
        pipes = {
            (name, copy): stack.enter_context(_process(changes, endpoint, a.engine_ms))
            for copy in range(a.processes)
            for name, changes in VARIANTS.items()
        }
        for pipe in pipes.values():
            _turn(pipe, Turn(2 * a.requests, a.concurrency))  # warm-up, thrown away
        capacity = [_turn(pipe, Turn(a.requests, a.concurrency)) for pipe in pipes.values()]
        rate = a.load * quantile([a.requests / took.wall_s for took in capacity], 0.5)
        turns: dict[tuple[str, int], Process] = {key: {load: [] for load in LOADS} for key in pipes}
        keys = list(pipes)
        for number in range(a.rounds):
            start = number * (len(VARIANTS) + 1) % len(keys)  # not always the same one behind the same one's turn
            for key in keys[start:] + keys[:start]:
                asked = {
                    "open": Turn(a.requests, a.concurrency, rate, seed=number),
                    "closed": Turn(a.requests, a.concurrency),
                }
                for load, turn in asked.items():
                    turns[key][load].append(asdict(_turn(pipes[key], turn)))
    return rate, {name: [of for (of_name, _), of in turns.items() if of_name == name] for name in VARIANTS}


@contextmanager
def _process(changes: dict[str, Any], endpoint: str, engine_ms: float) -> Iterator[Connection]:
    if "tracing" in changes:
        changes = changes | {"tracing": {"endpoint": endpoint, **changes["tracing"]}}
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, changes, engine_ms), daemon=True)
    process.start()
    theirs.close()  # so that its end is noticed
    try:
        assert ours.recv() == "ready"
        yield ours
        ours.send(None)
        process.join(10)
    finally:
        process.kill()


def _turn(pipe: Connection, turn: Turn) -> Took:
    pipe.send(turn)
    took: Took = pipe.recv()
    return took


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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def p95(process: Process, load: str) -> float:
    """Milliseconds, over all of a process's requests under that load."""
    return quantile([ms for turn in process[load] for ms in turn["milliseconds"]], 0.95)


def noise(processes: Mapping[str, Sequence[Process]], load: str) -> float:
    """Milliseconds by which p95 differs at most between two processes of a variant: from run to run."""
    values = [[p95(process, load) for process in of] for of in processes.values()]
    return max(max(of) - min(of) for of in values)


def added(processes: Mapping[str, Sequence[Process]], load: str) -> dict[str, float]:
    """Milliseconds of p95 that each variant has above `off`, medians of their processes."""
    medians = {name: quantile([p95(process, load) for process in of], 0.5) for name, of in processes.items()}
    return {name: median - medians[BASELINE] for name, median in medians.items()}


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    processes, scrape, settings = result["processes"], result["scrape"], result["settings"]
    lines = [
        f"# {result['name']}",
        "",
        f"20 documents a request, a fake engine of {settings['engine_ms']:g} ms; gateway, tokenizing and load "
        f"generator are one process. {settings['processes']} processes a variant, {settings['rounds']} rounds in which "
        f"each takes a turn of {settings['requests']} requests of each load. Quantiles over all requests of a process, "
        "CPU time of the process per request, median of its turns; given are medians of a variant's processes, and "
        "their range.",
    ]
    for load, words in LOADS.items():
        lines += ["", f"## {load.capitalize()} loop", "", *_load(processes, load, words.format(**settings), settings)]
    lines += ["", *_scrape(scrape), "", *machine(result)]
    return "\n".join(lines) + "\n"


def _load(processes: Mapping[str, Sequence[Process]], load: str, words: str, settings: Mapping[str, Any]) -> list[str]:
    more, most = added(processes, load), noise(processes, load)
    cpu = {
        name: [quantile([turn["cpu_ms"] for turn in process[load]], 0.5) for process in of]
        for name, of in processes.items()
    }
    rows = []
    for name, of in processes.items():
        p50s = [quantile([ms for turn in process[load] for ms in turn["milliseconds"]], 0.5) for process in of]
        p95s = [p95(process, load) for process in of]
        rows.append(
            [
                name,
                f"{quantile(p50s, 0.5):.2f}",
                f"{quantile(p95s, 0.5):.2f} ({min(p95s):.2f}-{max(p95s):.2f})",
                f"{more[name]:+.2f}",
                f"{quantile(cpu[name], 0.5):.3f} ({min(cpu[name]):.3f}-{max(cpu[name]):.3f})",
                f"{quantile(cpu[name], 0.5) - quantile(cpu[BASELINE], 0.5):+.3f}",
            ]
        )
    rate = f", {settings['rate']:.0f} requests/s" if load == "open" else ""
    verdict = "within" if max(map(abs, more.values())) < most else "above"
    return [
        f"{words[0].upper()}{words[1:]}{rate}.",
        "",
        *table(["", "p50 ms", "p95 ms (processes)", "against off", "CPU ms (processes)", "against off"], rows),
        "",
        f"Two processes of a variant differ by up to {most:.2f} ms of p95: what is added is {verdict} that.",
    ]


def _scrape(scrape: Mapping[str, float]) -> list[str]:
    return [
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
    ]
