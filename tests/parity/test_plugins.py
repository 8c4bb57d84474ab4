"""One processor, two hosts, on real engines: `vllm serve` with our plugin, and our engine with a plugin of vLLM's."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import orjson
import pytest

from benchmarks.launch import VllmOptions, vllm_backend
from serve_app.messages import Context, DataRequest, PoolRequest, ScoreRequest
from serve_app.pipeline import Pipeline
from serve_app.plugin_host.host import PluginHost, plugin_host
from serve_app.plugin_host.registration import is_ours
from serve_app.tasks.classify.reference import reference_logits
from serve_app.vocabulary import DType
from tests.cluster import ROOT
from tests.parity.conftest import Served, serving
from tests.unit.plugin_host.conftest import SOURCE, install

CE_MINI = ROOT / "model_zoo" / "ce-mini"
DATA = {
    "query": "waterproof hiking boots for winter",
    "documents": [
        "Light mesh running shoes for summer roads.",
        "Insulated waterproof boots for winter hiking, warm lining and a grippy sole.",
        "",
        "How to return an order: print the label and drop the parcel within 30 days. " * 60,
    ],
}
TEXTS = ["winter boots", "a parcel that never came", "Hi"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(CE_MINI, "rerank", max_model_len=512, max_num_batched_tokens=4096) as started:
        yield started


@pytest.fixture(scope="module")
def echo(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pipeline, PluginHost]]:
    """A pipeline to the same engine, of a model that names the echo plugin."""
    folder = tmp_path_factory.mktemp("site")
    install(SOURCE, folder, tmp_path_factory.mktemp("build"))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    settings = served.model.settings.model_copy(update={"io_processor_plugin": "echo"})
    model = type(served.model)(settings, served.model.checkpoint, served.model.tokenizer)
    host = plugin_host(model)
    assert host is not None
    with ThreadPoolExecutor(1) as executor:
        yield Pipeline(model, served.engine, executor, plugin=host), host
    sys.path.remove(str(folder))


def _ask(served: Served, pipeline: Pipeline, data: Any) -> Any:
    return orjson.loads(served.through(pipeline, DataRequest(data, 1000, 200)).json)


def test_data_of_our_own_task_is_the_rerank_answer(served: Served) -> None:
    answer = _ask(served, served.pipeline, DATA)
    want = served.run(ScoreRequest([DATA["query"]], DATA["documents"])).scores
    got = {result["index"]: result["relevance_score"] for result in answer["results"]}
    np.testing.assert_allclose([got[i] for i in range(4)], want, atol=1e-6)
    assert [result["index"] for result in answer["results"]] == np.argsort(-want, kind="stable").tolist()


def test_a_plugin_gets_what_transformers_computes(served: Served, echo: tuple[Pipeline, PluginHost]) -> None:
    want = reference_logits(CE_MINI, TEXTS, dtype=DType.FLOAT32, max_length=512)
    for prompts in ("text", "ids", "dicts"):
        data = {"texts": TEXTS, "task": "classify", "use_activation": False, "prompts": prompts}
        answers = _ask(served, echo[0], data)["answers"]
        np.testing.assert_allclose([answer["values"] for answer in answers], want, atol=1e-4)
        assert all(answer["shape"] == [1] for answer in answers)
    activated = _ask(served, echo[0], {"texts": TEXTS, "task": "classify"})["answers"]
    np.testing.assert_allclose([a["values"] for a in activated], 1 / (1 + np.exp(-want)), atol=1e-4)


def test_a_plugins_extra_kwargs_reach_the_model(served: Served, echo: tuple[Pipeline, PluginHost]) -> None:
    """Token types from the second token on: another score."""
    data = {"texts": TEXTS, "task": "classify", "use_activation": False}
    plain = _ask(served, echo[0], data)["answers"]
    typed = _ask(served, echo[0], data | {"extra": {"compressed_token_type_ids": 1}})["answers"]
    assert plain[0]["values"][0] != pytest.approx(typed[0]["values"][0], abs=1e-3)


def test_values_of_tokens_keep_their_shape(served: Served, echo: tuple[Pipeline, PluginHost]) -> None:
    for answer in _ask(served, echo[0], {"texts": TEXTS, "task": "token_classify"})["answers"]:
        assert answer["shape"] == [len(answer["tokens"]), 1]


def test_200_aborted_requests_leave_nothing_here_or_in_the_engine(
    served: Served, echo: tuple[Pipeline, PluginHost]
) -> None:
    from echo_plugin.processor import Note

    pipeline, host = echo
    cancelled = 0

    async def abort() -> None:
        nonlocal cancelled
        data = {"texts": ["word " * 400] * 20, "task": "classify"}
        context = Context("abort", time.time() + 600)
        for _ in range(20):
            tasks = [asyncio.ensure_future(pipeline.run(context, DataRequest(data, 1000, 200))) for _ in range(10)]
            for _ in range(3000):
                if served.engine.load().sequences:
                    break
                await asyncio.sleep(0.01)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled += sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)

    served.call(abort())
    served.settle()
    assert cancelled >= 190  # one may have been answered before it was cancelled
    assert len(_ask(served, pipeline, {"texts": TEXTS, "task": "classify"})["answers"]) == 3
    gc.collect()
    assert [item for item in gc.get_objects() if type(item) is Note] == []
    plugin = host._plugin
    assert [len(table) for table in (plugin.cache, plugin.store.notes, plugin.queue, type(plugin).everyone)] == [0] * 4


def test_input_is_answered_by_the_poolers_numbers(served: Served) -> None:
    want = reference_logits(CE_MINI, TEXTS, dtype=DType.FLOAT32, max_length=512)
    np.testing.assert_allclose(served.run(PoolRequest(TEXTS, use_activation=False)).rows, want, atol=1e-4)
    np.testing.assert_allclose(served.run(PoolRequest(TEXTS)).rows, 1 / (1 + np.exp(-want)), atol=1e-4)


# --- vLLM as the host -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vllm(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `vllm serve ce-mini --io-processor-plugin rerank`."""
    assert is_ours("rerank"), "the processors are not registered: install this package again (make setup)"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = VllmOptions(CE_MINI, "float32", 512, extra="--enforce-eager --io-processor-plugin rerank", port=port)
    scratch = tmp_path_factory.mktemp("vllm")
    backend = vllm_backend(options, cpu=not os.environ.get("CUDA_VISIBLE_DEVICES"), scratch=scratch, logs=scratch,
                           start_limit_s=600)  # fmt: skip
    assert backend.server is not None
    with backend.server:
        yield f"http://127.0.0.1:{port}"


def _post(url: str, body: Any, timeout_s: float = 120.0) -> tuple[int, Any]:
    request = urllib.request.Request(f"{url}/pooling", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize(
    "data", [DATA, DATA | {"top_n": 2, "raw_scores": True}, DATA | {"return_documents": True, "max_tokens_per_doc": 5}]
)
def test_vllm_with_our_plugin_answers_as_our_server_does(vllm: str, served: Served, data: Any) -> None:
    status, body = _post(vllm, {"data": data})
    assert status == 200
    got, want = body["data"], _ask(served, served.pipeline, data)
    scores = [[result.pop("relevance_score") for result in answer["results"]] for answer in (got, want)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
    for answer in (got, want):
        for name in ("id", "model", "model_version"):
            del answer[name]
    assert got == want


def test_vllm_refuses_wrong_data_with_our_message(vllm: str) -> None:
    status, body = _post(vllm, {"data": {"query": "a"}})
    assert status == 400
    assert "documents" in body["error"]["message"]


def test_vllm_goes_on_after_clients_that_left(vllm: str) -> None:
    long = {"query": "boots", "documents": ["word " * 400] * 50}
    for _ in range(5):
        with pytest.raises(TimeoutError):
            _post(vllm, {"data": long}, timeout_s=0.3)
    assert _post(vllm, {"data": DATA})[0] == 200
