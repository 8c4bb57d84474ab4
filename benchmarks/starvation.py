"""`starvation`: does a flood of images slow the texts down? Poolserve beside a server that decodes in its own process.

Texts arrive at a steady rate the whole time (an open loop: a server that slows down gets no relief). After a while a
closed loop of image requests with new URLs starts beside them, and ends again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import charts, environment, results_files
from benchmarks.backends import Backend
from benchmarks.clients import ClientPool, Load, Turn
from benchmarks.corpus import Corpus
from benchmarks.gpu_busy import GpuBusy
from benchmarks.image_results import UNFINISHED, busy
from benchmarks.image_server import ImageServer, variety
from benchmarks.image_urls import ImageUrls
from benchmarks.load import Outcome
from benchmarks.pages import listed, machine, plain, table
from benchmarks.processes import ServerFailed
from benchmarks.stats import Spread, quantile, show, spread
from benchmarks.turns import alternating
from benchmarks.wire import body, dumps

PHASES = ("before", "flood", "after")
METHOD = (
    "Texts: {rate:g} requests/s at random times (Poisson), 1 query x {documents} documents, latency from when a "
    "request was due. Flood: {flood} requests in flight, {images} new image URLs each, {large_share:.0%} of about 12 "
    "megapixels. "
    "{before:g} s without, {flood_s:g} s with, {after:g} s without the flood; the first {settle:g} s of each are left "
    "out. Servers are up one at a time, in alternating order over {rounds} rounds; medians, smallest and largest in "
    "brackets."
)


@dataclass(frozen=True, slots=True)
class StarvationOptions:
    """Settings of a run.

    Attributes:
        backends: the servers; each answers `/rerank` for texts and images.
        text_model, image_model: names in requests.
        rate: text requests/s.
        documents: of a text request.
        flood: image requests in flight; images: of each.
        before, flood_s, after: seconds of the phases; settle: of each that are left out.
        bin_s: width of a point of the plot.
    """

    name: str
    backends: Sequence[Backend]
    text_model: str
    image_model: str
    words: Sequence[str]
    seed: str
    rate: float = 5.0
    documents: int = 20
    flood: int = 4
    images: int = 20
    large_share: float = 0.1
    before: float = 20.0
    flood_s: float = 30.0
    after: float = 15.0
    settle: float = 2.0
    bin_s: float = 2.0
    rounds: int = 1
    clients: int = 1
    timeout_s: float = 60.0
    results_dir: Path = Path("results")
    commit: str | None = None
    command: Sequence[str] = ()
    configs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pass:
    """One server in one round.

    Attributes:
        texts: (seconds since the start, latency in seconds, milliseconds in the engine or NaN), answered ones.
        busy: (seconds since the start, percent) of the GPU.
        errors: failed text requests; flood_errors: failed image requests, by kind.
        images_per_s: in the flood.
    """

    side: str
    round: int
    texts: list[tuple[float, float, float]]
    busy: list[tuple[float, float]]
    errors: int
    flood_errors: dict[str, int]
    images_per_s: float


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """One server in one phase over all rounds. `against`: p95 over the p95 before the flood."""

    side: str
    phase: str
    p50_ms: Spread
    p95_ms: Spread
    p99_ms: Spread
    against: Spread
    engine_ms: Spread
    gpu_busy: Spread
    requests: int


def bounds(o: StarvationOptions) -> dict[str, tuple[float, float]]:
    """(from, to) of each phase in seconds since the start, what settles left out."""
    starts = (0.0, o.before, o.before + o.flood_s)
    ends = (o.before, o.before + o.flood_s, o.before + o.flood_s + o.after)
    return {phase: (a + o.settle, b) for phase, a, b in zip(PHASES, starts, ends, strict=True)}


def summaries(o: StarvationOptions, passes: Sequence[Pass]) -> list[PhaseSummary]:
    """By side and phase."""
    found = []
    for side in dict.fromkeys(p.side for p in passes):
        own = [p for p in passes if p.side == side]
        p95_before = [_quantile(p, bounds(o)["before"], 0.95) for p in own]
        for phase, window in bounds(o).items():
            p95 = [_quantile(p, window, 0.95) for p in own]
            found.append(
                PhaseSummary(
                    side=side,
                    phase=phase,
                    p50_ms=spread(_quantile(p, window, 0.5) for p in own),
                    p95_ms=spread(p95),
                    p99_ms=spread(_quantile(p, window, 0.99) for p in own),
                    against=spread(now / then if then else math.nan for now, then in zip(p95, p95_before, strict=True)),
                    engine_ms=spread(quantile(_engine(p, window), 0.5) for p in own),
                    gpu_busy=spread(_mean([b for when, b in p.busy if window[0] <= when < window[1]]) for p in own),
                    requests=sum(len(_within(p, window)) for p in own),
                )
            )
    return found


def _within(p: Pass, window: tuple[float, float]) -> list[float]:
    return [seconds for when, seconds, _ in p.texts if window[0] <= when < window[1]]


def _engine(p: Pass, window: tuple[float, float]) -> list[float]:
    return [ms for when, _, ms in p.texts if window[0] <= when < window[1] and math.isfinite(ms)]


def _quantile(p: Pass, window: tuple[float, float], q: float) -> float:
    return 1e3 * quantile(_within(p, window), q)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


class StarvationRun:
    """A run's progress. `execute` is the whole of it."""

    def __init__(self, options: StarvationOptions) -> None:
        self.options = options
        self.passes: list[Pass] = []
        self.problems: list[str] = []
        self.finished = False
        self._path: Path | None = None
        self._conditions: dict[str, Any] = environment.conditions(
            options.name, options.command, options.commit, environment.hardware()
        )

    def execute(self) -> int:
        """Runs and writes; 0 for a valid run, 1 otherwise, 130 when interrupted."""
        o, code = self.options, 0
        servers = {b.name: b for b in o.backends}
        try:
            with ExitStack() as stack:
                pictures = stack.enter_context(ImageServer(variety(o.large_share)))
                texts = stack.enter_context(ClientPool(o.clients))
                flood = stack.enter_context(ClientPool(1))
                for number, order in alternating(list(servers), o.rounds):
                    for name in order:
                        with servers[name].server or ExitStack():
                            self.passes.append(self._pass(servers[name], number, pictures, texts, flood))
                        self.write()
            self.finished = True
        except KeyboardInterrupt:
            code = 130
            self.problems.append("interrupted")
        except (ServerFailed, RuntimeError) as error:
            self.problems.append(str(error)[:2000])
        finally:
            for backend in o.backends:
                if backend.server is not None:
                    backend.server.stop()
            page = self.write()
        print(f"\n{page.read_text()}\nwritten: {page}", flush=True)
        return code or int(bool(self._found()))

    def _pass(self, backend: Backend, number: int, pictures: ImageServer, texts: ClientPool, flood: ClientPool) -> Pass:
        o = self.options
        seed = f"{o.seed}-{number}-{backend.name}".replace(" ", "-")
        corpus = Corpus(o.words, seed)
        seconds = o.before + o.flood_s + o.after
        count = math.ceil(o.rate * seconds * 1.5) + 50
        cases = [body(case, o.text_model) for case in corpus.cases(count + 30, o.documents)]
        urls = ImageUrls(pictures.url, seed, o.large_share)
        # More than a flood can ask for: a request of images takes milliseconds at the least.
        floods = [self._images(corpus, urls) for _ in range(o.flood * max(50, round(o.flood_s * 20)))]
        warm = Turn(backend.url, [], floods[: 2 * o.flood], o.flood, o.images, o.timeout_s)
        flood.play(warm)
        texts.play(Turn(backend.url, [], cases[count:], 4, o.documents, o.timeout_s))
        loads: dict[str, Load] = {}

        def send_flood() -> None:
            time.sleep(o.before)
            rest = floods[2 * o.flood :]
            loads["flood"] = flood.play(Turn(backend.url, [], rest, o.flood, o.images, o.timeout_s, seconds=o.flood_s))

        beside = threading.Thread(target=send_flood, daemon=True)
        with GpuBusy() as gpu:
            began = time.perf_counter()
            beside.start()
            load = texts.play(
                Turn(backend.url, [], cases[:count], o.clients, o.documents, o.timeout_s, seconds=seconds, rate=o.rate)
            )
            beside.join(o.timeout_s + 30)
        found = _made(backend.name, number, load, loads.get("flood"), gpu, began, o)
        print(
            f"round {number + 1}/{o.rounds} {backend.name}: p95 "
            + ", ".join(f"{phase} {_quantile(found, w, 0.95):.0f} ms" for phase, w in bounds(o).items())
            + f"; {found.images_per_s:.0f} images/s; failed {found.errors} texts, floods {found.flood_errors or 0}",
            flush=True,
        )
        return found

    def _images(self, corpus: Corpus, urls: ImageUrls) -> bytes:
        o = self.options
        documents = [{"image": url} for url in urls.take(o.images)]
        return dumps({"model": o.image_model, "query": corpus.text(3), "documents": documents})

    def _found(self) -> list[str]:
        failed = [
            f"{p.side}, round {p.round + 1}: {p.errors} texts failed, and of the flood {p.flood_errors or 'none'}"
            for p in self.passes
            if p.errors or p.flood_errors
        ]
        return [*self.problems, *([] if self.finished else [UNFINISHED]), *failed]

    def write(self) -> Path:
        """Writes or rewrites the three files; returns the Markdown page."""
        o = self.options
        if self._path is None:
            self._path = results_files.free_path(o.name, self._conditions["date"], o.results_dir)
        summed = summaries(o, self.passes)
        skipped = {"backends", "words", "configs", "command", "commit", "results_dir"}
        settings = {name: getattr(o, name) for name in o.__slots__ if name not in skipped}
        result = self._conditions | {
            "settings": settings,
            "method": METHOD.format(**settings),
            "valid": not self._found(),
            "problems": self._found(),
            "notes": self._notes(),
            "backends": [b.described() for b in o.backends],
            "configs": environment.shorten(o.configs),
            "summary": [asdict(s) for s in summed],
            "passes": [asdict(p) for p in self.passes],
        }
        _, page = results_files.write_at(self._path, result, "\n".join(self._markdown(result, summed)))
        results_files.replace(self._path.with_suffix(".html"), charts.page(o.name, self._html(result, summed)))
        return page

    def _notes(self) -> list[str]:
        notes = busy(self._conditions["hardware"])
        notes += [f"{p.side}, round {p.round + 1}: {p.images_per_s:.1f} images/s in the flood" for p in self.passes]
        return notes if any(p.busy for p in self.passes) else [*notes, "no GPU was sampled"]

    def _rows(self, summed: Sequence[PhaseSummary]) -> tuple[list[str], list[list[str]]]:
        header = ["side", "phase", "p50 ms", "p95 ms", "p99 ms", "p95 ÷ before", "engine p50 ms", "GPU busy %", "texts"]
        rows = [
            [
                *(s.side, s.phase),
                *map(str, (s.p50_ms, s.p95_ms, s.p99_ms, s.against, s.engine_ms, s.gpu_busy)),
                str(s.requests),
            ]
            for s in summed
        ]
        return header, rows

    def _markdown(self, result: dict[str, Any], summed: Sequence[PhaseSummary]) -> Iterator[str]:
        yield from (f"# {result['name']}, {result['date']}", "", f"valid: {'yes' if result['valid'] else 'NO'}", "")
        yield from (*(f"* {line}" for line in [*map(plain, result["problems"]), *result["notes"]]), "")
        yield from (result["method"], "", *table(*self._rows(summed)), "", "## Conditions", "", *machine(result))
        yield f"* dtype: {listed({b['name']: b['dtype'] for b in result['backends']})}"
        yield f"* versions: {listed(result['versions'])}"
        yield f"* started by: `{' '.join(result['command'])}`"
        yield ""

    def _html(self, result: dict[str, Any], summed: Sequence[PhaseSummary]) -> Iterator[str]:
        o = self.options
        yield charts.paragraph("valid" if result["valid"] else "NOT valid", "passed" if result["valid"] else "failed")
        for line in [*result["problems"], *result["notes"], result["method"]]:
            yield charts.paragraph(line)
        flood = [(o.before, o.before + o.flood_s)]
        sides = list(dict.fromkeys(p.side for p in self.passes))
        p95 = {side: points(o, [t for p in self.passes if p.side == side for t in p.texts]) for side in sides}
        yield charts.lines("p95 of texts (shaded: the flood)", "seconds", "ms", p95, flood)
        gpu = {side: _binned(o, [b for p in self.passes if p.side == side for b in p.busy]) for side in sides}
        yield charts.lines("GPU busy", "seconds", "percent", gpu, flood)
        yield "<h2>Figures</h2>" + charts.html_table(*self._rows(summed))
        yield "<h2>Conditions</h2>"
        yield from (charts.paragraph(line.removeprefix("* ")) for line in machine(result))
        yield charts.paragraph(f"started by: {' '.join(result['command'])}; rate {show(o.rate)}/s")


def points(o: StarvationOptions, texts: Sequence[tuple[float, float, float]]) -> list[tuple[float, float]]:
    """(middle of a bin, p95 in ms) over the run."""
    bins: dict[int, list[float]] = {}
    for when, seconds, _ in texts:
        bins.setdefault(int(when // o.bin_s), []).append(seconds)
    return [((number + 0.5) * o.bin_s, 1e3 * quantile(found, 0.95)) for number, found in sorted(bins.items())]


def _binned(o: StarvationOptions, values: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    bins: dict[int, list[float]] = {}
    for when, value in values:
        bins.setdefault(int(when // o.bin_s), []).append(value)
    return [((number + 0.5) * o.bin_s, _mean(found)) for number, found in sorted(bins.items())]


def _made(
    side: str, number: int, load: Load, flood: Load | None, gpu: GpuBusy, began: float, o: StarvationOptions
) -> Pass:
    good = [outcome for outcome in load.outcomes if outcome.error is None]
    images: list[Outcome] = flood.outcomes if flood is not None else []
    ranked = [outcome for outcome in images if outcome.error is None]
    return Pass(
        side=side,
        round=number,
        texts=[(x.started - began, x.seconds, x.stages.get("engine", math.nan)) for x in good],
        busy=[(when - began, percent) for when, percent in gpu.samples],
        errors=len(load.outcomes) - len(good),
        flood_errors={str(kind): count for kind, count in Counter(x.error for x in images if x.error).items()},
        images_per_s=len(ranked) * o.images / flood.wall_s if flood is not None and flood.wall_s else 0.0,
    )
