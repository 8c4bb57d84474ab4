"""A baseline server: what one writes first with Ray Serve and vLLM. `python -m benchmarks.plain_serve --model-dir DIR`.

Two deployments with Ray Serve's own defaults: an ingress that parses JSON, and a replica that holds the tokenizer and
`AsyncLLM`. Pairs are tokenized in one call; each is a request of its own to the engine. Answers `POST /rerank`.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import threading
from pathlib import Path
from typing import Any


def application(a: argparse.Namespace) -> Any:
    """The Ray Serve application."""
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response

    options = {
        "model": str(a.model_dir),
        "runner": "pooling",
        "dtype": a.dtype,
        "max_model_len": a.max_model_len,
        # AsyncLLM's own defaults are those of a smaller card than `vllm serve` takes
        "max_num_seqs": a.max_num_seqs,
        "max_num_batched_tokens": a.max_num_batched_tokens,
        "enforce_eager": a.enforce_eager,
    }
    if a.gpus:
        options["gpu_memory_utilization"] = a.gpu_memory

    class Engine:
        def __init__(self) -> None:
            from transformers import AutoTokenizer
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.v1.engine.async_llm import AsyncLLM

            self._llm: Any = AsyncLLM.from_engine_args(AsyncEngineArgs(**options))
            self._tokenizer: Any = AutoTokenizer.from_pretrained(options["model"])
            self._ids = itertools.count()

        async def score(self, query: str, documents: list[str]) -> list[float]:
            encoded = self._tokenizer(
                [query] * len(documents), documents, truncation=True, max_length=options["max_model_len"]
            )
            types = encoded.get("token_type_ids") or [None] * len(documents)
            pairs = zip(encoded["input_ids"], types, strict=True)
            return list(await asyncio.gather(*(self._one(ids, kinds) for ids, kinds in pairs)))

        async def _one(self, ids: list[int], types: list[int] | None) -> float:
            from vllm import PoolingParams

            # BERT tells query and document apart by token type; vLLM takes the place where the second begins.
            extra = {"compressed_token_type_ids": types.index(1)} if types and 1 in types else None
            params = PoolingParams(task="classify", extra_kwargs=extra)
            final: Any = None
            async for output in self._llm.encode({"prompt_token_ids": ids}, params, f"r{next(self._ids)}"):
                final = output
            return float(final.outputs.data[0])

    class Ingress:
        def __init__(self, engine: Any) -> None:
            self._engine = engine

        async def __call__(self, request: Request) -> Response:
            if request.url.path == "/ready":
                await self._engine.score.remote("ready", ["yes"])
                return PlainTextResponse("ready")
            body = await request.json()
            scores = await self._engine.score.remote(body["query"], body["documents"])
            order = sorted(range(len(scores)), key=lambda i: -scores[i])
            return JSONResponse({"results": [{"index": i, "relevance_score": scores[i]} for i in order]})

    common = {"max_ongoing_requests": 512}
    engine = serve.deployment(Engine, ray_actor_options={"num_cpus": a.cpus, "num_gpus": a.gpus}, **common)
    ingress = serve.deployment(Ingress, ray_actor_options={"num_cpus": a.cpus}, num_replicas=a.ingresses, **common)
    return ingress.bind(engine.bind())


def main() -> None:
    """Serves until SIGINT or SIGTERM."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.plain_serve", description=__doc__)
    p.add_argument("--model-dir", type=Path, required=True)
    p.add_argument("--dtype", required=True)
    p.add_argument("--max-model-len", type=int, default=512)
    p.add_argument("--max-num-seqs", type=int, default=1024)
    p.add_argument("--max-num-batched-tokens", type=int, default=8192)
    p.add_argument("--enforce-eager", action="store_true")
    p.add_argument("--gpu-memory", type=float, default=0.3)
    p.add_argument("--gpus", type=float, default=0.0, help="of the engine; 0: CPU")
    p.add_argument("--cpus", type=float, default=1.0, help="that each replica reserves")
    p.add_argument("--ingresses", type=int, default=1)
    p.add_argument("--port", type=int, default=8021)
    a = p.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "0")  # the other ignores token types
    # Poolserve's switches, if they are in the environment, are not what a plain application has.
    for name in [name for name in os.environ if name.startswith("RAY_SERVE_") or name == "RAY_ADDRESS"]:
        del os.environ[name]
    import ray
    from ray import serve

    ray.init(address="local", include_dashboard=False, log_to_driver=True, object_store_memory=1 << 28)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": a.port})
        serve.run(application(a), name="rerank", route_prefix="/")
        ended.wait()
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
