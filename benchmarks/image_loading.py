"""`image-loading`: our ImageLoader against a thread pool with requests and Pillow, on the same images."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.image_results import ImageResult, Section
from benchmarks.image_server import ImageServer
from benchmarks.image_urls import ImageUrls
from benchmarks.loaders import THREADS, LoaderProcess, Order, Side
from benchmarks.stats import show
from benchmarks.turns import alternating, measurement, progress

BASELINE = "requests + Pillow"
WHOLE, SCALED = "loader, whole", "loader, scaled"
METHOD = (
    "Images of an HTTP server on this machine to pixels of {size} x {size}, {images} images a request, every one new. "
    "`{baseline}`: ThreadPoolExecutor({threads}), a requests.Session per thread, Pillow; `loader`: serve_app.media "
    "with {decode_threads} decoding threads, decoding JPEGs whole, or scaled as it does by default. Each side is a "
    "process of its own. A turn sends requests for {seconds:g} s, c at a time, and awaits them; warm-up is excluded. "
    "CPU is that of the loading process; memory is its largest resident size in a turn. Medians over rounds in "
    "alternating order, smallest and largest in brackets. Server and loaders share the machine's cores."
)


@dataclass(frozen=True, slots=True)
class LoadingOptions:
    """Settings of a run.

    Attributes:
        large_shares, delays_ms, concurrencies: what is varied: share of 12-megapixel images, the server's delay,
            requests at a time.
        size: of the pictures that come out.
        seconds, minimum: a turn's length, and requests that it has at least.
        parity_images: images whose pixels are compared.
        budget_s: no turn is begun later than this after the start.
    """

    name: str
    results_dir: Path
    seed: str
    command: Sequence[str] = ()
    commit: str | None = None
    large_shares: Sequence[float] = (0.0, 0.1)
    delays_ms: Sequence[int] = (0, 100)
    concurrencies: Sequence[int] = (1, 4)
    images: int = 20
    rounds: int = 3
    seconds: float = 6.0
    minimum: int = 5
    warmup: int = 2
    size: int = 336
    decode_threads: int = 2
    parity_images: int = 20
    budget_s: float = 3600.0


def sides(options: LoadingOptions) -> list[Side]:
    """The baseline, and our loader with and without scaled decoding."""

    def side(name: str, kind: str, *, scaled: bool = False) -> Side:
        return Side(name, kind, scaled, options.size, options.decode_threads)

    return [side(BASELINE, "threads"), side(WHOLE, "loader"), side(SCALED, "loader", scaled=True)]


def run(options: LoadingOptions) -> int:
    """Measures and writes; 0 for a valid run, 1 otherwise, 130 when interrupted."""
    settings = {k: v for k, v in asdict(options).items() if k not in ("command", "results_dir", "name", "commit")}
    result = ImageResult(
        name=options.name,
        method=METHOD.format(baseline=BASELINE, threads=THREADS, **settings),
        unit="images",
        command=options.command,
        folder=options.results_dir,
        settings=settings,
        baseline=BASELINE,
        commit=options.commit,
        dtypes={"pixels": "uint8"},
        extra_columns={"cpu_ms": "CPU ms/image", "peak_mib": "memory MiB"},
    )
    code = 0
    try:
        with ExitStack() as stack:
            server = stack.enter_context(ImageServer())
            result.settings["mean_bytes"] = server.mean_bytes
            loaders = [stack.enter_context(LoaderProcess(side)) for side in sides(options)]
            compare_pixels(result, options, server, loaders)
            measure(result, options, server, {loader.side.name: loader for loader in loaders})
        result.finished = True
    except KeyboardInterrupt:
        code = 130
    page = result.write()
    print(f"\n{page.read_text()}\nwritten: {page}", flush=True)
    return code or int(not result.valid())


def measure(
    result: ImageResult, options: LoadingOptions, server: ImageServer, loaders: dict[str, LoaderProcess]
) -> None:
    """All turns."""
    began = time.monotonic()
    conditions = list(itertools.product(options.large_shares, options.delays_ms, options.concurrencies))
    for number, order in alternating(list(loaders), options.rounds):
        for share, delay, concurrency in conditions:
            for position, name in enumerate(order):
                if time.monotonic() - began > options.budget_s:
                    result.out_of_time(number, options.budget_s)
                    return
                # Names of its own for every turn, so that no cache anywhere helps the second side.
                seed = f"{options.seed}-{number}-{share}-{delay}-{concurrency}-{position}"
                wanted = Order(server.url, seed, share, delay, options.images, concurrency, options.seconds,
                               options.minimum, options.warmup)  # fmt: skip
                report = loaders[name].play(wanted)
                answered = options.images * sum(o.error is None for o in report.outcomes)
                measured = measurement(
                    name,
                    {"12 Mpx": f"{share:.0%}", "delay ms": delay, "c": concurrency},
                    (number, position),
                    options.images,
                    report.outcomes,
                    extra={"cpu_ms": 1e3 * report.cpu_s / max(answered, 1), "peak_mib": report.peak_mib},
                    also_failed=[o for o in report.warmup if o.error is not None],
                )
                result.turns.append(measured)
                print(progress(measured, options.rounds, "images"), flush=True)
        result.write()


def compare_pixels(
    result: ImageResult, options: LoadingOptions, server: ImageServer, loaders: Sequence[LoaderProcess]
) -> None:
    """The same images through all sides. Decoding whole must give equal pixels; scaled decoding is measured."""
    urls = ImageUrls(server.url, f"parity-{time.time_ns()}", 0.5).take(options.parity_images)
    theirs = loaders[0].pixels(urls).astype(np.int16)
    rows = []
    for loader in loaders[1:]:
        difference = np.abs(loader.pixels(urls).astype(np.int16) - theirs)
        equal, largest = float((difference == 0).mean()), int(difference.max())
        result.data[f"pixels of {loader.side.name}"] = {
            "images": len(urls), "equal": equal, "max_abs": largest, "mean_abs": float(difference.mean())
        }  # fmt: skip
        if loader.side.name == WHOLE and largest:
            result.problems.append(f"pixels of {WHOLE} differ from {BASELINE} by up to {largest}")
        rows.append([loader.side.name, f"{equal:.2%}", str(largest), show(float(difference.mean()))])
    text = f"{len(urls)} images, half of them of 12 megapixels, against `{BASELINE}`; steps of 256."
    result.sections.append(Section("Parity of pixels", text, ["side", "equal values", "max abs", "mean abs"], rows))
