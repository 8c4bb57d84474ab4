"""One run of `fusion-engine`: write the checkpoint, score the reference, start the sides, measure in turns, write."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environment
from benchmarks.fusion import checkpoint, plugin
from benchmarks.fusion.engines import BASELINE, SIDES, BenchmarkEngine, EngineLimits, build, used_gpu_mib
from benchmarks.fusion.reference import logits_apart
from benchmarks.fusion.workload import ParitySet, Request, Workload
from benchmarks.image_results import ImageResult, Section
from benchmarks.load import Outcome
from benchmarks.parity import compare
from benchmarks.stats import show
from benchmarks.timed import timed_loop
from benchmarks.turns import alternating, measurement, progress
from serve_app.messages import EngineOutput, FloatArray
from serve_app.tasks.model import load_text_model

PUBLISHED = (
    "For orientation only: a published production system reports 3.76 images/s with every patch in the sequence and "
    "62.2 images/s with cached features and one marker a pair, on its own model, hardware and traffic. Nothing here "
    "is compared with that."
)
METHOD = (
    "One query x {images} images a request, straight into the engine (no HTTP, no Ray, no image decoding). `tokens`: "
    "every patch is a token of the sequence, {patches} + {query_tokens} tokens a pair; `marker per pair`: one "
    "sequence a pair, one token for the picture; `markers per query`: one sequence a request. Same weights, same "
    "limits: {batched_tokens} tokens and {sequences} sequences a step. cold: no image was ever seen, pixels are sent "
    "and encoded; warm: the engine holds all images and gets none. All engines are alive; one has load. A turn sends "
    "requests for {seconds:g} s, c at a time, and awaits them; warm-up is excluded. Medians over rounds in "
    "alternating order, smallest and largest in brackets."
)


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """Settings of a run.

    Attributes:
        model_dir: the checkpoint; written if it is not there.
        shape: a key of `checkpoint.SHAPES`.
        sides: of `engines.SIDES`.
        query_tokens: of a query; None: as many as the text tower has positions.
        seconds, minimum: a turn's length, and requests that it has at least.
        parity: (queries, images) that are scored by all sides and by PyTorch.
        budget_s: no turn is begun later than this after the start.
    """

    name: str
    results_dir: Path
    model_dir: Path
    limits: EngineLimits
    seed: str
    shape: str = "vit-l-14-336"
    sides: Sequence[str] = tuple(SIDES)
    command: Sequence[str] = ()
    commit: str | None = None
    images: int = 105
    query_tokens: int | None = None
    concurrencies: Sequence[int] = (1, 8)
    rounds: int = 3
    seconds: float = 3.0
    minimum: int = 3
    parity: tuple[int, int] = (2, 16)
    budget_s: float = 3600.0

    @property
    def positions(self) -> int:
        """Tokens of a query."""
        whole: int = checkpoint.SHAPES[self.shape]["text"]["max_position_embeddings"]
        return self.query_tokens or whole

    @property
    def threshold(self) -> float:
        """Largest difference of scores (sigmoid of the logit) that passes."""
        return 0.05 if self.limits.dtype.endswith("float16") else 1e-3


class FusionRun:
    """A run's progress. `execute` is the whole of it."""

    def __init__(self, options: FusionOptions) -> None:
        self.options = options
        self._began = time.monotonic()
        self._engines: dict[str, BenchmarkEngine] = {}
        self._workloads: dict[str, Workload] = {}
        limits = {name: value for name, value in asdict(options.limits).items() if name not in ("device", "dtype")}
        settings = {
            "shape": options.shape,
            "images": options.images,
            "query_tokens": options.positions,
            "patches": checkpoint.patches(options.shape),
            "concurrencies": list(options.concurrencies),
            "rounds": options.rounds,
            "seconds": options.seconds,
            "minimum": options.minimum,
            "seed": options.seed,
            **limits,
        }
        self.result = ImageResult(
            name=options.name,
            method=METHOD.format(**settings),
            unit="pairs",
            command=options.command,
            folder=options.results_dir,
            settings=settings,
            baseline=BASELINE if BASELINE in options.sides else None,
            commit=options.commit,
            dtypes=dict.fromkeys(options.sides, options.limits.dtype),
            extra_columns={
                "pairs_per_step": "pairs/step",
                "tokens_per_step": "tokens/step",
                "tokens_per_pair": "tokens/pair",
                "encoded_per_pair": "encoded/pair",
            },
        )
        self.result.sections.append(Section("Published figures", PUBLISHED))

    def execute(self) -> int:
        """Runs and writes; 0 for a valid run, 1 otherwise, 130 when interrupted."""
        code = 0
        try:
            asyncio.run(self._run())
            self.result.finished = True
        except KeyboardInterrupt:
            code = 130
        finally:
            page = self.result.write()
        print(f"\n{page.read_text()}\nwritten: {page}", flush=True)
        return code or int(not self.result.valid())

    async def _run(self) -> None:
        o = self.options
        if not (o.model_dir / "config.json").exists():
            device = "cuda" if o.limits.device == "cuda" else "cpu"
            # Apart: a CUDA context of this process would hold memory beside the engines'.
            print(await asyncio.to_thread(_make_apart, o.model_dir, o.shape, device), flush=True)
        self.result.model = environment.model_shape(o.model_dir)
        limits = o.limits
        model = load_text_model(build_settings(o))
        sample = Workload(model, o.parity[1], o.positions, "parity")
        parity_set = ParitySet(sample, o.parity)
        wanted = {
            dtype: logits_apart(o.model_dir, parity_set.token_ids(), parity_set.pictures(), dtype, "auto")
            for dtype in dict.fromkeys([limits.dtype, "float32"])
        }
        print(f"reference scored after {self._elapsed():.0f} s", flush=True)
        try:
            await self._start()
            await self._check_parity(parity_set, wanted)
            await self._measure()
            await self._tell_memory()
        finally:
            for engine in self._engines.values():
                with contextlib.suppress(Exception):
                    await engine.shutdown()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    async def _start(self) -> None:
        """Starts the sides one after the other: each measures free memory. One that fails is left out."""
        o = self.options
        for side in o.sides:
            before, began = used_gpu_mib(), time.monotonic()
            engine = build(side, o.model_dir, o.positions, o.limits)
            try:
                await engine.start()
            except Exception as error:  # whatever vLLM fails with, the other sides can still be measured
                self.result.problems.append(f"{side} did not start: {type(error).__name__}: {str(error)[:300]}")
                print(self.result.problems[-1], flush=True)
                with contextlib.suppress(Exception):
                    await engine.shutdown()
                continue
            self._engines[side] = engine
            self._workloads[side] = Workload(engine.model, o.images, o.positions, f"{o.seed}-{side}")
            after = used_gpu_mib()
            told = {"start_s": round(time.monotonic() - began, 1)}
            if before is not None and after is not None:
                told["device_mib"] = after - before
            self.result.data.setdefault("engines", {})[side] = told
            print(f"{side}: ready after {told['start_s']} s", flush=True)
            self.result.write()
        if not self._engines:
            raise RuntimeError("no side has started")

    async def _check_parity(self, parity_set: ParitySet, wanted: dict[str, FloatArray]) -> None:
        """All sides score the same pairs; against PyTorch in the engines' format and in float32, and each other."""
        scored: dict[str, FloatArray] = {}
        for side, engine in list(self._engines.items()):
            workload = self._workloads[side]
            try:
                scored[side] = np.stack([await _logits(engine, r) for r in parity_set.requests(workload)])
            except Exception as error:  # the other sides can still be measured
                self.result.problems.append(f"{side} did not score the parity set: {type(error).__name__}: {error}")
                print(self.result.problems[-1], flush=True)
                del self._engines[side]
                with contextlib.suppress(Exception):
                    await engine.shutdown()
        if not self._engines:
            raise RuntimeError("no side has answered")
        told: dict[str, Any] = {}
        for side, logits in scored.items():
            others = {f"PyTorch {dtype}": reference for dtype, reference in wanted.items()}
            others |= {name: values for name, values in scored.items() if name == BASELINE != side}
            for name, reference in others.items():
                agreement = compare(
                    side, _sigmoid(logits).tolist(), name, _sigmoid(reference).tolist(), self.options.threshold
                )
                self.result.agreements.append(agreement)
                told[f"{side} / {name}"] = float(np.abs(logits - reference).max())
        self.result.data["largest difference of logits"] = told
        rows = [[*pair.split(" / "), f"{value:.1e}"] for pair, value in told.items()]
        spread = float(next(iter(wanted.values())).std())
        text = f"Scores are sigmoids of logits, whose standard deviation over the parity set is {show(spread)}."
        self.result.sections.append(Section("Parity of logits", text, ["side", "against", "max abs"], rows))
        self.result.write()
        print(f"parity: {told}", flush=True)

    async def _measure(self) -> None:
        o = self.options
        for number, order in alternating(list(self._engines), o.rounds):
            for concurrency in o.concurrencies:
                for position, side in enumerate(order):
                    for state in ("cold", "warm"):
                        if self._elapsed() > o.budget_s:
                            self.result.out_of_time(number, self._elapsed())
                            return
                        await self._turn(side, state, concurrency, (number, position))
            self.result.write()

    async def _turn(self, side: str, state: str, concurrency: int, place: tuple[int, int]) -> None:
        o, engine, workload = self.options, self._engines[side], self._workloads[side]
        make = workload.cold if state == "cold" else workload.warm

        async def send(number: int, request: Request | None = None) -> Outcome:
            request = request or make()  # made outside of the time that is measured
            batch = request.now(f"{side}-{state}-{number}")
            started = time.perf_counter()
            try:
                output = await engine.run(batch, request.loaded)
            except Exception as error:  # counted, like a failed request of a server
                return Outcome(started, time.perf_counter(), type(error).__name__)
            ended = time.perf_counter()
            whole = isinstance(output, EngineOutput) and np.isfinite(output.values).sum() == request.pairs
            return Outcome(started, ended, None if whole else "malformed")

        warmup = [await send(-1, workload.heat())] if state == "warm" else []
        warmup += await timed_loop(send, concurrency, 0.0, concurrency)
        await engine.take_steps()
        encoded = (await engine.image_counts())["encoded"]
        outcomes = await timed_loop(send, concurrency, o.seconds, o.minimum)
        steps = await engine.take_steps()
        encoded = (await engine.image_counts())["encoded"] - encoded
        pairs, count = len(outcomes) * o.images, max(steps["steps"], 1)
        measured = measurement(
            side,
            {"c": concurrency, "images": state},
            place,
            o.images,
            outcomes,
            extra={
                "pairs_per_step": pairs / count,
                "tokens_per_step": steps["tokens"] / count,
                "most_tokens": steps["most_tokens"],
                "tokens_per_pair": steps["tokens"] / max(pairs, 1),
                "encoded_per_pair": encoded / max(pairs, 1),
            },
            also_failed=[outcome for outcome in warmup if outcome.error is not None],
        )
        self.result.turns.append(measured)
        print(progress(measured, o.rounds, "pairs"), flush=True)

    async def _tell_memory(self) -> None:
        names: dict[str, None] = {}
        engines = self.result.data["engines"]
        for side, engine in self._engines.items():
            engines[side] |= await engine.memory()
            names |= dict.fromkeys(engines[side])
        rows = [[side, *(show(told.get(name, float("nan"))) for name in names)] for side, told in engines.items()]
        text = (
            "Per engine: seconds to start; MiB of the device taken in all (its share, filled with key/value cache), by "
            "weights and feature slots, by the key/value cache, at its peak; and what an image costs that is held."
        )
        self.result.sections.append(Section("Memory", text, ["side", *names], rows))


def build_settings(options: FusionOptions) -> Any:
    """Settings of the side whose sequences the parity set is written with."""
    from benchmarks.fusion.engines import settings

    return settings("marker per pair", options.model_dir, options.positions, options.limits)


async def _logits(engine: BenchmarkEngine, request: Request) -> FloatArray:
    output = await engine.run(request.now("parity", 60.0), request.loaded)
    if not isinstance(output, EngineOutput):
        raise RuntimeError(f"{engine.side}: the engine did not take the images")
    return output.values[:, 0]


def _sigmoid(logits: FloatArray) -> Any:
    return 1 / (1 + np.exp(-logits.astype(np.float64)))


def _make_apart(out: Path, shape: str, device: str) -> dict[str, Any]:
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(checkpoint.make_fusion_ranker, (out, shape, device))


def run(options: FusionOptions, scratch: Path) -> int:
    """See `FusionRun.execute`. `scratch`: a folder that lives as long as the run."""
    plugin.announce(scratch / "plugin")
    return FusionRun(options).execute()
