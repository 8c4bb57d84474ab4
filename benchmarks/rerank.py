"""One run of the rerank benchmark: start, warm up, check parity, measure in turns, write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from benchmarks import environment, report, results_files
from benchmarks.backends import Backend, check_backends, parity_threshold
from benchmarks.clients import ClientPool, Turn
from benchmarks.corpus import FALLBACK_WORDS, Corpus, lengths, load_tokenizer, whole_words
from benchmarks.environment import shorten
from benchmarks.options import Options
from benchmarks.parity import Agreement, Scores, compare
from benchmarks.processes import ServerFailed, start_together
from benchmarks.reference import Reference, score_apart
from benchmarks.rounds import Row, plan, progress, row
from benchmarks.scoring import ParityRequestFailed, backend_scores
from benchmarks.wire import RerankCase, body

SETTINGS = [
    "concurrencies",
    "requests",
    "documents",
    "rounds",
    "clients",
    "warmup",
    "timeout_s",
    "exclusive",
    "seed",
    "max_model_len",
    "allow_dtype_mismatch",
]
"""Options that are kept in the results as they are."""
PARITY_SEED = "parity"
"""Fixed, so that runs can be compared; its texts occur in no measurement."""


class Run:
    """A run's progress. `execute` is the whole of it."""

    def __init__(self, options: Options) -> None:
        check_backends(options.backends, options.allow_dtype_mismatch)
        self.options = options
        self.backends = {b.name: b for b in options.backends}
        tokenizer = load_tokenizer(options.tokenizer) if options.tokenizer else None
        self._words = whole_words(tokenizer) if tokenizer else FALLBACK_WORDS
        self._parity_cases = self._corpus(PARITY_SEED).cases(options.parity_requests, options.documents)
        self._pair_lengths = lengths(self._parity_cases, tokenizer) if self._parity_cases else {}
        # One server under two names must not meet a text twice: its prefix cache would answer.
        self._own_texts = len({b.origin for b in options.backends}) < len(options.backends)
        self._scores: dict[str, Scores] = {}
        self._reference: Reference | None = None
        self._served: dict[str, dict[str, Any]] = {}
        self._problems: list[str] = []
        self._hardware = environment.hardware()  # now: the load average before the run is part of it
        self.rows: list[Row] = []

    def execute(self) -> int:
        """Run and write results.

        Returns:
            0 for a valid run, 1 when a request failed or parity is worse than its limit, 130 when interrupted.
        """
        print(f"seed {self.options.seed}, pair lengths {self._pair_lengths}", flush=True)
        code = 0
        try:
            self._score_reference()
            self._start_and_measure()
        except (ServerFailed, ParityRequestFailed, RuntimeError) as error:
            if not self.rows:
                raise
            self._problems.append(str(error))
        except KeyboardInterrupt:
            code = 130
            self._problems.append("interrupted: rounds are missing")
            print("interrupted", flush=True)
        finally:  # a second time for a server whose stop was what Ctrl-C interrupted
            for backend in self.backends.values():
                if backend.server is not None:
                    backend.server.stop()
        valid = self._write()
        return code or int(not valid)

    def _start_and_measure(self) -> None:
        with ExitStack() as stack:
            clients = stack.enter_context(ClientPool(self.options.clients))
            if self.options.together:
                start_together([b.server for b in self.backends.values() if b.server is not None])
            if not self.options.exclusive:
                for backend in self.backends.values():  # one after the other: each engine measures free memory
                    stack.enter_context(self._up(backend, clients))
            self._measure(clients)

    def _score_reference(self) -> None:
        o = self.options
        if o.reference is None or not self._parity_cases:
            return
        print(f"reference: Transformers, {o.reference_dtype}", flush=True)
        self._reference = score_apart(
            o.reference,
            self._parity_cases,
            dtype=o.reference_dtype,
            device=o.reference_device,
            max_model_len=o.max_model_len,
        )

    @contextmanager
    def _up(self, backend: Backend, clients: ClientPool) -> Iterator[None]:
        """The backend, started if it is ours to start, warm, and once in the run scored for parity."""
        with ExitStack() as stack:
            if backend.server is not None:
                stack.enter_context(backend.server)
            self._served.setdefault(backend.name, environment.served_version(backend.origin))
            if backend.name not in self._scores:
                self._scores[backend.name] = asyncio.run(
                    backend_scores(backend, self._parity_cases, self.options.timeout_s)
                )
            self._warm_up(backend, clients)
            yield

    def _warm_up(self, backend: Backend, clients: ClientPool) -> None:
        starts = len(backend.server.start_seconds) if backend.server else 0
        for concurrency in sorted({min(4, max(self.options.concurrencies)), max(self.options.concurrencies)}):
            corpus = self._corpus("start", backend.name, starts, concurrency)
            count = max(self.options.warmup, concurrency)
            load = clients.play(self._turn(backend, [], corpus.cases(count, self.options.documents), concurrency))
            failed = sum(o.error is not None for o in load.outcomes)
            said = f"{backend.name}: {count} warm-up requests, c={concurrency}, {failed} failed"
            print(said, flush=True)
            if failed:
                self._problems.append(said)

    def _measure(self, clients: ClientPool) -> None:
        o = self.options
        counts = dict(zip(o.concurrencies, o.requests, strict=True))
        for slot in plan(list(self.backends), o.concurrencies, o.rounds, o.exclusive):
            backend = self.backends[slot.backend]
            with self._up(backend, clients) if o.exclusive else ExitStack():
                for concurrency in slot.concurrencies:
                    own = (backend.name,) if self._own_texts else ()
                    corpus = self._corpus(concurrency, slot.round, *own)
                    warmup = corpus.cases(max(8, concurrency), o.documents)
                    cases = corpus.cases(counts[concurrency], o.documents)
                    load = clients.play(self._turn(backend, warmup, cases, concurrency))
                    self.rows.append(row(slot, concurrency, o.documents, load))
                    print(progress(self.rows[-1], o.rounds), flush=True)

    def _turn(
        self, backend: Backend, warmup: Sequence[RerankCase], cases: Sequence[RerankCase], concurrency: int
    ) -> Turn:
        def payloads(of: Sequence[RerankCase]) -> list[bytes]:
            return [body(case, backend.model, backend.return_documents) for case in of]

        o = self.options
        return Turn(backend.url, payloads(warmup), payloads(cases), concurrency, o.documents, o.timeout_s)

    def _corpus(self, *parts: object) -> Corpus:
        seed = PARITY_SEED if parts == (PARITY_SEED,) else "/".join(map(str, (self.options.seed, *parts)))
        return Corpus(self._words, seed)

    def _agreements(self) -> list[Agreement]:
        o = self.options
        limit = o.parity_threshold if o.parity_threshold is not None else parity_threshold(o.backends)
        scored = dict(self._scores)
        if self._reference is not None:
            against, theirs = f"Transformers {self._reference.dtype}", self._reference.scores
        elif scored:
            against = next(iter(self.backends))
            if against not in scored:
                return []
            theirs = list(map(list, scored.pop(against)))
        else:
            return []
        return [compare(name, ours, against, theirs, limit) for name, ours in scored.items() if len(ours)]

    def _write(self) -> bool:
        """Write what there is; returns whether the run is valid."""
        o = self.options
        agreements = self._agreements()
        summaries = report.summarise(self.rows, report.baseline_name(list(self.backends), o.baseline))
        parts = report.result_parts(self.rows, summaries, agreements, self._problems)
        result = self._conditions() | parts
        text = report.markdown(result, summaries, agreements)
        data, page = results_files.write(result, text, o.results_dir)
        print(f"\n{text}\nparity: {result['parity']['verdict']}\nwritten: {data} and {page.name}", flush=True)
        return bool(result["valid"])

    def _conditions(self) -> dict[str, Any]:
        o = self.options
        settings = {key: getattr(o, key) for key in SETTINGS}
        settings |= {"baseline": report.baseline_name(list(self.backends), o.baseline), "own_texts": self._own_texts}
        reference = self._reference
        return {
            **environment.conditions(o.name, o.command, o.commit, self._hardware),
            "model": environment.model_shape(o.model_dir),
            "settings": settings,
            "pair_lengths": self._pair_lengths,
            "reference": reference
            and {"device": reference.device, "dtype": reference.dtype, "truncated": reference.truncated},
            "backends": [
                b.described() | {"served_version": self._served.get(b.name), "config": shorten(o.configs.get(b.name))}
                for b in o.backends
            ],
        }
