"""One run of `absa`, `embed`, `classify` or `documents`: start, check parity, measure in turns, write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from benchmarks import environment
from benchmarks.backends import Backend, check_backends
from benchmarks.clients import ClientPool, Load, Turn
from benchmarks.corpus import load_tokenizer
from benchmarks.load import connect
from benchmarks.processes import ServerFailed
from benchmarks.scoring import ParityRequestFailed
from benchmarks.stats import describe, quantile
from benchmarks.text.agree import compare, limits
from benchmarks.text.computing import Method
from benchmarks.text.local import LibraryFailed, Loading, LocalLibrary
from benchmarks.text.options import ONE_BY_ONE, TextOptions
from benchmarks.text.result import TextResult
from benchmarks.text.summary import best
from benchmarks.text.wire import SHAPES, Answer
from benchmarks.turns import Condition, measurement, progress
from benchmarks.wire import MalformedAnswer

METHOD = (
    "Servers over HTTP, and libraries in a process of their own on the same device. Texts: {described}. A turn takes "
    "{seconds:g} s; warm-up is excluded; the order of the sides is swapped every round; medians over {rounds} "
    "round(s), smallest and largest in brackets, ratios within a round first. c=N: N requests in flight (closed loop); "
    "N/s: random arrivals at that rate (open loop), latency counts from when a request was due. offline: a library "
    "with all texts at hand, tokenizing included; its requests are batches. A ratio of texts/s to a library is taken "
    "to its only turn of the round, a ratio of p50 only where both had the same condition."
)
MEASURING_S = 45.0
"""Of a budget that no server's start may use up: those that are up are measured."""
_SETTINGS = ("inputs", "concurrencies", "rates", "rounds", "seconds", "clients", "warmup", "timeout_s", "budget_s",
             "seed", "device", "max_model_len", "parity_texts", "allow_dtype_mismatch")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Entry:
    """One turn of a round: a backend under a condition, or a library's method."""

    condition: Condition
    inputs: int
    backend: Backend | None = None
    concurrency: int = 1
    rate: float | None = None
    method: Method | None = None

    @property
    def side(self) -> str:
        return self.backend.name if self.backend is not None else self.method.name if self.method is not None else ""


class TextRun:
    """A run's progress. `execute` is the whole of it."""

    def __init__(self, options: TextOptions) -> None:
        self.options = o = options
        check_backends(o.backends, o.allow_dtype_mismatch)
        self._began = time.monotonic()
        self._shapes = SHAPES[o.task]
        self._own_texts = len({b.origin for b in o.backends}) < len(o.backends)
        self._rates: dict[tuple[str, int, object], float] = {}
        settings = {name: getattr(o, name) for name in _SETTINGS}
        self.result = TextResult(
            name=o.name,
            method=self._method(o.rounds),
            unit="documents" if o.task == "documents" else "texts",
            command=o.command,
            folder=o.results_dir,
            settings=settings,
            commit=o.commit,
            model=environment.model_shape(o.model_dir),
            dtypes={**{b.name: b.dtype for b in o.backends}, **({"library": o.dtype} if o.model_dir else {})},
            lengths=self._lengths(),
        )
        self.result.baselines = self._baselines()

    def execute(self) -> int:
        """Runs and writes; 0 for a valid run, 1 otherwise, 130 when interrupted."""
        code = 0
        print(f"seed {self.options.seed}, lengths {self.result.lengths}", flush=True)
        try:
            with ExitStack() as stack:
                try:
                    self._start_and_measure(stack)
                except (ServerFailed, LibraryFailed, RuntimeError) as error:
                    self.result.problems.append(str(error)[:2000])
                    print(f"error: {error}", flush=True)
                except KeyboardInterrupt:
                    code = 130
                    self._cut_off()
                page = self.result.write()  # stopping servers takes long, and whoever interrupted may not wait for it
                print(f"\n{page.read_text()}\nwritten: {page}", flush=True)
        finally:
            for backend in self.options.backends:  # again, for a stop that Ctrl-C interrupted
                if backend.server is not None:
                    backend.server.stop()
        return code or int(not self.result.valid())

    def _start_and_measure(self, stack: ExitStack) -> None:
        library = stack.enter_context(self._library()) if self.options.model_dir is not None else None
        clients = stack.enter_context(ClientPool(self.options.clients))
        up = [b for b in self.options.backends if self._start(b, stack)]
        library = library if library is not None and self._loaded(library) else None
        self._describe(up)
        up = self._check_parity(up, library)
        self._measure(up, library, clients)

    def _cut_off(self) -> None:
        """Interrupted: whole rounds count, where there are any."""
        entries = {(t.side, tuple(t.condition.values())) for t in self.result.turns if t.round == 0}
        last = max((t.round for t in self.result.turns), default=-1)
        whole = last + (sum(t.round == last for t in self.result.turns) >= len(entries) > 0 and last > 0)
        self._keep(max(0, whole), "interrupted")
        self.result.problems.append("interrupted: rounds are missing")

    def _library(self) -> LocalLibrary:
        o = self.options
        assert o.model_dir is not None
        return LocalLibrary(Loading(o.task, o.model_dir, o.dtype, o.device, o.max_model_len))

    def _loaded(self, library: LocalLibrary) -> bool:
        try:
            library.wait()
        except LibraryFailed as error:
            self.result.problems.append(f"the library's sides are missing: {str(error)[-600:]}")
            return False
        return True

    def _start(self, backend: Backend, stack: ExitStack) -> bool:
        """A server that does not start is a problem of the run, not its end: others are measured all the same."""
        try:
            if backend.server is not None:
                left = self.options.budget_s - (time.monotonic() - self._began)
                backend.server.limit_start(left - MEASURING_S)
                stack.enter_context(_running(backend))
        except ServerFailed as error:
            print(f"error: {error}", flush=True)
            self.result.problems.append(f"{backend.name} is missing: {str(error)[-600:]}")
            return False
        return True

    def _describe(self, up: Sequence[Backend]) -> None:
        self.result.backends = [
            b.described()
            | {
                "served_version": environment.served_version(b.origin),
                "config": environment.shorten(self.options.configs.get(b.name)),
            }
            for b in up
        ]

    def _lengths(self) -> dict[str, Any]:
        texts = self.options.workload.texts("lengths", 500)
        if self.options.model_dir is None or not (self.options.model_dir / "tokenizer.json").is_file():
            return {
                "unit": "words",
                **describe([len(" ".join(t if isinstance(t, tuple) else (t,)).split()) for t in texts]),
            }
        tokenizer = load_tokenizer(self.options.model_dir)
        return {"unit": "tokens", **describe([len(e.ids) for e in tokenizer.encode_batch(texts)])}

    def _baselines(self) -> list[str]:
        o = self.options
        sides = [*(b.name for b in o.backends), *(m.name for m in o.methods if o.model_dir)]
        if o.baselines is not None:
            return list(o.baselines)
        wanted = [name for name in (ONE_BY_ONE, "vllm") if name in sides]
        return wanted or ([] if o.model_dir is not None and o.methods else sides[:1])

    def _best_baseline(self) -> None:
        """Libraries are measured at their best batch size, which this run finds."""
        o = self.options
        found = best(self.result.turns, [m.name for m in o.methods if m.batch > 1])
        if o.baselines is None and found is not None:
            fixed = [name for name in self._baselines() if name not in {m.name for m in o.methods if m.batch > 1}]
            self.result.baselines = [found, *(name for name in fixed if name != found)]

    def _check_parity(self, up: Sequence[Backend], library: LocalLibrary | None) -> list[Backend]:
        """Compares; returns the backends that answered."""
        o = self.options
        if not o.parity_texts:
            return list(up)
        texts = o.workload.texts("parity", o.parity_texts)
        answered: dict[str, list[Answer]] = {}
        for backend in up:
            try:
                answered[backend.name] = self._answers(backend, texts)
            except ParityRequestFailed as error:
                print(f"error: {error}", flush=True)
                self.result.problems.append(f"{backend.name} is missing: {str(error)[:600]}")
        kept = limits(o.task, [*(b.dtype for b in up), *([o.dtype] if library is not None else [])])
        if library is not None:
            reference = library.answers(texts, "float32")
            if o.dtype != "float32":
                answered[f"library, {o.dtype}"] = library.answers(texts, o.dtype)
            for name, ours in answered.items():
                self.result.agreements.append(compare(name, ours, "library, float32", reference, kept))
                print(self.result.agreements[-1], flush=True)
        return [b for b in up if b.name in answered]

    def _answers(self, backend: Backend, texts: Sequence[str]) -> list[Answer]:
        import asyncio

        shape = self._shapes[backend.shape or ""]

        async def ask() -> list[Answer]:
            found: list[Answer] = []
            async with connect(self.options.timeout_s) as session:
                for number, text in enumerate(texts):
                    where = f"{backend.name}, parity text {number}"
                    try:
                        async with session.post(backend.url, data=shape.body([text], backend.model)) as response:
                            answer = await response.read()
                    except (aiohttp.ClientError, OSError, TimeoutError) as error:
                        raise ParityRequestFailed(f"{where}: {error!r}") from error
                    if response.status != 200:
                        raise ParityRequestFailed(f"{where}: {response.status} {answer[:500].decode(errors='replace')}")
                    try:
                        found += shape.read(answer, 1)
                    except MalformedAnswer as error:
                        raise ParityRequestFailed(f"{where}: {error}") from error
            return found

        return asyncio.run(ask())

    def _measure(self, up: Sequence[Backend], library: LocalLibrary | None, clients: ClientPool) -> None:
        o = self.options
        entries = list(self._entries(up, library is not None))
        if not up and library is None:
            return
        for entry in entries:  # before anything is measured
            if entry.backend is not None and self._out_of_time(0):
                return
            self._warm_up(entry, clients, library)
        for number in range(o.rounds):
            order = entries if number % 2 == 0 else entries[::-1]
            for position, entry in enumerate(order):
                if self._out_of_time(number):
                    return
                self._play(entry, (number, position), clients, library)
            self._best_baseline()
            self.result.write()
        self.result.finished = True

    def _method(self, rounds: int) -> str:
        return METHOD.format(described=self.options.workload.described, seconds=self.options.seconds, rounds=rounds)

    def _out_of_time(self, number: int) -> bool:
        """Whether the budget is spent. Whole rounds count; without one, what there is stays and is not valid."""
        spent = time.monotonic() - self._began
        if spent < self.options.budget_s:
            return False
        self._keep(number, f"after {spent:.0f} s the time was up")
        if not number:
            self.result.problems.append("turns are missing")
        self.result.finished = bool(number)
        return True

    def _keep(self, number: int, why: str) -> None:
        """Keeps the turns of so many whole rounds, or all where there is none."""
        if number:
            self.result.turns = [turn for turn in self.result.turns if turn.round < number]
            self.result.method = self._method(number)
        self.result.notes.append(f"whole rounds: {number}; {why}")
        self._best_baseline()

    def _entries(self, up: Sequence[Backend], library: bool) -> Iterator[_Entry]:
        o, unit = self.options, self.result.unit
        for inputs in o.inputs:
            for c in o.concurrencies:
                for backend in up:
                    yield _Entry({unit: inputs, "load": f"c={c}"}, inputs, backend, c)
                if library and (inputs, c) == (1, 1):
                    for method in o.methods:
                        if method.batch == 1:
                            yield _Entry({unit: 1, "load": "c=1"}, 1, method=method)
            for rate in o.rates:
                for backend in up:
                    yield _Entry({unit: inputs, "load": f"{rate:g}/s"}, inputs, backend, o.clients, rate)
        for method in o.methods if library else ():
            alone = method.batch == 1 and 1 in o.inputs and 1 in o.concurrencies
            if not alone:
                yield _Entry({unit: method.batch, "load": "offline"}, method.texts, method=method)

    def _warm_up(self, entry: _Entry, clients: ClientPool, library: LocalLibrary | None) -> None:
        """Also tells how many texts a turn of this kind will need."""
        o = self.options
        if entry.method is not None:
            if library is not None:
                library.turn(entry.method, o.workload.texts("warm", entry.method.texts, entry.method.batch), 0.2)
            return
        count = max(round(o.warmup / max(1.0, entry.inputs / 20)), 2 * entry.concurrency)
        load = self._send(entry, "start", 0, count, clients, min(3.0, max(1.0, o.seconds)), warmed=True)
        good = [outcome for outcome in load.outcomes if outcome.error is None]
        failed = len(load.outcomes) - len(good)
        rate = entry.rate or (len(good) / load.wall_s if load.wall_s else 0.0)
        self._rates[entry.side, entry.inputs, entry.condition["load"]] = rate
        if failed:
            self.result.problems.append(f"{entry.side}: {failed} of {len(load.outcomes)} warm-up requests failed")
        where = " ".join(f"{name}={value}" for name, value in entry.condition.items())
        print(f"warm-up: {entry.side}, {where}: {len(good)} requests, {rate:.1f}/s, {failed} failed", flush=True)

    def _play(self, entry: _Entry, place: tuple[int, int], clients: ClientPool, library: LocalLibrary | None) -> None:
        o = self.options
        extra: dict[str, float] = {}
        failed: Sequence[Any] = ()
        if entry.method is not None:
            if library is None:
                return
            count = max(512, 2 * entry.method.texts)
            texts = o.workload.texts(f"{o.seed}/{place[0]}/{entry.side}", count, entry.method.batch)
            outcomes = library.turn(entry.method, texts, o.seconds)
        else:
            rate = self._rates[entry.side, entry.inputs, entry.condition["load"]]
            count = max(4 * entry.concurrency, round(2.5 * rate * o.seconds) + 8)
            load = self._send(entry, f"{o.seed}/{place[0]}", max(8, entry.concurrency), count, clients, o.seconds)
            outcomes, failed = load.outcomes, load.warmup_failures
            extra["client_cpu"] = max(load.cpu_shares, default=0.0)
            if entry.rate is None and load.wall_s:  # the warm-up's rate may have been low
                self._rates[entry.side, entry.inputs, entry.condition["load"]] = max(rate, len(outcomes) / load.wall_s)
        extra["p99_ms"] = 1e3 * quantile([x.seconds for x in outcomes if x.error is None], 0.99)
        measured = measurement(
            entry.side, entry.condition, place, entry.inputs, outcomes, extra=extra, also_failed=failed
        )
        self.result.turns.append(measured)
        print(progress(measured, o.rounds, self.result.unit), flush=True)

    def _send(
        self,
        entry: _Entry,
        seed: str,
        warm: int,
        count: int,
        clients: ClientPool,
        seconds: float,
        *,
        warmed: bool = False,
    ) -> Load:
        backend = entry.backend
        assert backend is not None
        shape = self._shapes[backend.shape or ""]
        own = f"/{backend.name}" if self._own_texts or warmed else ""
        texts = self.options.workload.texts(
            f"{seed}/{entry.inputs}/{entry.condition['load']}{own}", (warm + count) * entry.inputs, entry.inputs
        )
        bodies = [
            shape.body(texts[start : start + entry.inputs], backend.model)
            for start in range(0, len(texts), entry.inputs)
        ]
        rate = None if warmed else entry.rate
        return clients.play(
            Turn(
                backend.url,
                bodies[:warm],
                bodies[warm:],
                max(entry.concurrency, 1),
                entry.inputs,
                self.options.timeout_s,
                shape.read,
                seconds,
                rate,
            )
        )


@contextmanager
def _running(backend: Backend) -> Iterator[None]:
    assert backend.server is not None
    with backend.server:
        yield
