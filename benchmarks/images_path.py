"""`images-path`: image URLs through the whole HTTP path, cold and warm, with more and more ImageLoader replicas."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks import environment
from benchmarks.corpus import FALLBACK_WORDS, Corpus, load_tokenizer, whole_words
from benchmarks.image_results import ImageResult
from benchmarks.image_server import ImageServer, Pool, variety
from benchmarks.images_client import Client, Requests
from benchmarks.images_config import DASHBOARD, RunningServe, images_application, only_model, with_loaders
from benchmarks.launch import poolserve_backend
from benchmarks.load import connect
from benchmarks.parity import compare
from benchmarks.processes import Server, ServerFailed
from benchmarks.turns import alternating, measurement, progress

METHOD = (
    "POST /v1/rerank with one query and {images} image URLs a request against a running Poolserve; a server on this "
    "machine has the images, {large_share:.0%} of about 12 megapixels and the others of about 500 x 400, and waits "
    "{delay_ms} ms before each answer. Sides: replicas of the ImageLoader. cold: every URL and every content is new; "
    "warm: {warm_urls} URLs over and over, which are known and whose features the engine holds. A turn sends requests "
    "for {seconds:g} s, c at a time, and awaits them; warm-up is excluded. Medians over rounds in alternating order, "
    "smallest and largest in brackets. Client, image server and Poolserve share the machine's cores."
)


@dataclass(frozen=True, slots=True)
class PathOptions:
    """Settings of a run.

    Attributes:
        base: the configuration that others are derived from.
        model: name of the model; None: the only one that ranks images.
        loaders: replicas of the ImageLoader, one side each.
        loader_cpus: cores of each; None: as the configuration says.
        command_up: starts Poolserve when the configuration's path is appended.
        warm_requests: different requests of the warm turns.
        parity_requests: requests that are compared with PyTorch; 0: none.
        parity_images: images of each.
        budget_s: no turn is begun later than this after the start.
        dashboard: Ray's, of the cluster that `command_up` starts.
    """

    name: str
    results_dir: Path
    logs_dir: Path
    base: Path
    seed: str
    command_up: str
    url: str = "http://127.0.0.1:8000"
    model: str | None = None
    loaders: Sequence[int] = (1, 2)
    loader_cpus: float | None = None
    concurrencies: Sequence[int] = (1, 4, 16)
    images: int = 20
    large_share: float = 0.1
    delay_ms: int = 0
    rounds: int = 2
    seconds: float = 5.0
    minimum: int = 3
    warm_requests: int = 16
    parity_requests: int = 2
    parity_images: int = 8
    timeout_s: float = 60.0
    start_limit_s: float = 600.0
    budget_s: float = 3600.0
    dashboard: str = DASHBOARD
    cpu: bool = True
    command: Sequence[str] = ()
    commit: str | None = None


class PathRun:
    """A run's progress. `execute` is the whole of it."""

    def __init__(self, options: PathOptions) -> None:
        self.options = options
        self._began = time.monotonic()
        base = yaml.safe_load(options.base.read_text())
        self._config, self.served = only_model(base, options.model)
        self._serve = RunningServe(options.dashboard)
        self._running = 0
        folder = _local(self.served.source)
        self._words = whole_words(load_tokenizer(folder)) if folder is not None else FALLBACK_WORDS
        settings: dict[str, Any] = {
            name: getattr(options, name)
            for name in ("images", "large_share", "delay_ms", "loaders", "loader_cpus", "concurrencies", "rounds",
                         "seconds", "minimum", "seed")
        }  # fmt: skip
        settings["warm_urls"] = options.warm_requests * options.images
        self.result = ImageResult(
            name=options.name,
            method=METHOD.format(**settings),
            unit="images",
            command=options.command,
            folder=options.results_dir,
            settings=settings,
            baseline=_side(min(options.loaders)),
            commit=options.commit,
            model=environment.model_shape(folder),
            dtypes={self.served.name: self.served.dtype},
            extra_columns={"client_cpu": "client CPU"},
        )

    def execute(self) -> int:
        """Runs and writes; 0 for a valid run, 1 otherwise, 130 when interrupted."""
        code = 0
        with ExitStack() as stack:
            server = stack.enter_context(ImageServer(variety(self.options.large_share)))
            self.result.settings["mean_bytes"] = server.mean_bytes
            wanted = self._reference()
            try:
                poolserve = stack.enter_context(self._poolserve(self.options.loaders[0]))
                self._running = self.options.loaders[0]
                self.result.data["start_s"] = poolserve.start_seconds
                asyncio.run(self._measure(server, wanted))
                self.result.finished = True
            except KeyboardInterrupt:
                code = 130
            except ServerFailed as error:
                self.result.problems.append(str(error)[:2000])
            finally:
                page = self.result.write()
        print(f"\n{page.read_text()}\nwritten: {page}", flush=True)
        return code or int(not self.result.valid())

    def _poolserve(self, loaders: int) -> Server:
        o = self.options
        o.logs_dir.mkdir(parents=True, exist_ok=True)
        path = o.logs_dir / f"images-path-{loaders}.yaml"
        derived = with_loaders(self._config, loaders, num_cpus=o.loader_cpus)
        path.write_text(yaml.safe_dump(derived, sort_keys=False))
        backend = poolserve_backend(
            path,
            command=o.command_up,
            url=o.url,
            model=self.served.name,
            dtype=self.served.dtype,
            cpu=o.cpu,
            logs=o.logs_dir,
            start_limit_s=o.start_limit_s,
        )
        assert backend.server is not None
        return backend.server

    async def _measure(self, server: ImageServer, wanted: ParityScores | None) -> None:
        o = self.options
        async with connect(o.timeout_s) as session:
            client = Client(session, self._requests(server.url))
            if wanted is not None:
                await self._check_parity(client, wanted)
            for number, order in alternating([_side(n) for n in o.loaders], o.rounds):
                for position, side in enumerate(order):
                    if not await self._change_to(int(side.split()[0]), client):
                        return
                    for concurrency, state in itertools.product(o.concurrencies, ("cold", "warm")):
                        if time.monotonic() - self._began > o.budget_s:
                            self.result.out_of_time(number, o.budget_s)
                            return
                        outcomes, warmup, share = await client.turn(f"{number}-{side}", state, concurrency)
                        measured = measurement(
                            side,
                            {"c": concurrency, "images": state},
                            (number, position),
                            o.images,
                            outcomes,
                            extra={"client_cpu": share},
                            also_failed=[outcome for outcome in warmup if outcome.error is not None],
                        )
                        self.result.turns.append(measured)
                        print(progress(measured, o.rounds, "images"), flush=True)
                    self.result.write()

    def _requests(self, origin: str) -> Requests:
        o = self.options
        return Requests(
            url=f"{o.url}/v1/rerank",
            model=self.served.name,
            origin=origin,
            words=self._words,
            seed=o.seed,
            images=o.images,
            large_share=o.large_share,
            delay_ms=o.delay_ms,
            warm=o.warm_requests,
            seconds=o.seconds,
            minimum=o.minimum,
        )

    async def _change_to(self, loaders: int, client: Client) -> bool:
        """Redeploys the images' application alone; False when that fails, and the run ends with what it has."""
        if loaders == self._running:
            return True
        derived = with_loaders(self._config, loaders, num_cpus=self.options.loader_cpus)
        try:
            await asyncio.to_thread(self._serve.deploy, derived)
            seconds = await asyncio.to_thread(self._serve.await_loaders, images_application(derived), loaders)
        except ServerFailed as error:
            self.result.problems.append(str(error))
            print(error, flush=True)
            return False
        self._running = loaders
        print(f"{loaders} loaders after {seconds:.1f} s", flush=True)
        await client.settle()
        return True

    def _reference(self) -> ParityScores | None:
        """PyTorch's scores of the parity set, in float32, before anything is started."""
        o = self.options
        if not o.parity_requests or self.served.task != "image_rank":
            return None
        folder = _local(self.served.source)
        if folder is None:
            return None
        stamp = _stamp(self.served.source)
        texts = [Corpus(self._words, f"parity-{i}").query() for i in range(o.parity_requests)]
        names = [f"parity-{i}" for i in range(o.parity_images)]
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            logits = pool.apply(reference_logits, (folder, texts, names, self.served.max_model_len))
        return ParityScores(texts, names, (1 / (1 + np.exp(-logits.astype(np.float64)))).tolist(), stamp)

    async def _check_parity(self, client: Client, wanted: ParityScores) -> None:
        got = [await client.scores(text, wanted.names) for text in wanted.texts]
        self.result.data["parity"] = {"queries": wanted.texts, "scores": got, "PyTorch float32": wanted.scores}
        if _stamp(self.served.source) != wanted.stamp:
            self.result.problems.append("the checkpoint has changed since the reference was scored")
        limit = 0.05 if self.served.dtype.endswith("float16") else 1e-3
        self.result.agreements.append(compare(self.served.name, got, "PyTorch float32", wanted.scores, limit))
        self.result.write()


@dataclass(frozen=True, slots=True)
class ParityScores:
    """Queries, names of small images, the scores of all pairs, and the state of the checkpoint they are of."""

    texts: list[str]
    names: list[str]
    scores: list[list[float]]
    stamp: list[tuple[str, int, int]]


def reference_logits(folder: Path, texts: Sequence[str], names: Sequence[str], max_length: int) -> Any:
    """Logits of all pairs, float32 [texts, images], of the images that the server has under these names."""
    from benchmarks.fusion.reference import logits
    from benchmarks.image_server import DEFAULT_VARIETY
    from serve_app.media.decode import decode
    from serve_app.media.spec import read_pixel_spec
    from serve_app.tokenization import TextTokenizer

    pool = Pool.make({"small": DEFAULT_VARIETY["small"]}, ImageServer().seed)
    spec = read_pixel_spec(folder, scaled_decoding=True)
    pixels = np.stack([decode(pool.serve("small", name), spec, 10**8) for name in names])
    tokenizer = TextTokenizer(folder)
    frame = tokenizer.single
    encoded, _ = tokenizer.encode_capped(list(texts), max_length)
    return logits(folder, [[*frame.before, *ids, *frame.after] for ids in encoded], pixels, "float32", "auto")


def _side(loaders: int) -> str:
    return f"{loaders} loader{'s' if loaders > 1 else ''}"


def _local(source: str) -> Path | None:
    from serve_app.sources import SourceError, local_directory

    with contextlib.suppress(SourceError):
        return local_directory(source)
    return None


def _stamp(source: str) -> list[tuple[str, int, int]]:
    """Name, size and time of a checkpoint's weights: another process may write them anew while a run lasts."""
    folder = _local(source)
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
