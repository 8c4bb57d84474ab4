"""The run of `split`: one large request at a time, with the engine once and several times.

The engine is a stand-in that takes a set time per token, so that what is measured is the way: how the parts are spread,
and what the path costs besides. All sides are up at the same time and take turns.
"""

from __future__ import annotations

import datetime
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from benchmarks import environment, results_files
from benchmarks.pages import listed, machine, table
from benchmarks.processes import Server
from benchmarks.wire import server_timing

URL = "http://127.0.0.1:8032"


@dataclass(frozen=True, slots=True)
class SplitOptions:
    """What the command line says."""

    name: str
    results_dir: Path
    logs_dir: Path
    documents: int
    words: int
    replicas: Sequence[int]
    tokens_per_s: float
    rounds: int
    warmup: int
    start_limit_s: float
    command: Sequence[str]
    commit: str | None = None


def configuration(options: SplitOptions) -> dict[str, Any]:
    """The default configuration's gateway and reranker, the latter once per number of replicas."""
    config: dict[str, Any] = yaml.safe_load((environment.REPOSITORY / "serve_config.yaml").read_text())
    config["http_options"]["port"] = int(URL.rpartition(":")[2])
    by_name = {application["name"]: application for application in config["applications"]}
    gateway, ranker = by_name["gateway"], by_name["ce-mini-1"]
    routes = {}
    config["applications"] = [gateway]
    for count in options.replicas:
        name = f"replicas-{count}"
        args = {
            **ranker["args"],
            "name": name,
            "engine": {"kind": "fake", "fake_tokens_per_s": options.tokens_per_s},
            "pooling_engine": {"num_replicas": count, "num_cpus": 0.05},
        }
        config["applications"].append({**ranker, "name": f"{name}-1", "args": args})
        routes[name] = {"versions": {"1": {"application": f"{name}-1", "task": "rerank"}}}
    gateway["deployments"][0]["user_config"]["models"] = routes
    return config


def run(options: SplitOptions) -> int:
    """Starts the server, takes turns, writes and prints the result."""
    hardware, code = environment.hardware(), environment.commit(options.commit)
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        path = Path(scratch) / "split.yaml"
        path.write_text(yaml.safe_dump(configuration(options), sort_keys=False))
        log = options.logs_dir / "poolserve.log"
        server = Server(
            "poolserve",
            [sys.executable, "-m", "serve_app", "up", str(path)],
            f"{URL}/ready",
            {},
            log,
            stop_signal=signal.SIGINT,
            start_limit_s=options.start_limit_s,
        )
        with server, httpx.Client(base_url=URL, timeout=120) as client:
            turns = _turns(client, options)
    sides = {str(count): _summary(turns[count], turns[options.replicas[0]]) for count in options.replicas}
    result = {
        "name": options.name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": environment.command_line(options.command),
        "documents": options.documents,
        "tokens_per_s": options.tokens_per_s,
        "rounds": options.rounds,
        "tokens": turns[options.replicas[0]][0]["tokens"],
        "sides": sides,
        "hardware": hardware,
        "code": code,
        "versions": environment.versions(),
    }
    text = "\n".join(page(result)) + "\n"
    results_files.write(result, text, options.results_dir)
    print(text)
    return 0


def _turns(client: httpx.Client, options: SplitOptions) -> dict[int, list[dict[str, float]]]:
    words = random.Random(0)
    turns: dict[int, list[dict[str, float]]] = {count: [] for count in options.replicas}
    for number in range(-options.warmup, options.rounds):
        documents = [" ".join(_word(words) for _ in range(options.words)) for _ in range(options.documents)]
        for count in options.replicas if number % 2 == 0 else reversed(options.replicas):
            body = {"model": f"replicas-{count}", "query": "boots for winter", "documents": documents}
            began = time.perf_counter()
            answer = client.post("/v1/rerank", json=body)
            seconds = time.perf_counter() - began
            answer.raise_for_status()
            if number >= 0:
                stages = server_timing(answer.headers["server-timing"])
                tokens = answer.json()["usage"]["total_tokens"]
                turns[count].append({"client": 1e3 * seconds, "tokens": tokens, **stages})
    return turns


def _word(words: random.Random) -> str:
    return words.choice(("boots", "winter", "warm", "shoes", "red", "parcel", "light", "jacket", "order", "road"))


def _summary(turns: Sequence[Mapping[str, float]], baseline: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Medians in milliseconds, and of the ratios within a round."""
    stages = {key: statistics.median(turn[key] for turn in turns) for key in turns[0] if key != "tokens"}
    ratios = sorted(turn["client"] / base["client"] for turn, base in zip(turns, baseline, strict=True))
    return {**stages, "ratio": statistics.median(ratios), "ratio_low": ratios[0], "ratio_high": ratios[-1]}


def page(result: Mapping[str, Any]) -> Iterator[str]:
    """The Markdown page."""
    yield f"# {result['name']}, {result['date']}"
    yield ""
    yield (
        f"One request at a time of {result['documents']} documents, {result['tokens']:,.0f} tokens, over HTTP; engines "
        f"are stand-ins that take {result['tokens_per_s']:,.0f} tokens/s each. Medians of {result['rounds']} rounds in "
        "alternating order, warm-up excluded; ratios within a round, smallest and largest in brackets."
    )
    yield ""
    columns = ["client", "tokenize", "queue", "engine", "post", "total"]
    header = ["engine replicas", *(f"{column} ms" for column in columns), "client ÷ first"]
    rows = [
        [
            count,
            *(f"{side.get(column, 0):,.0f}" for column in columns),
            f"{side['ratio']:.2f} ({side['ratio_low']:.2f}-{side['ratio_high']:.2f})",
        ]
        for count, side in result["sides"].items()
    ]
    yield from table(header, rows)
    yield ""
    yield "## Conditions"
    yield ""
    yield from machine(result)
    yield f"* load before the run: {result['hardware']['load_before']}"
    yield f"* versions: {listed(result['versions'])}"
    yield f"* started by: `{' '.join(result['command'])}`"
