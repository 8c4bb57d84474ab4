"""Our processors inside vLLM's own serving code answer as our pipeline does, and keep nothing of abandoned requests."""

from __future__ import annotations

import asyncio
import base64
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from serve_app.engine.fake_engine import FakeEngine, fake_values
from serve_app.messages import Context, DataRequest, DataResult
from serve_app.pipeline import Pipeline
from tests.absa_cases import LABELS, SENTIMENT, absa_cases
from tests.checkpoints import Checkpoints
from tests.cluster import ROOT
from tests.parity import images
from tests.unit.models import text_model
from tests.unit.plugin_host.vllm_server import VllmServer

RERANK = {"query": "lazy dog", "documents": ["the quick fox", "the lazy dog", "word " * 300, ""], "top_n": 3}
PICTURES = [base64.b64encode(images.picture(seed)).decode() for seed in range(3)]
IMAGE_RANK = {"query": "a dog", "documents": [{"image": picture} for picture in PICTURES]}
FUSION = ROOT / "model_zoo" / "fusion-mini"


async def ours(folder: Path, task: str, data: Any, width: int = 1, **changes: Any) -> Any:
    """What our own server answers to `data`, without what names the request and the server."""
    model = text_model(folder, task, **changes)
    with ThreadPoolExecutor(1) as executor:
        pipeline = Pipeline(model, FakeEngine(model.settings, width=width), executor, images.DecodingLoader())
        result = await pipeline.run(Context("r", time.time() + 30), DataRequest(data, 100, 10))
    assert isinstance(result, DataResult)
    return bare(orjson.loads(result.json))


def bare(answer: Any) -> Any:
    """An answer without its id and the names of what served it."""
    return {key: value for key, value in answer.items() if key not in {"id", "model", "model_version"}}


def label_values(width: int = 1) -> Any:
    """An engine's stand-in that gives the values of the fake engine."""

    def compute(prompt: Any, params: Any) -> np.ndarray:
        assert params.use_activation is False
        return fake_values(np.array(prompt["prompt_token_ids"], np.int32), width)

    return compute


@pytest.fixture(scope="module")
def rerank(checkpoints: Checkpoints) -> VllmServer:
    from serve_app.vllm_plugin.io_processors.text import Rerank

    return VllmServer(checkpoints.bert(1), Rerank, max_model_len=64)


async def test_rerank_answers_as_our_server_does(rerank: VllmServer, checkpoints: Checkpoints) -> None:
    assert bare(rerank.answer(RERANK, label_values())) == await ours(checkpoints.bert(1), "rerank", RERANK)


async def test_bert_pairs_get_their_token_types(rerank: VllmServer) -> None:
    _, inputs = rerank.begin(RERANK, "types")
    ids = inputs[0]["prompts"]["prompt_token_ids"]
    second = ids.index(ids[-1]) + 1  # behind the first [SEP]
    assert {item["params"].extra_kwargs["compressed_token_type_ids"] for item in inputs} == {second}
    assert {item["params"].task for item in inputs} == {"classify"}


async def test_an_llm_rerankers_template_comes_from_the_config(checkpoints: Checkpoints) -> None:
    from serve_app.vllm_plugin.io_processors.text import Rerank

    folder = checkpoints.qwen3(1)
    server = VllmServer(folder, Rerank, max_model_len=512, hf_overrides={"poolserve": {"template": "qwen3-reranker"}})
    answer = server.answer(RERANK, label_values())
    settings = {"max_model_len": 512, "template": "qwen3-reranker"}
    assert bare(answer) == await ours(folder, "rerank", RERANK, **settings)
    other = {**settings, "template": {"prefix": "", "head": "{query}", "suffix": "", "instruction": ""}}
    assert bare(answer) != await ours(folder, "rerank", RERANK, **other)
    with pytest.raises(ValueError, match="template: the checkpoint's tokenizer puts nothing between"):
        await ours(folder, "rerank", RERANK, max_model_len=512)


def test_an_option_of_ours_that_is_wrong_stops_the_start(checkpoints: Checkpoints) -> None:
    from serve_app.vllm_plugin.io_processors.text import Rerank

    with pytest.raises(ValueError, match="templat"):
        VllmServer(checkpoints.bert(1), Rerank, max_model_len=64, hf_overrides={"poolserve": {"templat": "x"}})


def test_a_checkpoint_of_another_task_stops_the_start(checkpoints: Checkpoints) -> None:
    from serve_app.vllm_plugin.io_processors.text import Rerank

    with pytest.raises(ValueError, match="a reranker has one label; this checkpoint has 3"):
        VllmServer(checkpoints.bert(3), Rerank, max_model_len=64)


async def test_image_rank_answers_as_our_server_does() -> None:
    from serve_app.vllm_plugin import register
    from serve_app.vllm_plugin.io_processors.images import ImageRank

    register()
    server = VllmServer(FUSION, ImageRank, max_model_len=32)

    def compute(prompt: Any, params: Any) -> np.ndarray:
        (item,) = prompt["mm_kwargs"]["image"]
        colour = int(item["pixels"].data.numpy().astype(np.int64).mean() * 1000)
        return fake_values(np.array([*prompt["prompt_token_ids"][:-1], colour]), 1)

    pair = {"max_model_len": 32, "images": {"mode": "pair"}}
    assert bare(server.answer(IMAGE_RANK, compute)) == await ours(FUSION, "image_rank", IMAGE_RANK, **pair)
    broken = {
        "query": "a dog",
        "documents": [{"image": base64.b64encode(images.picture(7)).decode()}, {"image": "aGVsbG8="}],
    }
    answer = server.answer(broken, compute)
    assert [error["code"] for error in answer["errors"]] == ["media_undecodable"]
    assert [result["index"] for result in answer["results"]] == [0]


async def test_absa_answers_as_our_server_does(checkpoints: Checkpoints) -> None:
    from serve_app.vllm_plugin import register
    from serve_app.vllm_plugin.io_processors.text import Absa

    register()
    folder, data = checkpoints.two_heads(LABELS, SENTIMENT), {"inputs": [*absa_cases()[:40], "the lazy dog " * 60]}
    server = VllmServer(folder, Absa, max_model_len=64)

    def compute(prompt: Any, params: Any) -> np.ndarray:
        assert (params.task, params.use_activation) == ("token_classify", False)
        ids = np.array(prompt["prompt_token_ids"], np.int32)
        return np.stack([fake_values(ids, 9), *(fake_values(ids[i : i + 1], 9) for i in range(len(ids)))])

    answer = server.answer(data, compute)
    assert bare(answer) == await ours(folder, "absa", data, width=9)
    assert sum(len(item["spans"]) for item in answer["data"]) > 20


async def test_pairs_whose_token_types_differ_get_parameters_of_their_own(checkpoints: Checkpoints) -> None:
    """vLLM asks for one object per request; a pair classifier's texts are of different lengths."""
    from serve_app.vllm_plugin.io_processors.text import Absa

    folder = checkpoints.bert(3, id2label={0: "negative", 1: "neutral", 2: "positive"})
    data = {"inputs": ["the lazy dog", "boots"], "aspects": ["dog", "price"]}
    server = VllmServer(folder, Absa, max_model_len=64)
    _, inputs = server.begin(data, "pairs")
    for item in inputs:
        ids = item["prompts"]["prompt_token_ids"]
        assert item["params"].extra_kwargs == {"compressed_token_type_ids": ids.index(ids[-1]) + 1}
    assert len({item["params"].extra_kwargs["compressed_token_type_ids"] for item in inputs}) == 2
    answer = server.answer(data, label_values(3))
    assert bare(answer) == await ours(folder, "absa", data, width=3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a"], "data: must be an object"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": ["b"], "nope": 1}, "unknown field 'nope'"),
        ({"query": "a", "documents": ["b"], "model": "m"}, "send 'model' beside 'data'"),
        ({"query": "word " * 500, "documents": ["b"]}, "a query is never cut"),
        ({"query": "a", "documents": ["b"] * 1001}, "1000 at most"),
    ],
)
def test_wrong_data_is_refused_as_vllm_expects_it(rerank: VllmServer, data: Any, message: str) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=message):
        rerank.begin(data, "wrong")
    assert not rerank.processor._kept


async def test_200_abandoned_requests_leave_nothing_in_vllms_server(rerank: VllmServer) -> None:
    begun = 0

    async def request(number: int) -> None:
        nonlocal begun
        rerank.begin(RERANK, f"pooling-a{number}")
        begun += 1
        await asyncio.sleep(60)  # the engine

    tasks = [asyncio.ensure_future(request(number)) for number in range(200)]
    while begun < 200:
        await asyncio.sleep(0.01)
    assert len(rerank.processor._kept) == 200
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0)
    assert rerank.processor._kept == {}


async def test_a_request_id_that_is_under_way_is_refused_and_later_taken(rerank: VllmServer) -> None:
    from vllm.exceptions import VLLMValidationError

    context, inputs = rerank.begin(RERANK, "twice")
    with pytest.raises(VLLMValidationError, match="'twice' is under way"):
        rerank.begin(RERANK, "twice")
    assert len(rerank.end(context, inputs, label_values())["results"]) == 3
    assert len(rerank.answer(RERANK, label_values(), "twice")["results"]) == 3


def test_offline_vllm_asks_for_parameters_prompt_by_prompt(rerank: VllmServer) -> None:
    from vllm import PoolingParams

    plugin = rerank.processor
    prompts = plugin.pre_process(plugin.parse_data(RERANK))
    params = [plugin.merge_pooling_params(PoolingParams()) for _ in prompts]
    assert len(params) == 4
    assert {p.task for p in params} == {"classify"}
